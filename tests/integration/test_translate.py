import gzip
import io
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest
import yaml
from run_content import report_of

from mt_cli.errors import InputError
from mt_cli.evaluation.learning import Learning
from mt_cli.runtime.files import json_text


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


@pytest.fixture(scope="session")
def translator(trained):
    from mt_cli.translation.translator import Translator

    return Translator.load(trained, "cpu", "fp32")


def test_the_newest_run_translates_and_is_named(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "moved")
    status, out, err = mt("translate", "one two.", "three.")
    assert (status, out) == (0, "ONE TWO.\nTHREE.\n") and "runs/moved" in err
    assert mt("translate", "three.", "--run", trained) == (0, "THREE.\n", "")


def test_one_line_in_is_one_line_out(mt, trained, tmp_path, standard_input):
    lines = ["one two.", "", "   ", "three.\u2028four.\x0cfive.\x85six", "one\ttwo.", "three.\r"]
    data = "\n".join(lines).encode()
    (tmp_path / "in.txt").write_bytes(data)
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(data))
    standard_input(data)
    from_pipe = mt("translate", "--run", trained)[1]
    from_file = mt("translate", "--run", trained, "--input", "in.txt")[1]
    assert mt("translate", "--run", trained, "--input", "in.txt.gz", "--output", "out.txt")[:2] == (0, "")
    assert from_pipe == from_file == (tmp_path / "out.txt").read_text(encoding="utf-8")
    out = from_pipe.split("\n")
    assert len(out) == len(lines) + 1
    assert out[:3] == ["ONE TWO.", "", ""] and out[-2:] == ["THREE.", ""]


def test_a_document_is_read_as_lines_only_on_request(mt, trained, write, standard_input):
    write("in.tsv", ["one two.\tONE TWO."])
    write("in.txt", ["one two."])
    for command in (("translate", "--input", "in.tsv"), ("evaluate", "--source", "in.txt", "--reference", "in.tsv")):
        status, out, err = mt(*command, "--run", trained)
        assert (status, out) == (2, "") and "in.tsv" in err and "--as-lines" in err
        assert mt(*command, "--run", trained, "--as-lines")[0] == 0
    for options, expected in (((), 2), (("--as-lines",), 0)):
        standard_input(b"WEBVTT\n\n00:01.000 --> 00:02.000\none two.\n")
        assert mt("translate", "--run", trained, *options)[0] == expected


def test_segments_and_unknown_words_are_noted_once_a_file(mt, trained, write):
    write("in", ["one zebra.", "one two three one two three one two."] * 20)
    status, out, err = mt("translate", "--input", "in", "--run", trained)
    assert status == 0 and out.count("\n") == 40
    assert err.count("lines 2 in 2 segments, 4 ") == 1 and 0 < err.count("zebra") < 20


def test_unknown_words_are_named_with_their_lines(mt, trained, write):
    write("a.en", ["one two.", "one zebra."])
    status, _, err = mt("translate", "--input", "a.en", "--run", trained)
    assert status == 0 and "line 2: not in the vocabulary: zebra" in err


def test_a_missing_best_checkpoint_is_noted_once(mt, trained, tmp_path, write):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run/checkpoints/best.safetensors").unlink()
    write("in", ["one two."])
    for command in (("translate", "one."), ("evaluate", "--source", "in", "--reference", "in")):
        status, _, err = mt(*command, "--run", "run")
        assert status == 0 and err.count("best.safetensors is missing") == 1
    assert "is missing" not in mt("translate", "one.", "--run", "run", "--checkpoint", "last")[2]


def test_a_run_that_has_learned_little_says_so_once(mt, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "little")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    for shuffled_chrf, number in ((20.0, 1), (2.0, 0)):
        learning = Learning(chrf=21.0, shuffled_chrf=shuffled_chrf, repeated_share=0.0)
        report["learning"] = learning.model_dump(mode="json", exclude_unset=True)
        (run / "report.json").write_text(json_text(report), encoding="utf-8")
        assert mt("translate", "--run", run, "one two.", "three.")[2].count("learned little") == number
    (tmp_path / "terms.csv").write_text("one,uno\n", encoding="utf-8")
    status, out, err = mt("translate", "--run", run, "--terms", "terms.csv", "one two.")
    assert (status, out, err.count("\n")) == (2, "", 1) and "has not learned to use them" in err


