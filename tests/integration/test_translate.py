import gzip
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import pytest
import torch
import yaml
from safetensors import safe_open

from mt_cli.errors import InputError
from mt_cli.translation.translator import Translator


@pytest.fixture
def standard_input(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return give


def test_a_trained_run_translates(mt, trained):
    status, out, _ = mt("translate", "one two.", "three.", "--run", trained)
    assert status == 0
    assert out == "ONE TWO.\nTHREE.\n"


def test_the_newest_run_is_used_and_named(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "moved")
    status, out, err = mt("translate", "three.")
    assert (status, out) == (0, "THREE.\n")
    assert "runs/moved" in err


def test_one_line_in_is_one_line_out(mt, trained, tmp_path, standard_input):
    lines = ["one two.", "", "   ", "three.\u2028four.\x0cfive.\x85six", "one\ttwo.", "three.\r"]
    data = "\n".join(lines).encode()
    (tmp_path / "in.txt").write_bytes(data)
    standard_input(data)
    from_pipe = mt("translate", "--run", trained)[1]
    from_file = mt("translate", "--run", trained, "--input", "in.txt")[1]
    assert mt("translate", "--run", trained, "--input", "in.txt", "--output", "out.txt")[:2] == (0, "")
    assert from_pipe == from_file == (tmp_path / "out.txt").read_text(encoding="utf-8")
    out = from_pipe.split("\n")
    assert len(out) == len(lines) + 1
    assert out[:3] == ["ONE TWO.", "", ""]
    assert out[-2:] == ["THREE.", ""]


def test_a_line_of_ten_thousand_words_is_one_line_and_is_not_truncated(mt, trained, standard_input):
    standard_input(" ".join(["one two three."] * 3_334).encode() + b"\nthree.\n")
    status, out, err = mt("translate", "--run", trained, "--beam-size", "1")
    assert status == 0
    assert out.count("\n") == 2
    assert out.splitlines()[0].count("ONE") > 3_000
    number = re.search(r"1 line has more tokens than the longest training sentence \(line 1 in (\S+) segments\)", err)[
        1
    ]
    assert re.fullmatch(r"\d,\d{3}", number)


def test_a_document_is_refused_by_every_command_that_reads_lines_unless_it_is_asked_to(mt, trained, corpus, tmp_path):
    (tmp_path / "in.tsv").write_text("one two.\tONE TWO.\n", encoding="utf-8")
    (tmp_path / "in.txt").write_text("one two.\n", encoding="utf-8")
    (tmp_path / "page.txt").write_text("<!DOCTYPE html>\n", encoding="utf-8")
    for document, kind in (("in.tsv", "a table"), ("page.txt", "a document with markup")):
        for command in (
            ("translate", "--input", document),
            ("score", "--source", document, "--target", "in.txt"),
            ("score", "--source", "in.txt", "--target", document),
            ("evaluate", "--source", document, "--reference", "in.txt"),
            ("evaluate", "--source", "in.txt", "--reference", document),
            ("evaluate", "--source", "in.txt", "--reference", "in.txt", "--against", document),
        ):
            status, out, err = mt(*command, "--run", trained)
            assert (status, out) == (2, "") and f"{document}: {kind}" in err and "--as-lines" in err
            assert mt(*command, "--run", trained, "--as-lines")[0] == 0


def test_a_document_on_standard_input_is_refused(mt, trained, standard_input):
    for options in ((), ("--interactive",)):
        standard_input(b"WEBVTT\n\n00:01.000 --> 00:02.000\none two.\n")
        status, _, err = mt("translate", "--run", trained, *options)
        assert status == 2 and "standard input: a file of subtitles" in err
    standard_input(b"WEBVTT\n\n00:01.000 --> 00:02.000\none two.\n")
    status, out, _ = mt("translate", "--run", trained, "--as-lines")
    assert status == 0 and out.count("\n") == 4


def test_lines_without_words_are_copied_with_empty_details(mt, trained, tmp_path):
    (tmp_path / "in").write_text("—\n👍\n\u200b\none two.\n", encoding="utf-8")
    options = ("--json", "--n-best", "2", "--alignment", "pairs.txt", "--prefix", "ONE")
    status, out, err = mt("translate", "--input", "in", "--run", trained, *options)
    rows = list(map(json.loads, out.splitlines()))
    assert status == 0 and err == ""
    assert [row["translation"] for row in rows[:3]] == ["—", "👍", "\u200b"]
    assert all(row["hypotheses"] == [{"text": row["source"], "score": 0.0}] for row in rows[:3])
    assert all(row[key] == [] for row in rows[:3] for key in ("tokens", "source_tokens", "token_scores", "alignment"))
    assert (tmp_path / "pairs.txt").read_text(encoding="utf-8").splitlines()[:3] == ["", "", ""]
    assert mt("translate", "--input", "in", "--run", trained, "--n-best", "2")[1].split("\n")[:6:2] == [
        "—",
        "👍",
        "\u200b",
    ]
    status, out, err = mt("translate", "👍", "--run", trained, "--attention", "a.png")
    assert (status, out) == (2, "👍\n") and "this line is copied" in err


def test_long_lines_and_translations_that_repeat_themselves_are_noted_once_a_file(mt, trained, tmp_path, monkeypatch):
    monkeypatch.setattr("mt_cli.translation.lines.repeats_itself", lambda source, text: "two" in source)
    long = "one two three one two three one two.\n"
    (tmp_path / "in").write_text(("one.\n" + long) * 7, encoding="utf-8")
    status, out, err = mt("translate", "--input", "in", "--run", trained)
    assert status == 0 and out.count("\n") == 14
    first, second = err.splitlines()
    assert first.startswith(
        "note: 7 lines have more tokens than the longest training sentence (lines 2 in 2 segments, 4 "
    )
    assert first.endswith(" and 2 more)")
    assert second.startswith("note: 7 translations repeat themselves (lines 2, 4, 6, 8, 10 and 2 more)")
    (tmp_path / "in").write_text("one.\n", encoding="utf-8")
    assert mt("translate", "--input", "in", "--run", trained)[2] == ""


def test_a_missing_best_checkpoint_is_noted_once_by_each_command(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/checkpoints/best.safetensors").unlink()
    (tmp_path / "in").write_text("one two.\n", encoding="utf-8")
    for command in (
        ("translate", "one."),
        ("score", "one.", "ONE."),
        ("evaluate", "--source", "in", "--reference", "in"),
        ("inspect", "one."),
        ("export", "--format", "bundle", "--output", "exported"),
    ):
        status, _, err = mt(*command, "--run", "run")
        assert status == 0 and err.count("best.safetensors is missing, the best checkpoint (step ") == 1
        assert "using the last one (step " in err
    for options in (("--run", trained), ("--run", "run", "--checkpoint", "last")):
        assert "is missing" not in mt("translate", "one.", *options)[2]


def test_a_run_that_was_never_validated_has_no_note_on_a_missing_best_checkpoint(capsys, trained):
    from mt_cli.checkpoint.state import RunState
    from mt_cli.checkpoint.trained import _note_missing_best

    _note_missing_best(trained, RunState())
    assert capsys.readouterr().err == ""


def test_json_gives_scores_and_n_best_is_sorted(mt, trained):
    status, out, _ = mt("translate", "one two.", "", "--run", trained, "--json", "--n-best", "3")
    first, empty = map(json.loads, out.splitlines())
    assert status == 0
    scores = [hypothesis["score"] for hypothesis in first["hypotheses"]]
    assert first["translation"] == first["hypotheses"][0]["text"] == "ONE TWO."
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)
    assert empty["translation"] == ""
    _, out, _ = mt("translate", "one two.", "", "--run", trained, "--n-best", "3")
    assert len(out.splitlines()) == 6


def test_tokenize_shows_pieces_and_ids(mt, trained):
    assert mt("tokenize", "one two.", "--run", trained)[:2] == (0, "one two ￭.\n")
    assert mt("tokenize", "ONE.", "--run", trained, "--side", "target")[1] == "ONE ￭.\n"
    ids = mt("tokenize", "one two.", "--run", trained, "--ids")[1].split()
    assert len(ids) == 3
    assert all(int(index) > 3 for index in ids)


def test_tokenize_reports_on_a_config(mt, tiny_config, tmp_path):
    status, out, _ = mt("tokenize", "--config", tiny_config)
    assert status == 0
    assert "word_level" in out
    assert "0.00%" in out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".cache"]


