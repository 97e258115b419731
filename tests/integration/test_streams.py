import errno
import os
import shutil
import signal
import subprocess
import sys

import pytest
import yaml

from mt_cli.cli.streams import Output, prompted_lines
from mt_cli.errors import InputError

COMMANDS = {
    "help": "--help",
    "train": "train --config tiny.yaml --fresh --set training.max_steps=2",
    "translate": "translate one.two. --run RUN",
    "tokenize": "tokenize one.two. --run RUN",
    "score": "score one. ONE. --run RUN",
    "evaluate": "evaluate --source in.en --reference in.xx --run RUN",
    "data check": "data check --config tiny.yaml",
    "report": "report --run RUN --output page.html",
    "export": "export --run RUN --output exported --format bundle",
    "doctor": "doctor",
}
WITHOUT_RESULTS = ("train", "export")
STATES = {
    ("there", "there", "full"): False,
    ("there", "there", "left"): False,
    ("there", "left", "there"): False,
    ("there", "full", "there"): True,
}
"""States of the standard streams, and whether results are lost."""


@pytest.mark.parametrize(
    ("name", "states"),
    [
        *((name, [("there", "full", "there")]) for name in COMMANDS if name not in ("translate", "train", "export")),
        *((name, STATES) for name in ("translate", "train")),
        *(pytest.param(name, STATES, marks=pytest.mark.slow) for name in COMMANDS),
    ],
)
def test_a_stream_that_is_full_or_unread_affects_only_its_own_output(
    forked, trained, quick_tree, tiny_config, tmp_path, name, states
):
    for side, text in (("en", "one.\ntwo.\n"), ("xx", "ONE.\nTWO.\n")):
        (tmp_path / f"in.{side}").write_text(text, encoding="utf-8")
    words = [str(trained) if word == "RUN" else word for word in COMMANDS[name].split()]

    def run_with(*streams):
        shutil.rmtree(tmp_path / "exported", ignore_errors=True)
        status, out, err = forked(*words, streams=streams)
        assert "Traceback" not in err and "Exception ignored" not in err, err
        return status, (out.count("\n"), out.partition("\n")[0]), err  # The first line does not depend on the time.

    _, expected, _ = run_with("there", "there", "there")
    has_results = name not in WITHOUT_RESULTS
    assert bool(expected[1]) == has_results
    for streams in states:
        status, lines, err = run_with(*streams)
        is_lost = STATES[streams] and has_results
        assert status == is_lost, streams
        assert err.count(": no space left on device\n") == is_lost, streams
        assert streams[1] != "there" or lines == expected, streams


def test_a_connection_that_breaks_inside_a_command_is_no_success(monkeypatch, mt):
    def examine(folder):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("mt_cli.features.doctor.findings.examine", examine)
    with pytest.raises(BrokenPipeError):
        mt("doctor")


def test_a_command_finishes_its_work_if_its_results_are_not_read(forked, tiny_config):
    check = ("data", "check", "--config", tiny_config)
    assert forked(*check, "--write-clean", "clean.tsv", streams=("there", "left", "there"))[0] == 0
    assert os.path.getsize("clean.tsv")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-16"])
def test_results_and_notices_are_utf8_whatever_the_encoding_of_the_streams_is(forked, tiny_tree, encoding, tmp_path):
    lines = [f"perché {number}\tなぜ {number}\n" for number in range(20)]
    (tmp_path / "perché.tsv").write_text("".join(lines), encoding="utf-8")
    tiny_tree["corpus"] |= {"source": "it", "target": "ja", "train": {"file": "perché.tsv"}, "test": None}
    tiny_tree["tokenizer"] = {"algorithm": "char"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    status, out, _ = forked("data", "show", "--config", "c.yaml", "-n", "1", encoding=encoding)
    assert status == 0 and "perché" in out and "なぜ" in out
    status, _, err = forked("data", "show", "--config", "perché", encoding=encoding)
    assert status == 2 and err.startswith("mt: perché: ")


def test_arguments_are_utf8_in_a_locale_that_is_not(run, forked, root, trained):
    env = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    env["PYTHONPATH"] = str(root)  # An editable installation does not find a folder whose name is not ASCII there.
    command = [sys.executable, "-m", "mt_cli", "tokenize", "--run", str(trained), "perché.", "--side"]
    result = run([*command, "source"], env=env, capture_output=True)
    if sys.prefix.isascii():
        assert (result.stdout.decode("utf-8"), result.stderr) == ("[UNK] ￭.\n", b"")
    else:  # PyTorch cannot be imported from such a folder there.
        assert result.returncode == 2 and b"use UTF-8 (PYTHONUTF8=1)" in result.stderr
    arguments = (os.fsencode(text).decode("ascii", "surrogateescape") for text in ("perché.", "--side", "è"))
    status, _, err = forked("tokenize", "--run", trained, *arguments, encoding="ascii")  # As Python decodes them there.
    assert status == 2 and "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("translate X", "sentences"),
        ("translate a --tag X", "--tag"),
        ("translate a --set decoding.unk=X", "--set"),
        ("tokenize a X", "sentences"),
        ("inspect X", "sentence"),
        ("translate a --run X", "--run"),
        ("train --config c.yaml --set name=X", "--set"),
        ("report --against X", "--against"),
        ("evaluate --against X", "--against"),
    ],
)
def test_an_argument_that_is_not_utf8_is_refused_by_its_name(mt, trained, arguments, name):
    words = arguments.replace("X", "caf\udce9").split()
    is_complete = "--run" in words or words[0] == "train"
    status, out, err = mt(*words, *(() if is_complete else ("--run", trained)))
    assert (status, out) == (2, "")
    assert err.startswith(f"mt: {name}: ") and "0xE9" in err