def test_tokenize_shows_pieces_and_ids_or_a_report(mt, trained, tiny_config, tmp_path):
    assert mt("tokenize", "one two.", "--run", trained)[:2] == (0, "one two ￭.\n")
    assert mt("tokenize", "ONE.", "--run", trained, "--side", "target")[1] == "ONE ￭.\n"
    ids = mt("tokenize", "one two.", "--run", trained, "--ids")[1].split()
    assert len(ids) == 3 and all(int(index) > 3 for index in ids)
    status, out, _ = mt("tokenize", "--config", tiny_config)
    assert status == 0 and "vocabulary" in out and "0.00%" in out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".cache"]


def test_a_checkpoint_can_be_named(mt, trained, tmp_path):
    """All files but the named one cannot be read."""
    (step,) = (path.stem for path in (trained / "checkpoints").glob("step-*"))
    pair, names = ("one two.", "ONE TWO."), ("best", "last", step)
    for name in names:
        run = shutil.copytree(trained, tmp_path / name)
        for other in {*names} - {name}:
            (run / f"checkpoints/{other}.safetensors").write_bytes(b"damaged")
        options = ("--run", run, "--checkpoint", name)
        expected = mt("score", *pair, "--run", trained, "--checkpoint", name)
        assert expected[0] == 0 and mt("score", *pair, *options) == expected
        for command in (("translate", pair[0]), ("inspect", pair[0], "--output", "pictures")):
            assert mt(*command, *options)[1].startswith("ONE TWO.\n")
    for command in (("translate", "one."), ("score", *pair), ("evaluate",), ("inspect",)):
        status, out, err = mt(*command, "--run", trained, "--checkpoint", "../last")
        assert (status, out) == (2, "") and "../last" in err and f"best, last, {step}" in err