def test_evaluate_scores_splits_and_files(mt, trained, corpus, tmp_path):
    status, out, _ = mt("evaluate", "--run", trained, "--json")
    scores = json.loads(out)
    assert status == 0
    assert (scores["run"], scores["split"], scores["num_sentences"]) == ("tiny", "test", 40)
    assert scores["bleu"]["score"] > 90
    assert scores["bleu"]["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert all(report[key] == scores[key] for key in ("bleu", "chrf", "chrf++", "ter", "num_sentences"))
    assert "nw:2" in scores["chrf++"]["signature"] and scores["speed"]["tokens_per_second"] > 0
    hypotheses = (trained / "hypotheses" / "test.txt").read_text(encoding="utf-8").splitlines()
    assert hypotheses == mt("translate", "--run", trained, "--input", corpus / "test.en")[1].splitlines()
    files = ["--source", corpus / "test.en", "--reference", corpus / "test.xx"]
    assert json.loads(mt("evaluate", "--run", trained, "--json", *files)[1])["bleu"] == scores["bleu"]
    (tmp_path / "own.en").write_text("one.\ntwo.\n", encoding="utf-8")
    (tmp_path / "own.xx").write_text("NINE.\nNINE.\n", encoding="utf-8")
    files = ["--source", "own.en", "--reference", "own.xx"]
    scores = json.loads(mt("evaluate", "--run", trained, "--json", *files)[1])
    assert scores["num_sentences"] == 2 and scores["bleu"]["score"] < 90
    assert "BLEU" in mt("evaluate", "--run", trained, "--split", "valid")[1]
    status, _, err = mt("evaluate", "--run", trained, "--split", "exam")
    assert status == 2
    assert "only valid, test" in err


def test_a_checkpoint_can_be_named(mt, trained, tmp_path):
    (step,) = (path.stem for path in (trained / "checkpoints").glob("step-*"))
    run, pair = ("--run", trained), ("one two.", "ONE TWO.")
    scores = {}  # The steps of a run that has learned its text may differ in the last digits only.
    for name in ("best", "last", step):
        option = ("--checkpoint", name)
        translator = Translator.load(trained, "cpu", "fp32", checkpoint=name)
        scores[name] = translator.score(*([text] for text in pair))[0].log_prob
        assert mt("score", *pair, *run, *option, "--precision", "fp32")[1] == f"{scores[name]:.4f}\n"
        assert mt("translate", pair[0], *run, *option)[1] == "ONE TWO.\n"
        assert mt("inspect", pair[0], *run, *option, "--output", "pictures")[1].startswith("ONE TWO.\n")
    assert scores[step] != scores["best"]
    assert mt("score", *pair, *run, "--precision", "fp32")[1] == f"{scores['best']:.4f}\n"


def test_a_named_checkpoint_that_is_damaged_is_refused(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    with (tmp_path / "run" / "checkpoints" / "last.safetensors").open("ab") as file:
        file.write(b"x")
    status, _, err = mt("translate", "one.", "--run", "run", "--checkpoint", "last")
    assert status == 2 and "damaged" in err and "or use another checkpoint" in err


@pytest.mark.parametrize("command", [("translate", "one."), ("score", "one.", "ONE."), ("evaluate",), ("inspect",)])
def test_a_missing_checkpoint_is_refused_with_the_existing_ones(mt, trained, command):
    (step,) = (path.stem for path in (trained / "checkpoints").glob("step-*"))
    for name in ("step-7", "../last", "former_best"):
        status, out, err = mt(*command, "--run", trained, "--checkpoint", name)
        assert (status, out) == (2, "")
        assert f"no checkpoint {name}; there are best, last, {step}" in err


def test_scores_of_a_named_checkpoint_name_it_and_leave_the_translations_of_the_best_alone(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    best = tmp_path / "run" / "hypotheses" / "test.txt"
    best.write_text("untouched", encoding="utf-8")
    status, out, _ = mt("evaluate", "--run", "run", "--checkpoint", "last", "--json")
    assert status == 0 and json.loads(out)["checkpoint"] == "last"
    assert len(best.with_name("test.last.txt").read_text(encoding="utf-8").splitlines()) == 40
    assert best.read_text(encoding="utf-8") == "untouched"
    assert mt("evaluate", "--run", "run", "--checkpoint", "last")[1].startswith("run, checkpoint last: test (40 sent")
    status, out, _ = mt("evaluate", "--run", "run", "--json")
    assert "checkpoint" not in json.loads(out) and best.read_text(encoding="utf-8") != "untouched"


def test_the_python_api_translates(trained):
    translator = Translator.load(trained)
    assert translator.translate(["one two.", "", "three."]) == ["ONE TWO.", "", "THREE."]


def test_the_number_of_threads_can_be_given(mt, trained, monkeypatch):
    given = []
    monkeypatch.setattr("torch.set_num_threads", given.append)
    for command in (("translate", "one."), ("evaluate",)):
        assert mt(*command, "--run", trained, "--threads", "3")[0] == 0
    assert given == [3, 3]


def test_a_text_in_the_place_of_a_list_is_refused(trained):
    translator = Translator.load(trained)
    texts = ["one two."]
    for none in (None, 3, b"one two.", [b"one two."], [None], ["one.", 3]):
        for call in (translator.translate, lambda wrong: translator.score(wrong, texts)):
            with pytest.raises(InputError, match="give a list of sentences"):
                call(none)
    for call in (
        lambda: translator.translate(texts[0]),
        lambda: translator.translate_fully(texts[0]),
        lambda: translator.score(texts[0], texts),
        lambda: translator.score(texts, texts[0]),
    ):
        with pytest.raises(InputError, match="give a list of sentences"):
            call()


def test_texts_may_come_from_a_generator(trained):
    translator = Translator.load(trained)
    texts = ["one two.", "three."]
    assert translator.translate(iter(texts)) == translator.translate(texts)
    assert translator.score(iter(texts), iter(texts)) == translator.score(texts, texts)


def test_invalid_counts_are_refused(trained):
    translator = Translator.load(trained)
    with pytest.raises(InputError, match="1 sources and 2 targets"):
        translator.score(["one."], ["ONE.", "TWO."])
    for number in (0, -1, 1001, 10**30, "2", None):
        with pytest.raises(InputError, match="num_best"):
            translator.translate_fully(["one."], number)


@pytest.mark.parametrize("option", ["--output", "--alignment"])
def test_a_full_disk_under_a_file_is_named_once(mt, trained, option):
    status, _, err = mt("translate", "one.", "--run", trained, option, "/dev/full")
    assert (status, err) == (1, "mt: /dev/full: no space left on device\n")


def test_sigterm_ends_a_command_with_the_status_of_an_interruption(start, trained):
    command = [sys.executable, "-m", "mt_cli", "translate", "--run", trained]
    process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdin.write("one.\n" * 256)
    process.stdin.flush()
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def names_run(one_thread, tmp_path_factory):
    """A run that has seen a name in every sentence, and none of them twice."""
    from mt_cli.config.loading import parse_config
    from mt_cli.run.train import train

    folder = tmp_path_factory.mktemp("names")
    chance = random.Random(3)
    pairs = []
    for _ in range(600):
        words = chance.choices(["one", "two", "three", "four"], k=chance.randrange(1, 4))
        name = "".join(chance.choices("abcdefgh", k=9))
        place = chance.randrange(len(words) + 1)
        sides = (words, [word.upper() for word in words])
        pairs.append(tuple(" ".join([*side[:place], name, *side[place:]]) + "." for side in sides))
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    tree = {
        "name": "names",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": {"file": str(folder / "pairs.tsv")},
            "valid": {"fraction": 0.1},
        },
        "tokenizer": {"min_frequency": 2},
        "model": {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_epochs": 25, "batch_tokens": 300, "warmup_steps": 20, "learning_rate": 0.01, "device": "cpu"},
    }
    tree["training"] |= {"validate_every_steps": 400, "num_pictures": 0}
    tree["evaluation"] = {"num_resamples": 10}
    tree["model"]["dropout"] = 0.0
    train(parse_config(tree, "test"), folder / "runs")
    return folder / "runs" / "names"


def test_unknown_words_are_copied_kept_or_avoided(mt, names_run):
    def translation(*options):
        status, out, _ = mt("translate", "one Xerxes two three.", "--run", names_run, *options)
        assert status == 0
        return out

    assert translation() == translation("--unk", "copy") == "ONE Xerxes TWO THREE.\n"
    assert translation("--beam-size", "1") == "ONE Xerxes TWO THREE.\n"
    assert translation("--unk", "keep") == "ONE [UNK] TWO THREE.\n"
    assert not {"Xerxes", "[UNK]"} & set(translation("--unk", "avoid").split())
    status, _, err = mt("translate", "one.", "--run", names_run, "--unk", "guess")
    assert status == 2 and "copy" in err


def test_a_tag_is_never_copied_for_an_unknown_word():
    """The model attends to the tag most of all."""
    from mt_cli.config.directions import Tagging
    from mt_cli.config.sections import DecodingConfig, TokenizerConfig
    from mt_cli.tokenizer.training import train_tokenizer
    from mt_cli.translation.lines import Segment
    from mt_cli.translation.translator import Translator

    tokenizer = train_tokenizer(["one two"] * 9, TokenizerConfig(algorithm="word_level"), ("<2it>",))
    translator = Translator(None, (tokenizer, tokenizer), DecodingConfig(), 9, Tagging(("<2it>",)))
    text = "<2it> one two"
    segment = Segment(text, tokenizer.encode([text])[0], (), 0, "")
    words = translator._attended_words(segment, torch.tensor([[0.8, 0.0, 0.2], [0.8, 0.2, 0.0]]))
    assert words == {0: "two", 1: "one"}


def test_lines_that_end_at_carriage_returns_alone_are_refused(mt, trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"one.\rtwo.\rthree.\r")
    status, out, err = mt("translate", "--run", trained, "--input", "in.txt")
    assert (status, out) == (2, "") and "in.txt: its lines end at carriage returns alone" in err


def test_a_reader_that_goes_away_is_no_error(run, trained, tmp_path):
    (tmp_path / "in.txt").write_text("one.\n" * 3000, encoding="utf-8")
    command = [sys.executable, "-m", "mt_cli", "translate", "--run", trained, "--input", "in.txt"]
    line = '("$@"; echo status $? >&2) | head -n 1'
    result = run(["bash", "-c", line, "bash", *command], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "ONE.\n"
    assert result.stderr == "status 0\n"


def test_evaluate_reports_whether_a_difference_is_significant(mt, trained, corpus, tmp_path):
    own = tmp_path / "own.txt"
    own.write_text(mt("translate", "--run", trained, "--input", corpus / "test.en")[1], encoding="utf-8")
    (tmp_path / "worse.txt").write_text("\n".join(["ONE"] * 40) + "\n", encoding="utf-8")
    many = ("--num-resamples", "1000")
    for rival, is_significant in ((own, False), (trained, False), (tmp_path / "worse.txt", True)):
        status, out, _ = mt("evaluate", "--run", trained, "--against", rival, *many, "--json")
        scores = json.loads(out)
        metrics = ["bleu", "chrf", "chrf++", "ter", "cer", "wer"]
        title, end = ["run", "split", "num_sentences", "beam_size"], ["exact_match", "speed", "notes", "against"]
        assert list(scores) == [*title, *metrics, *end]
        assert list(scores["bleu"]) == ["score", "signature", "confidence_95"]
        assert list(scores["against"]) == ["system", "num_resamples", *metrics, "notes"]
        assert list(scores["against"]["bleu"]) == ["score", "p_value"]
        assert status == 0 and scores["against"]["system"] == str(rival)
        assert (scores["against"]["bleu"]["p_value"] < 0.05) == is_significant
    text = mt("evaluate", "--run", trained, "--against", "worse.txt", *many)[1]
    assert "(paired bootstrap, 1,000 samples)" in text
    assert ": significant" in text and " ± " in text and "tokens a second" in text
    assert "note: 40 sentences: intervals and p-values mean little" in text and "other seeds" not in text
    shutil.copytree(trained, tmp_path / "other")
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    (tmp_path / "other/report.json").write_text(json.dumps(report | {"num_steps": 7}), encoding="utf-8")
    text = mt("evaluate", "--run", trained, "--against", "other", "--num-resamples", "10")[1]
    assert f"note: the runs had {report['num_steps']:,} and 7 steps" in text and "nothing about other seeds" in text
    (tmp_path / "short.txt").write_text("ONE\n", encoding="utf-8")
    status, _, err = mt("evaluate", "--run", trained, "--against", "short.txt")
    assert status == 2 and "1 lines for 40 sentences" in err


def test_rows_with_a_blank_side_are_counted_and_leave_files_of_translations_aligned(mt, trained, corpus, tmp_path):
    sources, references = ((corpus / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "xx"))
    other = [*references]
    sources[3], references[7], references[8] = "", " ", "\t"
    for name, lines in (("src", sources), ("ref", references), ("other", other)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    kept = [line for number, line in enumerate(other) if number not in (3, 7, 8)]
    (tmp_path / "kept").write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    evaluate = ("evaluate", "--run", trained, "--source", "src", "--reference", "ref", "--num-resamples", "10")
    note = "3 of 40 pairs are left out: line 4 has no source; lines 8, 9 have no reference"
    for rival in ("other", "kept"):
        scores = json.loads(mt(*evaluate, "--against", rival, "--json")[1])
        assert (scores["num_sentences"], scores["num_left_out"], scores["notes"][0]) == (37, 3, note)
        assert scores["against"]["bleu"]["score"] == 100
    assert f"\n  note: {note}\n" in mt(*evaluate)[1]
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"en": one, "xx": two}) + "\n" for one, two in zip(sources, references, strict=True)),
        encoding="utf-8",
    )
    config = yaml.safe_load((trained / "config.yaml").read_text(encoding="utf-8"))
    config["corpus"]["test"] = [{"file": "pairs.jsonl"}]
    run = tmp_path / "runs/blank"
    shutil.copytree(trained, run)
    (run / "report.json").unlink()
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"name": "blank"}), encoding="utf-8")
    own = json.loads(mt("evaluate", "--run", run, "--json", "--against", "other", "--num-resamples", "10")[1])
    assert (own["notes"][0], own["against"]["bleu"]["score"]) == (note, 100)
    status, _, err = mt("train", "--config", run / "config.yaml", "--fresh", "--set", "training.max_steps=2",
                        "--set", "training.patience=9")  # fmt: skip
    assert "note: training.patience 9 cannot end this run" in err and "Scoring test: 37 sentences (training.max" in err
    assert status == 0 and f"\n  note: {note}\n" in err, err
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert (report["num_left_out"], report["notes"][0]) == (3, note)


