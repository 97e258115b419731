import json
import math
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from run_content import some_known_lines as texts
from run_content import write_lines

from mt_cli.run import finish
from mt_cli.translation.quality import Estimate, QualityModel, counts_of, lowest, read_quality, units_to_review
from mt_cli.translation.translator import Translator


@pytest.fixture
def estimates(mt, run_with_quality):
    """A function: the expected chrF of each line, by `mt translate --json`."""

    def of(lines, *options):
        write_lines(Path("estimated"), lines)
        command = ("translate", "--run", run_with_quality, "--input", "estimated", "--as-lines", "--precision", "fp32")
        status, out, err = mt(*command, "--json", *options)
        assert status == 0, err
        return [json.loads(row).get("expected_chrf") for row in out.splitlines()]

    return of


@given(st.lists(st.floats(0, 100) | st.just(math.inf), max_size=30), st.integers(1, 100))
def test_the_chosen_share_has_the_lowest_estimates(ranks, percent):
    chosen = lowest(ranks, percent / 100)
    finite = [rank for rank in ranks if math.isfinite(rank)]
    assert len(chosen) == math.ceil(percent / 100 * len(finite)) and chosen == sorted(set(chosen))
    assert sorted(ranks[row] for row in chosen) == sorted(finite)[: len(chosen)]


def test_an_estimate_tells_good_lines_from_bad_ones(estimates):
    lines = [*texts(30, seed=2)]
    expected = estimates(lines)
    bad, good = (
        [value for value, line in zip(expected, lines, strict=True) if ("zebra" in line) is is_bad]
        for is_bad in (True, False)
    )
    assert max(bad) < min(good)


def test_the_order_of_lines_changes_no_estimate(estimates):
    lines = [*texts(20, seed=3), "", "12", "one <b>two</b> %s."]
    expected = dict(zip(lines, estimates(lines), strict=True))
    assert expected[""] is None and expected["12"] == 100
    random.Random(1).shuffle(lines)
    assert estimates(lines) == [expected[line] for line in lines]


@pytest.mark.parametrize(("size", "holds"), [(8, True), (400, False)])
def test_a_text_is_unlike_the_validation_set_by_characters(run_with_quality, size, holds):
    quality = read_quality(Path(run_with_quality))
    counts = Counter()
    for row in range(10):
        counts.update(
            counts_of(Estimate(60.0, "rare", "other words", size) if row % 2 else Estimate(60.0, "", "", 400))
        )
    assert quality.holds(counts) is holds


def test_lines_without_an_estimate_are_read_first_unless_they_come_out_unchanged():
    copied, poor, code, odd = (
        Estimate(100.0, ""),
        Estimate(40.0, "rare"),
        Estimate(70.0, "rare", "other words", is_unchanged=True),
        Estimate(70.0, "rare", "other words"),
    )
    assert sorted([copied, code, poor, odd], key=lambda estimate: estimate.rank) == [odd, poor, code, copied]


def test_texts_without_an_estimate_stay_drafts(run_with_quality):
    good, code = Estimate(60.0, "", "", 400), Estimate(70.0, "rare", "other words", 8, is_unchanged=True)
    estimates = {unit: [code if unit == 3 else good] for unit in range(10)}
    chosen, certain = units_to_review(estimates, read_quality(Path(run_with_quality)), 0.1, "a.po")
    assert chosen.isdisjoint(certain) and 3 not in certain and len(certain) >= 8


def test_sampled_translations_have_no_estimate(estimates):
    assert estimates(["one two.", "12"], "--sample") == [None, 100]


@pytest.fixture
def review(mt, run_with_quality):
    """Runs `mt translate --review` on lines: rows of the table, and standard error."""

    def of(lines, share="20%", status=0):
        write_lines(Path("in"), lines)
        command = ("translate", "--run", run_with_quality, "--input", "in", "--as-lines", "--precision", "fp32")
        found, _, err = mt(*command, "--output", "out", "--review", share)
        assert found == status, err
        table = Path("out.review.tsv")
        header, *rows = table.read_text(encoding="utf-8").splitlines() if table.exists() else [""]
        return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows], err

    return of


def test_the_table_has_the_lines_with_the_lowest_estimates(review, estimates):
    lines = ["", "12", *texts(33, seed=4)]
    rows, err = review(lines)
    expected = estimates(lines)
    chosen = [int(row["line"]) - 1 for row in rows]
    assert len(chosen) == 7 and "7 of 33" in err and "expected chrF" in err
    assert max(expected[row] for row in chosen) <= min(expected[row] for row in range(2, 35) if row not in chosen)
    for row, index in zip(rows, chosen, strict=True):
        assert row["source"] == lines[index] and float(row["expected_chrf"]) == expected[index] and row["reason"]


def test_a_stopped_review_continues_and_equals_an_unstopped_one(review, monkeypatch):
    from mt_cli.cli import translated_lines
    from mt_cli.translation import stream

    lines = [*texts(11, seed=5)]
    rows, err = review(lines)
    summary = [line for line in err.splitlines() if "expected chrF" in line]
    Path("out.review.tsv").unlink()
    monkeypatch.setattr(stream, "_FIRST_BLOCK", 2)
    monkeypatch.setattr(translated_lines, "LARGEST_BLOCK", 2)
    append, calls = translated_lines.append_row, iter(range(3))

    def stop(*row):
        append(*row)
        if next(calls, None) is None:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(translated_lines, "append_row", stop)
        review(lines, status=130)
    again, err = review(lines)
    assert "continues after" in err and again == rows
    assert [line for line in err.splitlines() if "expected chrF" in line] == summary