def test_scores_of_a_named_checkpoint_replace_no_translations(mt, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    best = run / "hypotheses" / "test.txt"
    best.write_text("untouched", encoding="utf-8")
    status, out, _ = mt("evaluate", "--run", "run", "--checkpoint", "last", "--json")
    assert status == 0 and json.loads(out)["checkpoint"] == "last"
    assert best.read_text(encoding="utf-8") == "untouched"
    assert len(best.with_name("test.last.txt").read_text(encoding="utf-8").splitlines()) == 40


def test_evaluate_scores_splits_and_files(mt, trained, corpus):
    status, out, _ = mt("evaluate", "--run", trained, "--json")
    scores, report = json.loads(out), report_of(trained)
    assert status == 0 and (scores["run"], scores["split"], scores["num_sentences"]) == ("tiny", "test", 40)
    assert all(report[key] == scores[key] for key in ("bleu", "chrf", "chrf++", "ter", "num_sentences"))
    files = ["--source", corpus / "test.en", "--reference", corpus / "test.xx", "--as-lines"]
    assert json.loads(mt("evaluate", "--run", trained, "--json", *files)[1])["bleu"] == scores["bleu"]


def test_without_a_test_set_the_validation_pairs_are_scored(mt, trained, tmp_path):
    config = shutil.copytree(trained, tmp_path / "run") / "config.yaml"
    tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    tree["corpus"]["test"] = None
    config.write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert json.loads(mt("evaluate", "--run", "run", "--json")[1])["split"] == "valid"


def test_evaluate_reports_whether_a_difference_is_significant(mt, trained, corpus, tmp_path, write):
    write("worse.txt", ["ONE"] * 40)
    own = mt("translate", "--run", trained, "--input", corpus / "test.en")[1]
    (tmp_path / "own.txt").write_text(own, encoding="utf-8")
    evaluate = ("evaluate", "--run", trained, "--against")
    for baseline, is_significant in (("own.txt", False), (trained, False), ("worse.txt", True)):
        status, out, _ = mt(*evaluate, baseline, "--json")
        scores = json.loads(out)
        assert status == 0 and scores["against"]["system"] == str(baseline)
        assert list(scores["bleu"]) == ["score", "signature", "confidence_95"]
        for metric in ("bleu", "chrf", "chrf++", "ter", "cer", "wer"):
            assert (scores["against"][metric]["p_value"] < 0.05) == is_significant, metric
    assert ": significant" in mt(*evaluate, "worse.txt")[1]


def test_rows_with_a_blank_side_are_left_out_and_counted(mt, trained, corpus, write, tmp_path):
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
    for test_set, baseline in (((), "other"), (("--source", "src", "--reference", "ref"), "kept")):
        options = ("--against", baseline, "--json")
        scores = json.loads(mt("evaluate", "--run", run, *test_set, *options)[1])
        assert (scores["num_sentences"], scores["num_left_out"], scores["notes"][0]) == (37, 3, note)
        assert scores["against"]["bleu"]["score"] == 100


def test_no_evaluation_replaces_its_baseline(mt, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    for side, text in (("en", "one two.\nthree four.\n"), ("it", "ONE TWO.\nTHREE FOUR.\n")):
        (tmp_path / f"in.{side}").write_text(text)
    hypotheses = run / "hypotheses/files.txt"
    hypotheses.write_text("A.\nB.\n")
    options = ("--run", "run", "--source", "in.en", "--reference", "in.it")
    status, _, err = mt("evaluate", *options, "--against", hypotheses)
    assert status == 0 and "is the baseline" in err and hypotheses.read_text() == "A.\nB.\n"
    assert mt("evaluate", *options)[0] == 0 and hypotheses.read_text() == "ONE TWO.\nTHREE FOUR.\n"


def test_the_python_api_takes_lists_and_generators_of_texts(translator):
    texts = ["one two.", "", "three."]
    assert translator.translate(texts) == translator.translate(iter(texts)) == ["ONE TWO.", "", "THREE."]
    assert translator.score(iter(texts), iter(texts)) == translator.score(texts, texts)
    for call in (translator.translate_fully, lambda text: translator.score(text, texts)):
        with pytest.raises(InputError, match="list of sentences"):
            call("one two.")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no full device")
def test_a_full_disk_under_a_file_is_named_once(mt, trained):
    status, _, err = mt("translate", "one.", "--run", trained, "--output", "/dev/full")
    assert status == 1 and err.count("\n") == 1 and "/dev/full" in err


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


def test_json_gives_sorted_hypotheses_their_tokens_and_alignments(mt, trained):
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
    assert empty == "" and all(re.fullmatch(r"\d-\d", pair) for pair in first.split())
    # The long line is translated in segments, and its words are counted across them.
    last = [max(int(pair.split("-")[side]) for pair in long.split()) for side in (0, 1)]
    assert 3 <= last[0] <= 6 and 3 <= last[1] < len(out.splitlines()[4].split())


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


@pytest.mark.slow
def test_the_first_line_is_out_before_the_last_is_read(dialogue, fork_server):
    stdin, stdout, _ = dialogue()
    print("one.\n" * 100, end="", file=stdin, flush=True)
    assert [stdout.readline() for _ in range(32)] == ["ONE.\n"] * 32
    print("two.", file=stdin)
    stdin.close()
    assert stdout.read() == "ONE.\n" * 68 + "TWO.\n"
    assert fork_server.wait() == [0]


def test_interactive_answers_each_line_before_the_next(dialogue, fork_server, tmp_path):
    stdin, stdout, process = dialogue("--interactive")
    for word in ("one", "two"):
        print(f"{word}.", file=stdin, flush=True)
        assert stdout.readline() == f"{word.upper()}.\n"
    os.kill(process, signal.SIGINT)
    assert fork_server.wait() == [130]
    assert "Traceback" not in (tmp_path / "stream.2").read_text(encoding="utf-8")


def test_a_long_line_is_translated_in_sentences_or_segments(mt, trained, translator):
    status, out, err = mt("translate", "one two. Three four? five six.", "--run", trained, "--split-sentences")
    assert status == 0 and err.endswith(": Three\n") and out.startswith("ONE TWO. ")
    assert translator.max_tokens == 6
    (item,) = translator.translate_fully(["one two three four, five six seven eight."])
    assert len(item.segments) == 2 and item.is_too_long and item.text.startswith("ONE TWO")


def test_sampling_a_prefix_and_lengths_are_options(mt, trained):
    def translation(*options):
        status, out, _ = mt("translate", "one two three.", "--run", trained, *options)
        assert status == 0
        return out

    hot = ("--sample", "--set", "decoding.temperature=5.0")
    assert translation(*hot, "--seed", "1") == translation(*hot, "--seed", "1")
    assert translation("--sample", "--set", "decoding.top_p=1e-9") == "ONE TWO THREE.\n"
    assert len(translation(*hot, "--n-best", "3").splitlines()) == 3
    assert translation("--prefix", "ONE Xerxes").startswith("ONE Xerxes")
    assert len(translation(*hot, "--set", "decoding.max_length_ratio=1e-9", "--seed", "5").split()) <= 10


def test_no_output_is_touched_before_there_is_something_to_write(mt, trained, tmp_path, write):
    write("old", ["kept"])
    write("in", ["one."])
    (tmp_path / "link").hardlink_to(tmp_path / "in")
    (tmp_path / "to_new").symlink_to("new")
    for line, words in (
        ("--input in --alignment ./in", "--input and --alignment are one file"),
        ("--input in --output link", "--input and --output are one file"),
        ("--input old --terms in --output link", "--terms and an output are one file"),
        ("--input in --output new --alignment to_new", "--output and --alignment are one file"),
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


def test_too_little_memory_is_one_line(mt, trained, monkeypatch):
    import torch

    def lacking(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("mt_cli.checkpoint.trained.TrainedRun.load", lacking)
    status, out, err = mt("translate", "--run", trained, "one two")
    assert (status, out) == (1, "") and "memory" in err.splitlines()[-1]


@pytest.fixture
def stop_after(monkeypatch):
    """Makes blocks of two lines, and an error after the number of recorded blocks that is given."""
    from mt_cli.cli import translated_lines
    from mt_cli.translation import stream

    monkeypatch.setattr(stream, "_FIRST_BLOCK", 2)
    monkeypatch.setattr(translated_lines, "LARGEST_BLOCK", 2)
    append_row = translated_lines.append_row

    def stop(number, error):
        calls = iter(range(number))

        def append_or_fail(*row):
            if next(calls, None) is None and error is not None:
                raise error
            append_row(*row)

        monkeypatch.setattr(translated_lines, "append_row", append_or_fail)

    return stop


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device", "out.unfinished")])
@pytest.mark.parametrize("options", [(), ("--json", "--n-best", "2", "--alignment", "pairs")])
def test_a_stopped_translation_continues_and_equals_an_unstopped_one(mt, trained, stop_after, write, error, options):
    lines = ["one zebra.", "", "two one.", "three.", "zebra four.", "five two.", "six."]
    write("in", lines)
    command = ("translate", "--run", trained, "--input", "in", *options, "--output")
    names = ["out", "pairs"][: 1 + ("pairs" in options)]
    notes = [line for line in mt(*command, "out")[2].splitlines() if "note:" in line]
    expected = [Path(name).read_bytes() for name in names]
    stop_after(2, error)
    status, _, err = mt(*command, "out")
    assert status == (130 if isinstance(error, KeyboardInterrupt) else 1) and "4 lines are done" in err
    stop_after(0, None)
    for name in names:
        with Path(name).open("ab") as file:
            file.write(b"half a li")
    with Path("out.unfinished").open("ab") as record:
        record.write(b'["3f')
    status, _, err = mt(*command, "out")
    assert status == 0 and "continues after 4 lines" in err
    assert [Path(name).read_bytes() for name in names] == expected
    assert [line for line in err.splitlines() if "note:" in line] == notes and not Path("out.unfinished").exists()


def test_a_translation_continues_only_where_nothing_has_changed(mt, trained, stop_after, write):
    lines = ["one.", "two.", "three.", "four.", "five.", "six.", "seven."]

    def expected(*options):
        mt(*command, "expected", *options)
        return Path("expected").read_bytes()

    command = ("translate", "--run", trained, "--input", "in", "--output")
    for num_kept, changed, options in (
        (4, [*lines[:5], "ten.", "six.", "seven."], ()),
        (2, [*lines[:3], "ten.", *lines[4:]], ()),
        (0, lines, ("--beam-size", "1")),
        (0, ["ten.", *lines], ()),
        (0, lines, ("--json", "--alignment", "pairs")),
    ):
        write("in", lines)
        stop_after(3, KeyboardInterrupt())
        assert mt(*command, "out", *options[: "--json" in options])[0] == 130
        stop_after(0, None)
        write("in", changed)
        status, _, err = mt(*command, "out", *options)
        assert status == 0 and (f"continues after {num_kept} lines" if num_kept else "begins anew") in err
        assert Path("out").read_bytes() == expected(*options)