def test_the_number_of_random_samples_of_an_interval_is_an_option(mt, trained, tmp_path):
    (tmp_path / "a").write_text("one.\ntwo.\nthree four.\n" * 5, encoding="utf-8")
    (tmp_path / "b").write_text("ONE.\nTEN.\nTHREE FOUR.\n" * 5, encoding="utf-8")
    evaluate = ("evaluate", "--source", "a", "--reference", "b", "--run", trained)

    def interval(*options):
        status, out, _ = mt(*evaluate, "--json", *options)
        assert status == 0
        return json.loads(out)["chrf"]["confidence_95"]

    assert interval() == interval("--num-resamples", 10) != interval("--num-resamples", 1000)
    for number in (0, 100_001):
        assert mt(*evaluate, "--num-resamples", number)[0] == 2


def test_a_confidence_interval_holds_the_score_of_most_halves(trained, corpus):
    from mt_cli.evaluation.texts import Scorer

    scorer = Scorer.of("en")

    references = [" ".join(random.Random(n).choices("abcdefgh", k=8)) for n in range(400)]
    hypotheses = [text if n % 3 else text[::-1] for n, text in enumerate(references)]
    whole = scorer.score(hypotheses, references, ("bleu",))["bleu"].score
    half = scorer.score(hypotheses[::2], references[::2], ("bleu",))["bleu"].score
    assert 0.5 < scorer.confidence(hypotheses, references)["bleu"] < 8
    assert abs(whole - half) < 3 * scorer.confidence(hypotheses[::2], references[::2])["bleu"]


