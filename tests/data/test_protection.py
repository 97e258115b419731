"""Protected spans from training to translations, exports and documents."""

import json
import random
import re
from pathlib import Path

import pytest
import yaml

from mt_cli.advice.new_config import kinds_in
from mt_cli.config.loading import load_config

WORDS = ["one", "two", "three", "four", "five", "six"]


def sentences(number, seed=1):
    generator = random.Random(seed)
    for index in range(number):
        words = generator.choices(WORDS, k=generator.randrange(1, 5))
        words.insert(generator.randrange(len(words) + 1), f"{{key{index}}}")
        yield " ".join(words) + "."


def capitals(sentence):
    return " ".join(word if word.startswith("{") else word.upper() for word in sentence.split())


@pytest.fixture
def protected_run(once, one_thread, tiny_tree):
    """A folder with a run whose sentences have a span each, and its config; it need not translate well."""
    return once("protected", lambda folder: train_on_spans(folder, tiny_tree | {"name": "spans"}))


def train_on_spans(folder, tree):
    from mt_cli.run.train import train

    for name, number, seed in (("train", 200, 1), ("test", 5, 2)):
        lines = list(sentences(number, seed))
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (folder / f"{name}.xx").write_text("".join(f"{capitals(line)}\n" for line in lines), encoding="utf-8")
        tree["corpus"][name] = {"files": [str(folder / f"{name}.en"), str(folder / f"{name}.xx")]}
    tree["corpus"] |= {"protect": ["braces"], "valid": {"fraction": 0.1}}
    tree["training"] |= {"max_epochs": 5, "validate_every_steps": 100, "learning_rate": 1e-2, "warmup_steps": 10}
    (folder / "spans.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    train(load_config(folder / "spans.yaml"), folder / "runs")


@pytest.fixture
def run(protected_run, mt):
    return protected_run / "runs/spans"


LINES = ["one {new} two.", "{a} {b} three {a}.", "four {x}{y} five.", "six.", "{alone}"]


@pytest.mark.parametrize("options", [("--sample",), ("--n-best", "2")])
def test_every_translation_has_the_spans_of_its_line(mt, run, tmp_path, options):
    (tmp_path / "in").write_text("\n".join(LINES), encoding="utf-8")
    status, out, _ = mt("translate", "--run", run, "--input", "in", "--json", "--strict", *options)
    assert status == 0
    for line, row in zip(LINES, map(json.loads, out.splitlines()), strict=True):
        assert row["lost_spans"] == []
        for hypothesis in row["hypotheses"]:
            for span in ("{new}", "{a}", "{b}", "{x}", "{y}", "{alone}"):
                assert hypothesis["text"].count(span) == line.count(span)


def test_terms_are_written_as_in_the_glossary_and_named(mt, run, tmp_path):
    (tmp_path / "words.csv").write_text("en;xx\none;EINS\n{new};NEU\nsix;SECHS\nten;\n", encoding="utf-8")
    (tmp_path / "in").write_text("\n".join([*LINES, "one " * 35]), encoding="utf-8")
    status, out, err = mt("translate", "--run", run, "--input", "in", "--json", "--terms", "words.csv")
    assert status == 0 and "corpus.terms" in err and "1 without a translation" in err
    rows = [*map(json.loads, out.splitlines())]
    for row in rows[:-1]:
        uses = [(use["source"], use["status"]) for use in row["terms"]]
        assert uses == [(word, "used") for word in re.findall(r"\b(?:one|six)\b", row["source"])]
        assert row["translation"].count("EINS") == len(re.findall(r"\bone\b", row["source"]))
        assert max([0, *(source for source, _ in row["word_alignment"])]) < len(row["source"].split())
    missing = [use["status"] for use in rows[-1]["terms"]].count("missing")
    assert f"37 found, {37 - missing} used, 0 in another form, {missing} missing" in err and missing > 0
    status, _, err = mt("translate", "--run", run, "--input", "in", "--terms", "words.csv", "--strict")
    assert status == 1 and "line 6 (`one`)" in err
    assert mt("translate", "--run", run, "--terms", "words.csv", "--strict", "one {a}.")[0] == 0


def test_documents_and_scores_say_what_became_of_terms(mt, run, tmp_path):
    (tmp_path / "words.tsv").write_text("one\tEINS\nfive\tFÜNF\n", encoding="utf-8")
    messages = (f'msgid "{text}"\nmsgstr ""\n' for text in ("one {a}", "one " * 40))
    (tmp_path / "a.po").write_text("\n".join(messages), encoding="utf-8")
    options = ("--run", run, "--terms", "words.tsv")
    status, _, err = mt("translate", *options, "--input", "a.po", "--output", "b.po")
    assert status == 0 and "41 found" in err and "line 4" in err and "(`one`)" in err
    assert "EINS" in (tmp_path / "b.po").read_text(encoding="utf-8")
    assert mt("translate", *options, "--input", "a.po", "--output", "c.po", "--strict")[0] == 1
    (tmp_path / "b.po").write_text('msgid "two"\nmsgstr ""\n', encoding="utf-8")
    for text in (["two"], ["--input", "b.po", "--output", "d.po"]):
        assert "none found" in mt("translate", *options, *text)[2]
    (tmp_path / "source").write_text("one {a} five.\ntwo {one}.\n", encoding="utf-8")
    (tmp_path / "reference").write_text("EINS {a} FÜNFEN.\nTWO {one}.\n", encoding="utf-8")
    status, out, err = mt("evaluate", *options, "--source", "source", "--reference", "reference", "--json")
    assert status == 0, err
    assert json.loads(out)["terms"] == {"num_found": 2, "used": 100.0, "inflected": 0.0, "in_references": 100.0}
    assert "100.00  % of 2 used" in mt("evaluate", *options, "--source", "source", "--reference", "reference")[1]


def test_an_exported_model_names_lost_spans_and_aligns_words(mt, run, tmp_path):
    pytest.importorskip("ctranslate2")
    from mt_cli import Translator

    assert mt("export", "--run", run, "--format", "ctranslate2", "--output", "served")[0] == 0
    (tmp_path / "in").write_text("\n".join(LINES), encoding="utf-8")
    status, out, err = mt("translate", "--run", "served", "--engine", "ctranslate2", "--input", "in", "--json")
    assert status == 0, err
    for line, row in zip(LINES, map(json.loads, out.splitlines()), strict=True):
        for span in set(re.findall(r"{.*?}", line)):
            assert max(0, line.count(span) - row["translation"].count(span)) == row["lost_spans"].count(span)
    ours, exported = Translator.load(run, device="cpu"), Translator.load("served", engine="ctranslate2")
    items = ours.translate_fully([*LINES, "", "three four. five six."], split_sentences=True)
    assert exported.word_alignments(items) == ours.word_alignments(items)


def test_a_child_protects_what_its_parent_protects(mt, protected_run, run):
    config = protected_run / "spans.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    child = {"name": "child", "init": {"run": str(run)}, "training": {"max_steps": 2, "warmup_steps": 1}}
    child["corpus"] = {key: value for key, value in tree["corpus"].items() if key != "protect"}
    with open("child.yaml", "w", encoding="utf-8") as file:
        yaml.safe_dump(child, file)
    status, _, err = mt("train", "--config", "child.yaml")
    assert status == 0, err
    assert load_config(Path("runs/child/config.yaml")).corpus.protect == ("braces",)


def test_a_parent_without_entries_for_spans_is_refused(mt, tiny_config, trained):
    new = ("--set", f"init.run={trained}", "--set", "name=child", "--set", "corpus.protect=[braces]")
    tree = yaml.safe_load(tiny_config.read_text(encoding="utf-8"))
    del tree["model"]
    tiny_config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    status, _, err = mt("train", "--config", tiny_config, *new)
    assert status == 2 and "corpus.protect" in err and "no entries for protected spans" in err


def test_spans_of_pairs_that_differ_are_noted_with_places(mt, protected_run, tmp_path):
    (tmp_path / "a.tsv").write_text("one {a}\tONE {a}\ntwo {b}\tTWO {c}\nthree {d}\tTHREE\nfour\tFOUR\n")
    changes = ("train={file: a.tsv}", "valid={file: a.tsv}", "filters.overlap=false", "test=null")
    options = (part for change in changes for part in ("--set", f"corpus.{change}"))
    status, out, _ = mt("data", "check", "--config", protected_run / "spans.yaml", *options)
    assert status == 0
    assert "train: 2 of 3 pairs with protected spans have other spans on the target side" in out
    assert "line 2, line 3" in out


def test_numbers_and_rare_or_unmatched_spans_are_not_proposed():
    pairs = [(f"page {n} has %s", f"Seite {n} hat %s") for n in range(50)]
    assert [kind.name for kind in kinds_in(pairs)] == ["printf"]
    assert kinds_in([(source, target.replace("%s", "%d")) for source, target in pairs]) == []
    assert kinds_in([*pairs[:5], *[("a", "b")] * 50]) == []
