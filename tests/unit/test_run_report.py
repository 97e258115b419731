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


def test_a_summary_names_only_commands_that_there_are():
    text = format_summary(report_of(9), Path("runs/one"))
    assert "mt report --run runs/one" in text
    assert "mt translate --run runs/one" in text and "tensorboard --logdir runs" in text
    assert text.endswith("Evaluate:   mt evaluate --run runs/one --source FILE --reference FILE")
    for line in re.findall(r"^\w+: +(mt .*)$", text, flags=re.MULTILINE):
        parse(line)


def test_a_summary_quotes_the_name_of_a_folder():
    assert "mt translate --run 'my runs/one' " in format_summary(report_of(9), Path("my runs/one"))


@pytest.mark.parametrize("split", ["valid", "test", "web"])
def test_scores_of_valid_alone_are_said_to_be_too_high(split):
    text = format_summary(report_of(9, split=split, num_sentences=4), Path("runs/one"))
    assert ("valid chose the checkpoint" in text and "(corpus.test)" in text) == (split == "valid")


def test_scores_have_keys_of_their_own_in_json_and_come_back():
    scores = {name: {"score": 1.5, "signature": name, "later": 3} for name in ("bleu", "chrf++")}
    tree = {"split": "test", "num_sentences": 4, **scores, "exact_match": 25.0}
    report = report_of(9, **tree, extra_tests={"web": {"split": "web", "ter": {"score": 2.0}}})
    assert list(report.scores) == ["bleu", "chrf++"] and report.extra_tests["web"].scores["ter"].score == 2.0
    found = report.model_dump(mode="json", exclude_unset=True)
    assert list(found)[:5] == [*tree] and {key: found[key] for key in tree} == tree
    assert Report.model_validate(found) == report


def test_a_note_says_that_compared_runs_have_different_lengths():
    assert len(notes_on_comparison([report_of(9), None, report_of(9)])) == 1
    assert "9 and 8 steps" in notes_on_comparison([report_of(9), None, report_of(8)])[0]