def test_a_run_directory_that_cannot_be_written_is_still_scored(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "hypotheses")
    (tmp_path / "run" / "hypotheses").write_text("in the way", encoding="utf-8")
    status, out, err = mt("evaluate", "--run", "run", "--json")
    assert status == 0 and json.loads(out)["bleu"]["score"] > 90
    assert "were not written" in err


def test_score_gives_the_log_probability_of_pairs(mt, trained, tmp_path):
    right, wrong = (float(mt("score", "one two.", text, "--run", trained)[1]) for text in ("ONE TWO.", "TEN."))
    assert wrong < right < 0
    (tmp_path / "a").write_text("one two.\n\none two.\n", encoding="utf-8")
    (tmp_path / "b").write_text("ONE TWO.\nONE.\nTEN.\n", encoding="utf-8")
    status, out, _ = mt("score", "--source", "a", "--target", "b", "--run", trained)
    assert status == 0 and [float(line) for line in out.splitlines()][::2] == pytest.approx([right, wrong], abs=1e-3)
    row = json.loads(mt("score", "one two.", "ONE TWO.", "--run", trained, "--json")[1])
    assert row["tokens"] == ["ONE", "TWO", "\uffed.", "[EOS]"]
    assert sum(row["token_scores"]) == pytest.approx(row["log_prob"], abs=1e-3)
    for arguments in (["one."], ["one.", "ONE.", "two"], [], ["--source", "a"], ["--source", "a", "--target", "short"]):
        (tmp_path / "short").write_text("ONE\n", encoding="utf-8")
        assert mt("score", "--run", trained, *arguments)[0] == 2


