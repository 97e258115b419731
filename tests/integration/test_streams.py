"""Standard streams that are full, unread, closed or in another encoding; interruptions; what arguments may be."""

import errno
import os
import shutil
import signal
import sys

import pytest
import yaml

from mt_cli.cli.streams import Output, prompted_lines
from mt_cli.errors import InputError

COMMANDS = {
    "help": "--help",
    "train": "train --config tiny.yaml --fresh --set training.max_steps=2",
    "translate": "translate one.two. --run RUN",
    "evaluate": "evaluate --source in.en --reference in.xx --run RUN",
    "data check": "data check --config tiny.yaml --write-clean clean.tsv",
    "report": "report --run RUN --output page.html",
    "export": "export --run RUN --output exported --format bundle",
    "doctor": "doctor",
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
    for side, text in (("en", "one.\ntwo.\n"), ("xx", "ONE.\nTWO.\n")):
        (tmp_path / f"in.{side}").write_text(text, encoding="utf-8")
    words = [str(trained) if word == "RUN" else word for word in COMMANDS[name].split()]

    def run_with(*streams):
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        (tmp_path / "clean.tsv").unlink(missing_ok=True)
        status, out, err = forked(*words, streams=streams)
        assert "Traceback" not in err and "Exception ignored" not in err, err
        return status, (out.count("\n"), out.partition("\n")[0]), err  # The first line does not depend on the time.

    _, expected, _ = run_with("there", "there", "there")
    has_results = name not in ("train", "export")
    assert bool(expected[1]) == has_results
    for streams, is_lost in STATES.items():
        status, lines, err = run_with(*streams)
        assert status == (is_lost and has_results), streams
        assert err.count(": no space left on device\n") == status, streams
        assert streams[1] != "there" or lines == expected, streams
        assert name != "data check" or is_lost or (tmp_path / "clean.tsv").stat().st_size, "a command finishes its work"


def test_a_connection_that_breaks_inside_a_command_is_no_success(monkeypatch, mt):
    def examine(folder):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("mt_cli.features.doctor.findings.examine", examine)
    with pytest.raises(BrokenPipeError):
        mt("doctor")


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("utf-16", marks=pytest.mark.slow)])
def test_results_and_notices_are_utf8_in_any_locale(forked, tiny_tree, encoding, tmp_path):
    lines = [f"perché {number}\tなぜ {number}\n" for number in range(20)]
    (tmp_path / "perché.tsv").write_text("".join(lines), encoding="utf-8")
    tiny_tree["corpus"] |= {"source": "it", "target": "ja", "train": {"file": "perché.tsv"}, "test": None}
    tiny_tree["tokenizer"] = {"algorithm": "char"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    status, out, _ = forked("data", "show", "--config", "c.yaml", "-n", "1", encoding=encoding)
    assert status == 0 and "perché" in out and "なぜ" in out
    status, _, err = forked("data", "show", "--config", "perché", encoding=encoding)
    assert status == 2 and err.startswith("mt: perché: ")


@pytest.mark.slow
def test_arguments_are_utf8_in_a_locale_that_is_not(run, root, trained):
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    env["PYTHONPATH"] = str(root)  # An editable installation does not find a folder whose name is not ASCII there.
    command = [sys.executable, "-m", "mt_cli", "tokenize", "--run", str(trained), "perché.", "--side"]
    result = run([*command, "source"], env=env, capture_output=True)
    if sys.prefix.isascii():
        assert (result.stdout.decode("utf-8"), result.stderr) == ("[UNK] ￭.\n", b"")
    else:  # PyTorch cannot be imported from such a folder there.
        assert result.returncode == 2 and b"use UTF-8 (PYTHONUTF8=1)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("translate X", "sentences"),
        ("translate a --tag X", "--tag"),
        ("translate a --set decoding.unk=X", "--set"),
        ("inspect X", "sentence"),
        ("translate a --run X", "--run"),
        ("train --config c.yaml --set name=X", "--set"),
        ("evaluate --against X", "--against"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused(mt, trained, arguments, name):
    words = arguments.replace("X", "caf\udce9").split()
    is_complete = "--run" in words or words[0] == "train"
    status, out, err = mt(*words, *(() if is_complete else ("--run", trained)))
    assert (status, out) == (2, "")
    assert err.startswith(f"mt: {name}: ") and "0xE9" in err


def test_files_whose_names_are_not_utf8_are_read_and_written(mt, trained, tmp_path):
    names = [f"{option}-caf\udce9" for option in ("--input", "--output", "--alignment")]
    (tmp_path / names[0]).write_text("one.\n", encoding="utf-8")
    options = [word for name in names for word in (name.partition("-caf")[0], name)]
    status, _, err = mt("translate", "--run", trained, *options)
    assert status == 0 and all((tmp_path / name).stat().st_size for name in names), err


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


@pytest.mark.parametrize("moment", ["start", pytest.param("end", marks=pytest.mark.slow)])
def test_an_interruption_at_any_moment_leaves_no_traceback(run, tmp_path, root, moment):
    interrupt = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    if moment == "start":
        (tmp_path / "typer.py").write_text(interrupt, encoding="utf-8")  # What is imported first.
    else:
        code = f"import atexit\n@atexit.register\ndef interrupt():\n    {interrupt.replace(chr(10), '; ')}\n"
        (tmp_path / "sitecustomize.py").write_text(code, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    result = run([sys.executable, "-m", "mt_cli", "--version"], env=env, capture_output=True, text=True)
    assert result.stderr == ""
    assert result.returncode == -signal.SIGINT  # For a shell, 130.
    assert bool(result.stdout) == (moment == "end")


def test_a_typed_line_that_is_not_utf8_is_refused(monkeypatch, capsys):
    typed = iter(["one.", "caf\udce9", "two.", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert list(prompted_lines()) == ["one.", "two."]
    assert "0xE9" in capsys.readouterr().err


def test_an_output_that_cannot_be_is_refused_before_the_work(monkeypatch, tmp_path):
    for name in ("a.gz", "b.txt.zst"):
        with pytest.raises(InputError, match="not compressed"):
            Output(tmp_path / name)
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output is closed"):
        Output(None)
    with Output(tmp_path / "out") as output:
        output.write("one")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "one\n"