@pytest.mark.parametrize("option", ["--input", "--output", "--attention", "--alignment"])
def test_a_file_whose_name_is_not_utf8_is_read_and_written(forked, trained, tmp_path, option):
    name = "caf\udce9.png"
    if option == "--input":
        (tmp_path / name).write_text("one.\n", encoding="utf-8")
    status, _, err = forked("translate", *(() if option == "--input" else ("one.",)), "--run", trained, option, name)
    assert status == 0 and (tmp_path / name).stat().st_size, err


def test_no_name_or_text_sends_control_characters_to_the_terminal(forked, trained, tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a\x1b[31mb").symlink_to(trained)
    bad = "a\x1b[31m\x9b2J\x07\u202eb"
    for arguments in (
        ("translate", f"one {bad}."),
        ("translate", "one.", "--run", bad),
        ("translate", "--input", bad),
        ("translate", "one.", f"--{bad}"),
        ("data", "check", "--config", bad, "--set", f"{bad}=1"),
        (bad,),
    ):
        _, _, err = forked(*arguments)
        assert err and all(character == "\n" or character.isprintable() for character in err), (arguments, err)


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
    status, _, err = mt("evaluate", "--source", piped(sides[0]), "--reference", piped("ONE.\n"), *run)
    assert status == 2 and "--source and --reference: 2 lines and 1" in err


INTERRUPTED = """
import builtins, os, signal, sys
original = builtins.__import__
def load(name, *rest):
    if name == "mt_cli.config":
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("cannot load module more than once per process") from None
    return original(name, *rest)
builtins.__import__ = load
sys.argv = ["mt", "train", "--config", "c.yaml"]
from mt_cli.__main__ import main
main()
"""


def test_an_interruption_that_a_library_hides_is_one(run, root):
    result = run([sys.executable, "-c", INTERRUPTED], cwd=root, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "mt: interrupted\n")


@pytest.mark.parametrize("moment", ["start", "end"])
def test_an_interruption_at_the_very_start_or_end_leaves_no_traceback(run, tmp_path, root, moment):
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


@pytest.mark.parametrize("ending", ["sys.exit(130)", "signal.raise_signal(signal.SIGINT)"])
def test_an_interrupted_command_has_its_status_also_if_more_signals_follow(run, root, ending):
    code = (
        "import atexit, signal, sys\n"
        "import mt_cli.__main__ as program, mt_cli.cli.main as cli\n"
        "@atexit.register\n"
        "def hurry():\n"
        "    [signal.raise_signal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]\n"
        f"def interrupted():\n    cli._handle_signals(cli._interrupt)\n    {ending}\n"
        "cli.main = interrupted\n"
        "program.main()\n"
    )
    result = run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_a_typed_line_that_is_not_utf8_is_refused_and_the_next_one_is_read(monkeypatch, capsys):
    typed = iter(["one.", "caf\udce9", "two.", ""])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert list(prompted_lines()) == ["one.", "two."]
    assert "0xE9" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="Windows has no closed streams")
@pytest.mark.parametrize("name", ["translate", "train"])
def test_without_a_standard_error_notices_are_not_among_the_results(
    run, trained, quick_tree, tiny_config, root, tmp_path, name
):
    words = [str(trained) if word == "RUN" else word for word in COMMANDS[name].split()]
    command = [sys.executable, "-m", "mt_cli", *words]
    closed = ["bash", "-c", 'exec "$@" 2>&-', "bash", *command]
    env = os.environ | {"PYTHONPATH": str(root)}
    options = {"env": env, "cwd": tmp_path, "stdout": subprocess.PIPE}
    results = [run(line, stderr=subprocess.DEVNULL, **options) for line in (command, closed)]
    assert [result.returncode for result in results] == [0, 0]
    assert results[0].stdout == results[1].stdout


@pytest.mark.skipif(os.name != "posix", reason="Windows has no closed streams")
@pytest.mark.parametrize(
    ("redirection", "words", "status"),
    [
        ("<&-", "translate --run RUN", 2),
        ("<&-", "translate --run RUN --interactive", 2),
        (">&-", "tokenize one.two. --run RUN", 1),
        (">&-", "report --run RUN --output page.html", 0),
    ],
)
def test_a_closed_stream_that_a_command_needs_is_an_error(run, trained, root, tmp_path, redirection, words, status):
    command = [sys.executable, "-m", "mt_cli", *(str(trained) if word == "RUN" else word for word in words.split())]
    closed = ["bash", "-c", f'exec "$@" {redirection}', "bash", *command]
    result = run(closed, env=os.environ | {"PYTHONPATH": str(root)}, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert result.returncode == status and "Traceback" not in result.stderr
    assert status == 0 or "is closed" in result.stderr


@pytest.mark.parametrize("name", ["a.gz", "b.txt.zst"])
def test_names_of_compressed_files_are_refused_for_text(tmp_path, name):
    with pytest.raises(InputError, match="not compressed"):
        Output(tmp_path / name)


def test_results_without_a_standard_output_are_refused_before_the_work_begins(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InputError, match="standard output is closed; write to a file with --output"):
        Output(None)
    with Output(tmp_path / "out") as output:
        output.write("one")
    assert (tmp_path / "out").read_text(encoding="utf-8") == "one\n"
