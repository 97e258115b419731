import gzip
import io
import json
import os
import re
import shutil
import signal
import sys
from types import SimpleNamespace

import pytest
import torch
import yaml
from run_content import report_of
from safetensors import safe_open

from mt_cli.errors import InputError
from mt_cli.translation.stream import LineNotices
from mt_cli.translation.translator import Translator


@pytest.fixture
def standard_input(monkeypatch):
    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return give


@pytest.fixture
def write(tmp_path):
    """Writes lines into a file of the working folder."""

    def write_lines(name, lines):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return write_lines


def test_the_newest_run_translates_and_is_named(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "moved")
    status, out, err = mt("translate", "one two.", "three.")
    assert (status, out) == (0, "ONE TWO.\nTHREE.\n") and "runs/moved" in err
    assert mt("translate", "three.", "--run", trained) == (0, "THREE.\n", "")


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
    assert out[:3] == ["ONE TWO.", "", ""] and out[-2:] == ["THREE.", ""]


def test_a_line_of_ten_thousand_words_is_one_line_and_is_not_truncated(mt, trained, standard_input):
    standard_input(" ".join(["one two three."] * 3_334).encode() + b"\nthree.\n")
    status, out, err = mt("translate", "--run", trained, "--beam-size", "1")
    assert status == 0 and out.count("\n") == 2
    assert out.splitlines()[0].count("ONE") > 3_000
    assert re.search(r"1 line has more tokens than .* \(line 1 in \d,\d{3} segments\)", err)


def test_a_document_is_refused_by_every_command_that_reads_lines_unless_it_is_asked_to(
    mt, trained, write, standard_input
):
    write("in.tsv", ["one two.\tONE TWO."])
    write("in.txt", ["one two."])
    evaluate = ("evaluate", "--source", "in.txt", "--reference", "in.txt")
    for command in (
        ("translate", "--input", "in.tsv"),
        ("score", "--source", "in.tsv", "--target", "in.txt"),
        ("score", "--source", "in.txt", "--target", "in.tsv"),
        (*evaluate, "--source", "in.tsv"),
        (*evaluate, "--reference", "in.tsv"),
        (*evaluate, "--against", "in.tsv"),
    ):
        status, out, err = mt(*command, "--run", trained)
        assert (status, out) == (2, "") and "in.tsv" in err and "--as-lines" in err
        assert mt(*command, "--run", trained, "--as-lines")[0] == 0
    subtitles = b"WEBVTT\n\n00:01.000 --> 00:02.000\none two.\n"
    for options, expected in (((), 2), (("--interactive",), 2), (("--as-lines",), 0)):
        standard_input(subtitles)
        assert mt("translate", "--run", trained, *options)[0] == expected


WITHOUT_SPANS = {"hypotheses": (), "lost_in": None, "reordered_in": None, "is_too_long": False, "unknown_words": ()}


def test_long_lines_and_translations_that_repeat_themselves_are_noted_once_a_file(mt, trained, write, capsys):
    write("in", ["one.", "one two three one two three one two."] * 7)
    status, out, err = mt("translate", "--input", "in", "--run", trained)
    assert status == 0 and out.count("\n") == 14
    assert re.fullmatch(r"note: 7 lines have more tokens than .* \(lines 2 in 2 segments, 4 .* and 2 more\)\n", err)
    with LineNotices() as notices:
        for number in range(14):
            notices.add(SimpleNamespace(**WITHOUT_SPANS, plain="", text="ab" * 20 * (number % 2)))
    assert "7 translations repeat themselves (lines 2, 4, 6, 8, 10 and 2 more)" in capsys.readouterr().err


def test_empty_translations_of_lines_with_words_are_noted(capsys):
    with LineNotices() as notices:
        for plain, text in (("one", ""), ("", ""), ("two", "due")):
            notices.add(SimpleNamespace(**WITHOUT_SPANS, plain=plain, text=text))
    assert "1 translation is empty (line 1)" in capsys.readouterr().err


