"""Standard streams that are full, unread, closed or in another encoding; interruptions; what arguments may be."""

import os
import shutil
import sys

import pytest
import yaml

from mt_cli.cli.streams import check_output, show
from mt_cli.errors import InputError

COMMANDS = {
    "train": "train --config tiny.yaml --fresh --set training.max_steps=2",
    "translate": "translate one.two. --run RUN",
    "data check": "data check --config tiny.yaml --write-clean clean",
}
STATES = {
    ("there", "there", "full"): False,
    ("there", "there", "left"): False,
    ("there", "left", "there"): False,
    ("there", "full", "there"): True,
}
"""States of the standard streams, and whether results are lost."""


@pytest.mark.parametrize(
    "name", ["translate", *(pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS if name != "translate")]
)
def test_a_full_or_unread_stream_affects_its_own_output(forked, trained, quick_tree, tiny_config, tmp_path, name):
    words = [str(trained) if word == "RUN" else word for word in COMMANDS[name].split()]

    def run_with(*streams):
        shutil.rmtree(tmp_path / "clean", ignore_errors=True)
        status, out, err = forked(*words, streams=streams)
        assert "Traceback" not in err and "Exception ignored" not in err, err
        return status, (out.count("\n"), out.partition("\n")[0]), err  # The first line does not depend on the time.

    _, expected, _ = run_with("there", "there", "there")
    has_results = name != "train"
    assert bool(expected[1]) == has_results
    for streams, is_lost in STATES.items():
        status, lines, err = run_with(*streams)
        assert status == (is_lost and has_results), streams
        assert err.count(": no space left on device\n") == status, streams
        assert streams[1] != "there" or lines == expected, streams
        assert name != "data check" or is_lost or (tmp_path / "clean/tiny.yaml").stat().st_size, (
            "a command finishes its work"
        )


def test_no_line_is_not_an_empty_line(capsys):
    show()
    assert capsys.readouterr().out == ""


def test_results_and_notices_are_utf8_in_any_locale(forked, tiny_tree, tmp_path):
    lines = [f"perché {number}\tなぜ {number}\n" for number in range(20)]
    (tmp_path / "perché.tsv").write_text("".join(lines), encoding="utf-8")
    tiny_tree["corpus"] |= {"source": "it", "target": "ja", "train": {"file": "perché.tsv"}, "test": None}
    tiny_tree["tokenizer"] = {"algorithm": "char"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    status, out, _ = forked("data", "show", "--config", "c.yaml", "-n", "1", encoding="ascii")
    assert status == 0 and "perché" in out and "なぜ" in out
    status, _, err = forked("data", "show", "--config", "perché", encoding="ascii")
    assert status == 2 and err.startswith("mt: perché: ")


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("translate X", "sentences"),
        ("translate a --to X", "--to"),
        ("translate a --run X", "--run"),
        ("train --config c.yaml --set name=X", "--set"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused(mt, trained, arguments, name):
    words = arguments.replace("X", "caf\udce9").split()
    is_complete = "--run" in words or words[0] == "train"
    status, out, err = mt(*words, *(() if is_complete else ("--run", trained)))
    assert (status, out) == (2, "")
    assert err.startswith(f"mt: {name}: ") and "0xE9" in err


@pytest.mark.parametrize("command", ["translate", "tokenize", "inspect", "score"])
def test_a_file_in_the_place_of_a_sentence_is_refused(mt, trained, tmp_path, command):
    (tmp_path / "text.txt").write_text("one.\n", encoding="utf-8")
    status, out, err = mt(command, *["text.txt"] * (1 + (command == "score")), "--run", trained)
    assert (status, out) == (2, "") and err.startswith("mt: text.txt: ")
    assert mt("tokenize", "text.txt one.", "--run", trained)[0] == 0


def test_pipes_can_replace_files_of_sentences(mt, trained):
    def piped(text):
        reader, writer = os.pipe()
        os.write(writer, text.encode("utf-8"))
        os.close(writer)
        return f"/dev/fd/{reader}"

    sides = "one.\ntwo.\n", "ONE.\nTWO.\n"
    run = ("--run", trained)
    assert mt("translate", "--input", piped(sides[0]), *run)[:2] == (0, sides[1])
    assert mt("score", "--source", piped(sides[0]), "--target", piped(sides[1]), *run)[1].count("\n") == 2
    status, out, _ = mt("evaluate", "--source", piped(sides[0]), "--reference", piped(sides[1]), "--json", *run)
    assert status == 0 and '"num_sentences": 2' in out


def test_an_interruption_at_the_start_leaves_no_traceback(run, tmp_path, root):
    interrupt = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "typer.py").write_text(interrupt, encoding="utf-8")  # What is imported first.
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    result = run([sys.executable, "-m", "mt_cli", "--version"], env=env, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("", "")
    assert result.returncode == 130


def test_an_output_that_cannot_be_is_refused_before_the_work(tmp_path):
    for name in ("a.gz", "b.txt.zst"):
        with pytest.raises(InputError, match="not compressed"):
            check_output(tmp_path / name)