def test_no_estimate_is_promised_for_another_language(review):
    lines = ["Le chien dort dans la maison.", "Nous avons mangé du pain avec les enfants.", "Elle lit un livre."] * 3
    rows, err = review(lines)
    assert "French" in err and "±" not in err
    assert [row["expected_chrf"] for row in rows] == [""] * 2 and "French" in rows[0]["reason"]


def test_an_estimate_is_of_one_state_of_the_weights(mt, run_with_quality, tmp_path):
    run = Path(shutil.copytree(run_with_quality, tmp_path / "copy"))
    tree = json.loads((run / "quality.json").read_text(encoding="utf-8"))
    (run / "quality.json").write_text(json.dumps(tree | {"digest": "0" * 64}), encoding="utf-8")
    assert read_quality(run_with_quality) is not None and read_quality(run) is None
    assert "expected_chrf" not in mt("translate", "--run", run, "one.", "--json")[1]
    write_lines(Path("in"), ["one."])
    status, _, err = mt("translate", "--run", run, "--input", "in", "--output", "out", "--review", "20%")
    assert status == 2 and "mt tune-quality" in err and not Path("out").exists()


@pytest.mark.parametrize("share", ["20", "0%", "101%", "-5%", "2.5%", "%"])
def test_a_review_is_a_share_in_percent(review, share):
    assert "1% to 100%" in review(["one."], share, status=2)[1]


def catalogue(lines):
    messages = "".join(f'msgid "{line}"\nmsgstr ""\n\n' for line in lines)
    return f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{messages}'


def xliff(lines):
    units = "".join(f'<trans-unit id="{id}"><source>{line}</source></trans-unit>' for id, line in enumerate(lines))
    head = '<file original="a" source-language="en" datatype="plaintext"><body>'
    return f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{head}{units}</body></file></xliff>'


@pytest.mark.parametrize(("suffix", "write", "mark"), [("po", catalogue, ", fuzzy"), ("xlf", xliff, '"needs-review-')])
def test_only_the_texts_to_read_are_drafts(mt, run_with_quality, suffix, write, mark):
    lines = [*dict.fromkeys(texts(60, seed=6))][:30]
    Path(f"in.{suffix}").write_text(write(lines), encoding="utf-8")
    command = ("translate", "--run", run_with_quality, "--input", f"in.{suffix}", "--output", f"out.{suffix}")
    marked = {}
    for share in (None, "20%"):
        status, _, err = mt(*command, *(("--review", share) if share else ()))
        assert status == 0, err
        marked[share] = Path(f"out.{suffix}").read_text(encoding="utf-8").count(mark)
    assert marked[None] == 30 and "6 to review" in err
    assert 6 <= marked["20%"] < 15  # Translations that repeat themselves stay drafts, too.
    french = ["Le chien dort.", "Nous avons du pain.", "Elle lit un livre.", "Il pleut ici.", "Vous avez une maison."]
    Path(f"in.{suffix}").write_text(write(french), encoding="utf-8")
    assert mt(*command, "--review", "20%")[0] == 0
    assert Path(f"out.{suffix}").read_text(encoding="utf-8").count(mark) == 5


def test_an_interrupted_end_keeps_the_estimate(mt, tiny_tree, monkeypatch):
    tiny_tree["corpus"]["valid"] = {"fraction": 0.3}
    Path("tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    run, fitted = Path("runs/tiny"), []

    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(finish, "write_report", interrupt)
        assert mt("train", "--config", "tiny.yaml")[0] == 130
    quality = (run / "quality.json").read_bytes()
    monkeypatch.setattr(finish, "fit_quality", fitted.append)
    status, _, err = mt("train", "--config", "tiny.yaml")
    assert status == 0 and "expected chrF of a sentence" in err and (run / "quality.json").read_bytes() == quality
    assert not fitted
    status, out, err = mt("tune-quality", "--run", run)
    assert status == 0 and "±" in out, err


def test_a_small_validation_set_is_refused(mt, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "copy")
    status, _, err = mt("tune-quality", "--run", run)
    assert status == 2 and "40 pairs" in err and not (Path(run) / "quality.json").exists()


def test_the_mean_of_more_lines_has_a_smaller_error(run_with_quality):
    model = QualityModel.model_validate_json((run_with_quality / "quality.json").read_bytes())
    errors = [model.error_of_mean(number) for number in (1, 10, 100, 1000)]
    assert errors == sorted(errors, reverse=True) and errors[-1] > 1.96 * math.sqrt(model.sentence_variance) / 4


def test_both_engines_give_the_same_estimates(mt, run_with_quality, estimates):
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    status, _, err = mt("export", "--run", run_with_quality, "--format", "ctranslate2", "--output", "served")
    assert status == 0, err
    lines = [*texts(20, seed=7), "12", "one <b>two</b>."]
    expected = estimates(lines)
    exported = Translator.load("served", "cpu", engine="ctranslate2")
    write_lines(Path("in"), lines)
    status, out, _ = mt(
        "translate", "--engine", "ctranslate2", "--run", "served", "--input", "in", "--as-lines", "--json"
    )
    assert status == 0 and exported.languages == ("en", "xx")
    assert [json.loads(row)["expected_chrf"] for row in out.splitlines()] == pytest.approx(expected, abs=0.2)