def test_json_gives_tokens_their_scores_and_what_they_are_aligned_with(mt, trained):
    row = json.loads(mt("translate", "seven one two.", "--run", trained, "--json", "--precision", "fp32")[1])
    assert row["source_tokens"] == ["seven", "one", "two", "\uffed."]
    assert row["tokens"] == ["SEVEN", "ONE", "TWO", "\uffed.", "[EOS]"]
    assert sum(row["token_scores"]) / (10 / 6) == pytest.approx(row["score"], abs=1e-3)
    assert [target for _, target in row["alignment"]] == [0, 1, 2, 3]
    assert {(source, target) for source, target in row["word_alignment"]} <= {
        (s, t) for s in range(3) for t in range(3)
    }


def test_alignment_is_written_to_its_file(mt, trained, tmp_path):
    (tmp_path / "in").write_text("one two three.\n\nfour five. six. seven eight nine ten.\n", encoding="utf-8")
    command = ("translate", "--run", trained, "--input", "in", "--alignment", "pairs")
    status, out, _ = mt(*command, "--n-best", "2")
    assert status == 0 and len(out.splitlines()) == 6
    first, empty, long = (tmp_path / "pairs").read_text(encoding="utf-8").split("\n")[:3]
    assert empty == ""
    assert all(re.fullmatch(r"\d-\d", pair) for pair in first.split())
    # The long line is translated in segments, and its words are counted across them.
    sides = [{int(pair.split("-")[side]) for pair in long.split()} for side in (0, 1)]
    assert max(sides[0]) == 6 and max(sides[1]) in (5, 6) and min(sides[0] | sides[1]) == 0


