import re
from pathlib import Path

import pytest
from command_lines import parse

from mt_cli.reporting.report import Report, format_summary, notes_on_comparison


def report_of(num_steps, **others):
    counts = dict.fromkeys(("best_step", "num_target_tokens", "num_parameters"), 7)
    return Report.model_validate(
        {"split": "test", "stopped_because": "patience", "num_steps": num_steps} | counts | others
    )


@pytest.mark.parametrize(("folder", "written"), [("runs/one", "runs/one"), ("my runs/one", "'my runs/one'")])
def test_a_summary_names_only_commands_that_there_are(folder, written):
    text = format_summary(report_of(9), Path(folder))
    assert f"mt report --run {written}" in text and f"mt translate --run {written} " in text
    for line in re.findall(r"^\w+: +(mt .*)$", text, flags=re.MULTILINE):
        parse(line)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_scores_of_valid_alone_are_said_to_be_too_high(split):
    text = format_summary(report_of(9, split=split, num_sentences=4), Path("runs/one"))
    assert ("valid chose the checkpoint" in text and "(corpus.test)" in text) == (split == "valid")


def test_scores_have_keys_of_their_own_in_json():
    scores = {name: {"score": 1.5, "signature": name, "later": 3} for name in ("bleu", "chrf++")}
    tree = {"split": "test", "num_sentences": 4, **scores, "exact_match": 25.0}
    report = report_of(9, **tree, extra_tests={"web": {"split": "web", "ter": {"score": 2.0}}})
    assert list(report.scores) == ["bleu", "chrf++"] and report.extra_tests["web"].scores["ter"].score == 2.0
    written = report.model_dump(mode="json", exclude_unset=True)
    assert list(written)[:5] == [*tree] and {key: written[key] for key in tree} == tree
    assert Report.model_validate(written) == report


def test_a_note_says_that_compared_runs_have_different_lengths():
    assert len(notes_on_comparison([report_of(9), None, report_of(9)])) == 1
    assert "9 and 8 steps" in notes_on_comparison([report_of(9), None, report_of(8)])[0]