def test_a_missing_best_checkpoint_is_noted_once_by_each_command(mt, trained, tmp_path, write):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/checkpoints/best.safetensors").unlink()
    write("in", ["one two."])
    for command in (
        ("translate", "one."),
        ("score", "one.", "ONE."),
        ("evaluate", "--source", "in", "--reference", "in"),
        ("inspect", "one."),
        ("export", "--format", "bundle", "--output", "exported"),
    ):
        status, _, err = mt(*command, "--run", "run")
        assert status == 0 and err.count("best.safetensors is missing") == err.count("using the last one") == 1
    for options in (("--run", trained), ("--run", "run", "--checkpoint", "last")):
        assert "is missing" not in mt("translate", "one.", *options)[2]


def test_tokenize_shows_pieces_and_ids_and_reports_on_a_config(mt, trained, tiny_config, tmp_path):
    assert mt("tokenize", "one two.", "--run", trained)[:2] == (0, "one two ￭.\n")
    assert mt("tokenize", "ONE.", "--run", trained, "--side", "target")[1] == "ONE ￭.\n"
    ids = mt("tokenize", "one two.", "--run", trained, "--ids")[1].split()
    assert len(ids) == 3 and all(int(index) > 3 for index in ids)
    status, out, _ = mt("tokenize", "--config", tiny_config)
    assert status == 0 and "word_level" in out and "0.00%" in out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".cache"]


def test_evaluate_scores_splits_and_files(mt, trained, corpus, tmp_path, write):
    status, out, _ = mt("evaluate", "--run", trained, "--json")
    scores = json.loads(out)
    assert status == 0
    assert (scores["run"], scores["split"], scores["num_sentences"]) == ("tiny", "test", 40)
    assert scores["bleu"]["score"] > 90
    report = report_of(trained)
    assert all(report[key] == scores[key] for key in ("bleu", "chrf", "chrf++", "ter", "num_sentences"))
    assert "nw:2" in scores["chrf++"]["signature"] and scores["speed"]["tokens_per_second"] > 0
    hypotheses = (trained / "hypotheses" / "test.txt").read_text(encoding="utf-8")
    assert hypotheses == mt("translate", "--run", trained, "--input", corpus / "test.en")[1]
    files = ["--source", corpus / "test.en", "--reference", corpus / "test.xx"]
    assert json.loads(mt("evaluate", "--run", trained, "--json", *files)[1])["bleu"] == scores["bleu"]
    write("own.en", ["one.", "two."])
    write("own.xx", ["NINE.", "NINE."])
    scores = json.loads(mt("evaluate", "--run", trained, "--json", "--source", "own.en", "--reference", "own.xx")[1])
    assert scores["num_sentences"] == 2 and scores["bleu"]["score"] < 90
    assert "BLEU" in mt("evaluate", "--run", trained, "--split", "valid")[1]