@pytest.fixture
def dialogue(fork_server, trained, tmp_path):
    """A function that starts `mt translate` in a process of its own and returns its standard input and output."""
    files = []

    def begin(*options):
        for name in ("in", "out"):
            os.mkfifo(tmp_path / name)
        program = tmp_path / "program.py"
        program.write_text(
            "import os, sys; from mt_cli.cli import main as cli\n"
            "os.dup2(os.open('out', os.O_WRONLY), 1); os.dup2(os.open('in', os.O_RDONLY), 0)\n"
            f"sys.argv = {['mt', 'translate', '--run', str(trained), *options]}; cli.main()",
            encoding="utf-8",
        )
        reader = os.open(tmp_path / "out", os.O_RDONLY | os.O_NONBLOCK)  # Does not wait for the writer.
        files.append(open(reader, encoding="utf-8"))  # noqa: SIM115
        fork_server.start(tmp_path, program=str(program))
        files.append((tmp_path / "in").open("w", encoding="utf-8"))  # Waits until the process has both.
        os.set_blocking(reader, True)
        return files[1], files[0]

    yield begin
    for file in files:
        file.close()


def test_the_first_line_is_out_before_the_last_is_read(dialogue, fork_server, tmp_path):
    stdin, stdout = dialogue()
    print("one.\n" * 100, end="", file=stdin, flush=True)
    assert [stdout.readline() for _ in range(32)] == ["ONE.\n"] * 32
    print("two.", file=stdin)
    stdin.close()
    assert stdout.read() == "ONE.\n" * 68 + "TWO.\n"
    assert fork_server.wait() == [0]
    assert (tmp_path / "stream.2").read_text(encoding="utf-8") == ""


