import re

import pytest
import typer
from command_lines import COMMANDS, parse

NAMES = (
    "init data doctor train average tune-decoding translate serve evaluate score inspect report tokenize import export"
)


def test_help_ends_with_examples_that_parse_and_a_page(mt, root):
    for name in [(), *COMMANDS]:
        status, out, err = mt(*name, "--help")
        assert (status, err) == (0, ""), name
        examples = re.findall(r"^ +(mt .*?) *$", out.partition("Examples:")[2], flags=re.MULTILINE)
        assert 1 <= len(examples) <= 3, name
        assert all(name in ((), parse(line)[0]) for line in examples), name
        assert all((root / page).is_file() for page in re.findall(r"docs/\S+", out)), name


def test_commands_are_listed_in_the_order_of_work(mt):
    out = mt("--help")[1]
    assert mt("-h")[1] == out
    assert re.findall(r"^│ ([a-z][a-z-]*) ", out, flags=re.MULTILINE) == NAMES.split()
    assert "..." not in out.partition("Start")[2], "a first line of a docstring is too long"


def test_the_example_of_set_fits_the_command(root):
    from mt_cli.cli.options import load_config, search_options

    for command in COMMANDS.values():
        for option in (option for option in command.params if "--set" in option.opts):
            example = re.search(r"\b([a-z]+\.[a-z_.]+=\w+)", option.help)[1]
            if example.startswith("decoding."):
                assert search_options([example])
            else:
                assert load_config(root / "configs/multi30k_en_de.yaml", [example])


def test_options_say_what_they_take_and_show_their_default():
    for name, command in COMMANDS.items():
        context = typer.Context(command, info_name=name[-1])
        for parameter in command.params:
            if parameter.hidden or parameter.param_type_name == "argument" or parameter.is_flag:
                continue
            assert re.fullmatch(r"[A-Z][A-Z=]*( [A-Z]+|,[NX],\.\.\.)?", parameter.metavar or ""), parameter.name
            record = " ".join(parameter.get_help_record(context))
            if parameter.required:
                assert "required" in record, parameter.name
            elif parameter.default not in (None, "", [], ()):
                assert f"default: {parameter.default}" in record, parameter.name


@pytest.mark.parametrize(
    ("words", "key", "command"),
    [
        ("train x.yaml", "'--config'", "mt train"),
        ("import", "'MODEL'", "mt import"),
        ("evaluate runs/x", "runs/x", "mt evaluate"),
        ("trian", "'train'", "mt"),
        ("data chek", "'check'", "mt data"),
        ("translate --beam 3", "--beam", "mt translate"),
        ("translate a --beam-size 0", "'--beam-size'", "mt translate"),
        ("init --files a", "'--files'", None),
    ],
)
def test_a_wrong_command_line_is_answered_with_one_line(mt, words, key, command):
    status, out, err = mt(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("mt: ") and key in err
    assert command is None or err.endswith(f"; see {command} --help\n")


def test_a_command_without_its_next_word_shows_its_help(mt):
    for words in ((), ("data",)):
        status, out, err = mt(*words)
        assert (status, out.strip(), err) == (2, mt(*words, "--help")[1].strip(), "")


def test_the_program_is_not_run_by_completion(monkeypatch, mt):
    """Options are completed by their prefix; a wrong value before them is no error."""
    for name, value in {"COMP_WORDS": "mt train --progress loud --f", "COMP_CWORD": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_MT_COMPLETE", "complete_bash")
    status, out, err = mt()
    assert (status, out.split(), err) == (0, ["--fresh"], "")