def test_a_checkpoint_can_be_named(mt, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (step,) = (path.stem for path in (run / "checkpoints").glob("step-*"))
    pair = ("one two.", "ONE TWO.")
    scores = {}  # The steps of a run that has learned its text may differ in the last digits only.
    for name in ("best", "last", step):
        options = ("--run", run, "--checkpoint", name)
        translator = Translator.load(run, "cpu", "fp32", checkpoint=name)
        scores[name] = translator.score(*([text] for text in pair))[0].log_prob
        assert mt("score", *pair, *options, "--precision", "fp32")[1] == f"{scores[name]:.4f}\n"
        for command in (("translate", pair[0]), ("inspect", pair[0], "--output", "pictures")):
            assert mt(*command, *options)[1].startswith("ONE TWO.\n")
    assert scores[step] != scores["best"]
    assert mt("score", *pair, "--run", run, "--precision", "fp32")[1] == f"{scores['best']:.4f}\n"
    for command in (("translate", "one."), ("score", *pair), ("evaluate",), ("inspect",)):
        status, out, err = mt(*command, "--run", run, "--checkpoint", "../last")
        assert (status, out) == (2, "") and "../last" in err and f"best, last, {step}" in err


def test_a_damaged_checkpoint_is_refused_with_advice(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    for name, options, advice in (
        ("last", ("--checkpoint", "last"), "another checkpoint"),
        ("best", (), "config.yaml` make"),
    ):
        with (tmp_path / f"run/checkpoints/{name}.safetensors").open("ab") as file:
            file.write(b"x")
        status, _, err = mt("translate", "one.", "--run", "run", *options)
        assert status == 2 and "damaged" in err and advice in err


def test_scores_of_a_named_checkpoint_name_it_and_leave_the_translations_of_the_best_alone(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    best = tmp_path / "run" / "hypotheses" / "test.txt"
    best.write_text("untouched", encoding="utf-8")
    status, out, _ = mt("evaluate", "--run", "run", "--checkpoint", "last", "--json")
    assert status == 0 and json.loads(out)["checkpoint"] == "last"
    assert best.read_text(encoding="utf-8") == "untouched"
    assert len(best.with_name("test.last.txt").read_text(encoding="utf-8").splitlines()) == 40
    assert mt("evaluate", "--run", "run", "--checkpoint", "last")[1].startswith("run, checkpoint last: test (40 sent")
    assert "checkpoint" not in json.loads(mt("evaluate", "--run", "run", "--json")[1])
    assert best.read_text(encoding="utf-8") != "untouched"


def test_the_python_api_takes_lists_and_generators_of_texts_and_refuses_other_values(trained):
    translator, texts = Translator.load(trained), ["one two.", "", "three."]
    assert translator.translate(texts) == translator.translate(iter(texts)) == ["ONE TWO.", "", "THREE."]
    assert translator.score(iter(texts), iter(texts)) == translator.score(texts, texts)
    for wrong in (None, 3, "one two.", b"one two.", [None], ["one.", 3]):
        for call in (translator.translate_fully, lambda text: translator.score(text, texts)):
            with pytest.raises(InputError, match="list of sentences"):
                call(wrong)
    with pytest.raises(InputError, match="1 sources and 3 targets"):
        translator.score(["one."], texts)
    for number in (0, 1001, "2", None):
        with pytest.raises(InputError, match="num_best"):
            translator.translate_fully(["one."], number)


def test_the_number_of_threads_can_be_given(mt, trained, monkeypatch):
    numbers = []
    monkeypatch.setattr("torch.set_num_threads", numbers.append)
    for command in (("translate", "one."), ("evaluate",)):
        assert mt(*command, "--run", trained, "--threads", "3")[0] == 0
    assert numbers == [3, 3]


@pytest.mark.parametrize("option", ["--output", "--alignment"])
def test_a_full_disk_under_a_file_is_named_once(mt, trained, option):
    status, _, err = mt("translate", "one.", "--run", trained, option, "/dev/full")
    assert status == 1 and err.count("\n") == 1 and "/dev/full" in err


def test_evaluate_reports_whether_a_difference_is_significant(mt, trained, corpus, tmp_path, write):
    write("worse.txt", ["ONE"] * 40)
    own = mt("translate", "--run", trained, "--input", corpus / "test.en")[1]
    (tmp_path / "own.txt").write_text(own, encoding="utf-8")
    evaluate = ("evaluate", "--run", trained, "--num-resamples", "1000", "--against")
    metrics = ["bleu", "chrf", "chrf++", "ter", "cer", "wer"]
    title, end = ["run", "split", "num_sentences", "beam_size"], ["exact_match", "speed", "notes", "against"]
    for baseline, is_significant in (("own.txt", False), (trained, False), ("worse.txt", True)):
        status, out, _ = mt(*evaluate, baseline, "--json")
        scores = json.loads(out)
        assert status == 0 and list(scores) == [*title, *metrics, *end]
        assert list(scores["bleu"]) == ["score", "signature", "confidence_95"]
        assert list(scores["against"]) == ["system", "num_resamples", *metrics, "notes"]
        assert list(scores["against"]["bleu"]) == ["score", "p_value"]
        assert scores["against"]["system"] == str(baseline)
        assert (scores["against"]["bleu"]["p_value"] < 0.05) == is_significant
    text = mt(*evaluate, "worse.txt")[1]
    assert "(paired bootstrap, 1,000 samples)" in text and ": significant" in text and " ± " in text
    assert "40 sentences: intervals and p-values" in text and "other seeds" not in text
    shutil.copytree(trained, tmp_path / "other")
    report = report_of(trained)
    (tmp_path / "other/report.json").write_text(json.dumps(report | {"num_steps": 7}), encoding="utf-8")
    text = mt(*evaluate, "other")[1]
    assert f"note: the runs had {report['num_steps']:,} and 7 steps" in text and "nothing about other seeds" in text


def test_rows_with_a_blank_side_are_counted_and_leave_files_of_translations_aligned(
    mt, trained, corpus, write, tmp_path
):
    sources, references = ((corpus / f"test.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "xx"))
    write("other", references)
    write("kept", [line for number, line in enumerate(references) if number not in (3, 7, 8)])
    sources[3], references[7], references[8] = "", " ", "\t"
    write("src", sources)
    write("ref", references)
    run = shutil.copytree(trained, tmp_path / "runs/blank")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) | {"name": "blank"}
    config["corpus"]["test"] = [{"files": ["src", "ref"]}]
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    note = "3 of 40 pairs are left out: line 4 has no source; lines 8, 9 have no reference"
    for test_set in (("--source", "src", "--reference", "ref"), ()):
        for baseline in ("other", "kept"):
            options = ("--against", baseline, "--json", "--num-resamples", "10")
            scores = json.loads(mt("evaluate", "--run", run, *test_set, *options)[1])
            assert (scores["num_sentences"], scores["num_left_out"], scores["notes"][0]) == (37, 3, note)
            assert scores["against"]["bleu"]["score"] == 100
    status, _, err = mt("train", "--config", run / "config.yaml", "--fresh", "--set", "training.max_steps=2")
    assert status == 0 and f"\n  note: {note}\n" in err, err
    report = report_of(run)
    assert (report["num_left_out"], report["notes"][0]) == (3, note)


def test_a_run_directory_that_cannot_be_written_is_still_scored(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "hypotheses")
    (tmp_path / "run" / "hypotheses").write_text("in the way", encoding="utf-8")
    status, out, err = mt("evaluate", "--run", "run", "--json")
    assert status == 0 and json.loads(out)["bleu"]["score"] > 90
    assert "run/hypotheses" in err


def test_score_gives_the_log_probability_of_pairs(mt, trained, write):
    right, wrong = (float(mt("score", "one two.", text, "--run", trained)[1]) for text in ("ONE TWO.", "TEN."))
    assert wrong < right < 0
    write("a", ["one two.", "", "one two."])
    write("b", ["ONE TWO.", "ONE.", "TEN."])
    status, out, _ = mt("score", "--source", "a", "--target", "b", "--run", trained)
    assert status == 0 and [float(line) for line in out.splitlines()][::2] == pytest.approx([right, wrong], abs=1e-3)
    row = json.loads(mt("score", "one two.", "ONE TWO.", "--run", trained, "--json")[1])
    assert row["tokens"] == ["ONE", "TWO", "\uffed.", "[EOS]"]
    assert sum(row["token_scores"]) == pytest.approx(row["log_prob"], abs=1e-3)


def test_json_gives_sorted_hypotheses_tokens_their_scores_and_what_they_are_aligned_with(mt, trained):
    options = ("--run", trained, "--n-best", "3")
    status, out, _ = mt("translate", "seven one two.", "", *options, "--json", "--precision", "fp32")
    row, empty = map(json.loads, out.splitlines())
    assert status == 0 and empty["translation"] == ""
    scores = [hypothesis["score"] for hypothesis in row["hypotheses"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert row["translation"] == row["hypotheses"][0]["text"] == "SEVEN ONE TWO."
    assert row["source_tokens"] == ["seven", "one", "two", "\uffed."]
    assert row["tokens"] == ["SEVEN", "ONE", "TWO", "\uffed.", "[EOS]"]
    assert sum(row["token_scores"]) / (10 / 6) == pytest.approx(row["score"], abs=1e-3)
    assert [target for _, target in row["alignment"]] == [0, 1, 2, 3]
    assert {index for pair in row["word_alignment"] for index in pair} <= {0, 1, 2}
    assert len(mt("translate", "seven one two.", "", *options)[1].splitlines()) == 6


def test_alignment_is_written_to_its_file(mt, trained, tmp_path, write):
    write("in", ["one two three.", "", "four five. six. seven eight nine ten."])
    status, out, _ = mt("translate", "--run", trained, "--input", "in", "--alignment", "pairs", "--n-best", "2")
    assert status == 0 and len(out.splitlines()) == 6
    first, empty, long = (tmp_path / "pairs").read_text(encoding="utf-8").split("\n")[:3]
    assert empty == ""
    assert all(re.fullmatch(r"\d-\d", pair) for pair in first.split())
    # The long line is translated in segments, and its words are counted across them.
    sides = [{int(pair.split("-")[side]) for pair in long.split()} for side in (0, 1)]
    assert max(sides[0]) == 6 and max(sides[1]) in (5, 6) and min(sides[0] | sides[1]) == 0


@pytest.fixture
def dialogue(fork_server, trained, tmp_path):
    """A function that starts `mt translate` in a process of its own and returns its standard streams and process id."""
    files = []

    def begin(*options):
        for name in ("in", "out"):
            os.mkfifo(tmp_path / name)
        program = tmp_path / "program.py"
        program.write_text(
            "import os, sys; from mt_cli.cli import main as cli\n"
            "os.dup2(os.open('out', os.O_WRONLY), 1); os.dup2(os.open('in', os.O_RDONLY), 0)\n"
            "sys.stdin = sys.__stdin__ = open(0, closefd=False)\n"
            "sys.stdout = sys.__stdout__ = open(1, 'w', closefd=False)\n"
            f"sys.argv = {['mt', 'translate', '--run', str(trained), *options]}; cli.main()",
            encoding="utf-8",
        )
        reader = os.open(tmp_path / "out", os.O_RDONLY | os.O_NONBLOCK)  # Does not wait for the writer.
        files.append(open(reader, encoding="utf-8"))  # noqa: SIM115
        [process] = fork_server.start(tmp_path, program=str(program))
        files.append((tmp_path / "in").open("w", encoding="utf-8"))  # Waits until the process has both.
        os.set_blocking(reader, True)
        return files[1], files[0], process

    yield begin
    for file in files:
        file.close()


def test_the_first_line_is_out_before_the_last_is_read(dialogue, fork_server, tmp_path):
    stdin, stdout, _ = dialogue()
    print("one.\n" * 100, end="", file=stdin, flush=True)
    assert [stdout.readline() for _ in range(32)] == ["ONE.\n"] * 32
    print("two.", file=stdin)
    stdin.close()
    assert stdout.read() == "ONE.\n" * 68 + "TWO.\n"
    assert fork_server.wait() == [0]
    assert (tmp_path / "stream.2").read_text(encoding="utf-8") == ""


def test_interactive_answers_each_line_before_the_next_and_sigterm_ends_it(dialogue, fork_server, tmp_path):
    stdin, stdout, process = dialogue("--interactive")
    for word in ("one", "two"):
        print(f"{word}.", file=stdin, flush=True)
        assert stdout.readline() == f"{word.upper()}.\n"
    os.kill(process, signal.SIGTERM)
    assert fork_server.wait() == [130]
    assert "Traceback" not in (tmp_path / "stream.2").read_text(encoding="utf-8")


def test_a_line_of_many_sentences_is_translated_sentence_by_sentence(mt, trained):
    line = "One two. Three four? Five six."
    status, out, err = mt("translate", line.lower().replace("three", "Three"), "--run", trained, "--split-sentences")
    assert status == 0 and "Three, ?" in err and out.startswith("ONE TWO. ")


def test_a_line_longer_than_any_in_training_is_translated_in_segments(trained):
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
    samples = [translation(*hot, "--seed", str(seed)) for seed in (1, 1, 2, 3)]
    assert samples[0] == samples[1] and len(set(samples)) > 1
    assert translation("--sample", "--set", "decoding.top_k=1") == "ONE TWO THREE.\n"
    assert len(translation(*hot, "--n-best", "3").splitlines()) == 3
    assert translation("--prefix", "ONE Xerxes").startswith("ONE Xerxes")
    tokens = translation("--set", "decoding.max_length=2", "--set", "decoding.min_length=2").replace(".", " .").split()
    assert len(tokens) == 2


def test_compressed_input_is_read_by_its_name(mt, trained, corpus, tmp_path):
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress((corpus / "test.en").read_bytes()))
    texts = [mt("translate", "--run", trained, "--input", path)[1] for path in (corpus / "test.en", "in.txt.gz")]
    assert texts[0] == texts[1] != ""


def test_an_output_is_not_touched_before_there_is_something_to_write(mt, trained, tmp_path, write):
    write("old", ["kept"])
    write("in", ["one."])
    (tmp_path / "link").hardlink_to(tmp_path / "in")
    (tmp_path / "to_new").symlink_to("new")
    for line, words in (
        ("--input in --output in", "--input and --output are one file"),
        ("--input in --alignment ./in", "--input and --alignment are one file"),
        ("--input in --output link", "--input and --output are one file"),
        ("--input in --output new --alignment to_new", "--output and --alignment are one file"),
        (f"one. --output new --attention {tmp_path}/new", "--output and --attention are one file"),
        ("--input nothing --output old", "nothing: no such file"),
        ("--input in --output old --alignment no/a", "there is no folder no"),
        ("--input in --output .", "is a folder"),
    ):
        status, _, err = mt("translate", "--run", trained, *line.split())
        assert status == 2 and words in err, line
    texts = [(tmp_path / name).read_text(encoding="utf-8") for name in ("old", "in")]
    assert texts == ["kept\n", "one.\n"] and not (tmp_path / "new").exists()
    write("empty", [])
    assert mt("translate", "--run", trained, "--input", "empty", "--output", "old")[0] == 0
    assert (tmp_path / "old").read_text(encoding="utf-8") == ""


def test_words_that_are_not_in_the_vocabulary_are_named(mt, trained, write):
    _, _, err = mt("translate", "one zebrafish quixotic zebrafish two.", "--run", trained)
    assert err == "mt: not in the vocabulary: zebrafish, quixotic\n"
    write("in", ["one zebra."] * 40)
    _, out, err = mt("translate", "--input", "in", "--run", trained)
    assert err.count("zebra") == 5 and "40 lines had words" in err and out.count("\n") == 40


def test_without_a_test_set_the_validation_pairs_are_scored(mt, trained, tmp_path):
    config = shutil.copytree(trained, tmp_path / "run") / "config.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["corpus"]["test"] = None
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert json.loads(mt("evaluate", "--run", "run", "--json")[1])["split"] == "valid"


def test_the_version_is_printed(mt):
    status, out, _ = mt("--version")
    assert status == 0 and re.fullmatch(r"mt \d+\.\d+\.\d+(\.dev\d+)?\n", out)


def test_commands_that_use_one_process_refuse_a_launcher_of_several(mt, trained, monkeypatch):
    for name, value in {"WORLD_SIZE": "2", "RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    assert mt("tokenize", "--run", trained, "one")[0] == 0  # Not the variables of a launcher.
    monkeypatch.setenv("LOCAL_RANK", "0")
    status, out, err = mt("evaluate", "--run", trained)
    assert (status, out) == (2, "") and "`mt evaluate`" in err
    monkeypatch.setenv("RANK", "1")
    assert mt("evaluate", "--run", trained) == (2, "", "")


def test_too_little_memory_is_one_line(mt, trained, monkeypatch):
    def lacking(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with monkeypatch.context() as patched:
        patched.setattr("mt_cli.decoding.engine.start_search", lacking)
        status, out, err = mt("translate", "--run", trained, "one two")
    assert (status, out) == (1, "") and err.splitlines()[-1].startswith("mt: one sentence does not fit in the memory")
    monkeypatch.setattr("mt_cli.checkpoint.trained.TrainedRun.load", lacking)
    status, _, err = mt("translate", "--run", trained, "one two")
    assert (status, err.splitlines()[-1]) == (1, "mt: CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_translations_of_a_test_set_do_not_replace_it(mt, trained, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "hypotheses/files.txt").write_text("one two.\n")
    (tmp_path / "in.xx").write_text("ONE TWO.\n")
    status, _, err = mt("evaluate", "--run", run, "--source", run / "hypotheses/files.txt", "--reference", "in.xx")
    assert status == 2 and "--source and the new translations are one file" in err
    assert (run / "hypotheses/files.txt").read_text() == "one two.\n"


def test_a_baseline_is_not_replaced_by_the_translations_that_it_is_compared_with(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    for side, text in (("en", "one two.\nthree four.\n"), ("xx", "ONE TWO.\nTHREE FOUR.\n")):
        (tmp_path / f"in.{side}").write_text(text)
    baseline = tmp_path / "run/hypotheses/files.txt"
    baseline.write_text("A.\nB.\n")
    options = ("--run", "run", "--source", "in.en", "--reference", "in.xx", "--num-resamples", "2")
    status, _, err = mt("evaluate", *options, "--against", baseline)
    assert status == 0 and "is the baseline" in err and baseline.read_text() == "A.\nB.\n"
    assert mt("evaluate", *options)[0] == 0 and baseline.read_text() != "A.\nB.\n"