def test_interactive_answers_each_line_before_the_next(dialogue, fork_server):
    stdin, stdout = dialogue("--interactive")
    for word in ("one", "two"):
        print(f"{word}.", file=stdin, flush=True)
        assert stdout.readline() == f"{word.upper()}.\n"
    stdin.close()
    assert stdout.read() == ""
    assert fork_server.wait() == [0]


def test_a_line_of_many_sentences_is_translated_sentence_by_sentence(mt, trained):
    line = "One two. Three four? Five six."
    status, out, err = mt("translate", line.lower().replace("three", "Three"), "--run", trained, "--split-sentences")
    assert status == 0 and err == "mt: not in the vocabulary: Three, ?\n"
    assert out.startswith("ONE TWO. ")
    translator = Translator.load(trained)
    (item,) = translator.translate_fully(["one two. Three four? five six."], split_sentences=True)
    assert len(item.segments) == 2 and not item.is_too_long


def test_a_line_longer_than_any_in_training_is_translated_in_segments(trained, tmp_path):
    translator = Translator.load(trained, "cpu", "fp32")
    state = safe_open(trained / "checkpoints" / "best.safetensors", "pt").metadata()["state"]
    assert json.loads(state)["longest_source"] == translator.max_tokens == 6
    (item,) = translator.translate_fully(["one two three four, five six seven eight."])
    assert len(item.segments) == 2 and item.is_too_long
    assert item.text.startswith("ONE TWO THREE FOUR")


def test_sampling_a_prefix_and_other_options_of_the_search(mt, trained):
    def translation(*options):
        status, out, _ = mt("translate", "one two three.", "--run", trained, *options)
        assert status == 0
        return out

    hot = ("--sample", "--set", "decoding.temperature=5.0")
    draws = [translation(*hot, "--seed", str(seed)) for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1] and len(set(draws)) > 1
    assert translation("--sample", "--set", "decoding.top_k=1") == "ONE TWO THREE.\n"
    assert len(translation(*hot, "--n-best", "3").splitlines()) == 3
    assert translation("--prefix", "TEN TWO").startswith("TEN TWO")
    assert translation("--prefix", "ONE Xerxes").startswith("ONE Xerxes")
    tokens = translation("--set", "decoding.max_length=2", "--set", "decoding.min_length=2").replace(".", " .").split()
    assert len(tokens) == 2
    assert translation("--set", "decoding.no_repeat_ngram=1", "--set", "decoding.beam_size=1") == "ONE TWO THREE.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--seed", "3"), "seed: used only by sampling"),
        (("--set", "decoding.top_k=3"), "--sample"),
        (("--set", "decoding.topk=3"), "did you mean `top_k`"),
        (("--set", "decoding.top_k=few", "--sample"), "top_k: found 'few'"),
        (("--set", "training.seed=3"), "only options of the section decoding"),
        (("--set", "decoding.min_length=5", "--set", "decoding.max_length=3"), "less than min_length"),
        (("--interactive",), "give only one of"),
        (("--engine", "marian"), "use mt or ctranslate2"),
    ],
)
def test_invalid_options_of_translate_are_named(mt, trained, options, words):
    status, out, err = mt("translate", "one.", "--run", trained, *options)
    assert (status, out) == (2, "")
    assert words in err


def test_an_output_is_not_touched_before_there_is_something_to_write(mt, trained, tmp_path):
    (tmp_path / "old").write_text("kept\n", encoding="utf-8")
    (tmp_path / "in").write_text("one.\n", encoding="utf-8")
    (tmp_path / "link").hardlink_to(tmp_path / "in")
    (tmp_path / "to_new").symlink_to("new")
    translate = ("translate", "--run", trained)
    for arguments, words in (
        (("--input", "in", "--output", "in"), "--input and --output are one file"),
        (("--input", "in", "--alignment", "./in"), "--input and --alignment are one file"),
        (("--input", "in", "--output", "link"), "--input and --output are one file"),
        (("--input", "in", "--output", "old", "--alignment", "old"), "--output and --alignment are one file"),
        (("--input", "in", "--output", "new", "--alignment", "./new"), "--output and --alignment are one file"),
        (("--input", "in", "--output", "new", "--alignment", "to_new"), "--output and --alignment are one file"),
        (("one.", "--output", "new", "--attention", tmp_path / "new"), "--output and --attention are one file"),
        (("--input", "nothing", "--output", "old"), "nothing: no such file"),
        (("--input", "in", "--output", "old", "--alignment", "no/a"), "there is no folder no"),
        (("--input", "in", "--output", tmp_path), "is a folder"),
        (("--input", "nothing", "--output", "new"), "nothing: no such file"),
    ):
        status, _, err = mt(*translate, *arguments)
        assert status == 2 and words in err, arguments
    assert (tmp_path / "old").read_text(encoding="utf-8") == "kept\n"
    assert (tmp_path / "in").read_text(encoding="utf-8") == "one.\n"
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty").write_text("", encoding="utf-8")
    assert mt(*translate, "--input", "empty", "--output", "old")[0] == 0
    assert (tmp_path / "old").read_text(encoding="utf-8") == ""


def test_words_that_are_not_in_the_vocabulary_are_named(mt, trained, tmp_path):
    _, _, err = mt("translate", "one zebrafish quixotic zebrafish two.", "--run", trained)
    assert err == "mt: not in the vocabulary: zebrafish, quixotic\n"
    (tmp_path / "in").write_text("one zebra.\n" * 40, encoding="utf-8")
    _, out, err = mt("translate", "--input", "in", "--run", trained)
    assert err.count("zebra") == 5 and "40 lines had words" in err and out.count("\n") == 40
    assert mt("translate", "one two.", "--run", trained)[2] == ""


def test_without_a_test_set_the_validation_pairs_are_scored(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    config = tmp_path / "run" / "config.yaml"
    lines = config.read_text(encoding="utf-8").split("\n")
    start = lines.index("  test:")
    end = next(place for place in range(start + 1, len(lines)) if not lines[place].startswith(("  -", "   ")))
    config.write_text("\n".join(lines[:start] + lines[end:]), encoding="utf-8")
    assert json.loads(mt("evaluate", "--run", "run", "--json")[1])["split"] == "valid"


def test_a_missing_run_is_reported_with_a_similar_name(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "quickstart")
    status, _, err = mt("translate", "one.", "--run", "runs/quikstart")
    assert status == 2 and "did you mean runs/quickstart?" in err
    assert "did you mean runs/quickstart?" in mt("translate", "one.", "--run", "quickstart")[2]


def test_the_version_is_printed(mt):
    status, out, _ = mt("--version")
    assert status == 0 and re.fullmatch(r"mt \d+\.\d+\.\d+(\.dev\d+)?\n", out)


def test_a_run_is_not_compared_with_one_of_other_languages(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "other")
    config = tmp_path / "other" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("target: xx", "target: yy"), encoding="utf-8")
    status, out, err = mt("evaluate", "--run", trained, "--against", "other")
    assert (status, out) == (2, "") and "--against other: translates en to yy, and this run en to xx" in err


def test_a_damaged_best_of_a_renamed_run_is_refused_with_advice(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "renamed")
    (tmp_path / "renamed" / "checkpoints" / "best.safetensors").write_bytes(b"damaged")
    status, _, err = mt("translate", "one.", "--run", "renamed")
    assert status == 2 and "give the folder its name tiny back below runs/" in err


def test_compressed_input_is_read_by_its_name_and_named_otherwise(mt, trained, corpus, tmp_path):
    text = (corpus / "test.en").read_bytes()
    packed = {"in.txt.gz": gzip.compress(text), "plain.gz": text, "packed.txt": gzip.compress(text)}
    for name, content in packed.items():
        (tmp_path / name).write_bytes(content)
    _, expected, _ = mt("translate", "--run", trained, "--input", corpus / "test.en")
    assert mt("translate", "--run", trained, "--input", "in.txt.gz")[1] == expected
    status, _, err = mt("translate", "--run", trained, "--input", "plain.gz")
    assert status == 2 and "not compressed with gzip, in spite of its name" in err
    status, _, err = mt("translate", "--run", trained, "--input", "packed.txt")
    assert status == 2 and "packed.txt: it is compressed with gzip" in err


def test_commands_that_use_one_process_refuse_a_launcher_of_several(mt, trained, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert mt("tokenize", "--run", trained, "one")[0] == 0  # Not the variables of a launcher.
    monkeypatch.setenv("LOCAL_RANK", "0")
    status, out, err = mt("evaluate", "--run", trained)
    assert (status, out) == (2, "") and err.startswith("mt: `mt evaluate` uses one process")
    monkeypatch.setenv("RANK", "1")
    assert mt("evaluate", "--run", trained) == (2, "", "")
