import re

import pytest
import typer
from command_lines import COMMANDS, parse

from mt_cli.cli import main as cli
from mt_cli.cli.help import examples_of, panels_of

PANELS = {
    "Start": ["init", "data", "doctor"],
    "Train": ["train", "average", "tune-decoding"],
    "Use": ["translate", "evaluate", "score"],
    "Look inside": ["inspect", "report", "tokenize"],
    "Exchange": ["import", "export"],
}


LISTS = [(), ("data",)]
OTHER_USAGES = {
    ("translate",): "[OPTIONS] [SENTENCE]...",
    ("tokenize",): "[OPTIONS] [SENTENCE]...",
    ("inspect",): "[OPTIONS] [SENTENCE]",
    ("score",): "[OPTIONS] [SOURCE TARGET]",
    ("import",): "[OPTIONS] MODEL",
    ("init",): "[OPTIONS] [FOLDER]",
    ("data", "check"): "[OPTIONS] [FOLDER]",
    ("data", "show"): "[OPTIONS] [FOLDER]",
}


@pytest.fixture
def help_of(mt, monkeypatch):
    """The help of a command on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*words):
        status, out, err = mt(*words, "--help")
        assert (status, err) == (0, "")
        return out

    return run


def rows_of(name):
    """The rows of the help of a command by the name of its parameter's first form."""
    command = COMMANDS[name]
    context = typer.Context(command, info_name=name[-1], help_option_names=["-h", "--help"])
    return command, {row.name: row for rows in panels_of(command, context).values() for row in rows}


def sections_of(text):
    """The first words of the lines of each section of a help, by its title."""
    found = re.findall(r"^(\S.*):\n((?:  .*\n?)+)", text, flags=re.MULTILINE)
    return {title: re.findall(r"^  (\S+)", lines, flags=re.MULTILINE) for title, lines in found}


@pytest.mark.parametrize("name", [*LISTS, *sorted(COMMANDS)], ids=" ".join)
def test_help_fits_80_columns_ends_with_examples_and_shows_no_type_of_python(help_of, mt, name):
    text = help_of(*name)
    assert max(map(len, text.splitlines())) <= 80
    assert not re.search(r"<(?!2it>)|list\[|\bNone\b|<=x|x>=|\bothers\b|\*\*", text)
    _, title, rest = text.partition("\nExamples:\n")
    examples = re.findall(r"^  (mt .+)$", rest, flags=re.MULTILINE)
    assert title and 1 <= len(examples) <= 3
    assert rest == "".join(f"  {line}\n" for line in examples) + "".join(re.findall(r"\nMore: docs/\w+\.md\n", rest))
    for line in examples:
        assert name in [*LISTS, parse(line)[0]]
    assert mt(*name, "-h")[1] == text


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_pages_that_help_names_exist(help_of, root, name):
    for page in re.findall(r"docs/\S+", help_of(*name)):
        assert (root / page).is_file()


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_usage_names_visible_arguments_alone(help_of, name):
    usage = OTHER_USAGES.get(name, "[OPTIONS]")
    assert help_of(*name).startswith(f"Usage: mt {' '.join(name)} {usage}\n\n")


def test_the_list_of_commands_has_panels_with_one_whole_line_for_each(help_of):
    text = help_of()
    sections = sections_of(text)
    panels = PANELS
    assert {title: sections.get(title) for title in panels} == panels
    assert [title for title in sections if title in PANELS] == [*panels]
    texts = [text.partition(f"\n{next(iter(panels))}:")[2].partition("\nOptions:")[0]]
    texts += [help_of(*words).partition("Commands:\n")[2].partition("\n\n")[0] for words in LISTS if words]
    rows = [line for part in texts for line in part.splitlines() if line.startswith("  ")]
    assert len(rows) == len(COMMANDS) + len(LISTS) - 1
    assert all(re.fullmatch(r"  [a-z-]+ +[A-Z].*\w\.", row) and "..." not in row for row in rows), rows
    assert "`mt --install-completion`" in text


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("init", ["Arguments", "Your text (give one)", "Found by itself", "What it writes", "Other"]),
        ("train", ["Config", "Resuming", "Hardware", "Other"]),
        ("translate", ["Arguments", "Model", "Input and output", "Search", "Extra results", "Hardware", "Other"]),
    ],
)
def test_options_are_in_panels(help_of, name, titles):
    sections = sections_of(help_of(name))
    assert [title for title in sections if title not in ("Usage", "Examples", "More")] == titles
    assert sections["Other"][-1] == "-h,"


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_options_with_a_value_say_what_it_is_and_show_their_default(name):
    command, rows = rows_of(name)
    for parameter in command.params:
        if parameter.hidden or parameter.param_type_name == "argument" or parameter.is_flag:
            continue
        assert re.fullmatch(r"[A-Z][A-Z=]*( [A-Z]+|,[NX],\.\.\.)?", parameter.metavar or ""), parameter.name
        row = rows[f"{', '.join(parameter.opts)} {parameter.metavar}"]
        if parameter.required:
            assert row.default == "required"
        elif parameter.default not in (None, "", [], ()):
            assert row.default == str(parameter.default), parameter.name
        assert "default" not in row.meaning, parameter.name


def test_a_list_of_commands_has_no_example_of_a_command_that_is_missing():
    command = typer.main.get_command(cli.app)
    examples = examples_of(command)
    assert [line.split()[1] for line in examples] == ["init", "train", "translate"]
    del command.commands["translate"]
    assert examples_of(command) == examples[:-1]


def test_limits_and_defaults_are_in_plain_words():
    _, rows = rows_of(("translate",))
    assert rows["--n-best N"].text.replace("\xa0", " ").endswith("  [default: 1; 1-1000]")
    assert rows["--length-penalty X"].limits == "0 or more"
    assert rows["--run DIR"].default == "the newest below ./runs"
    assert rows["--sample"].default == ""


@pytest.mark.parametrize(
    ("words", "option", "limits"),
    [("average", "--last N", "2 or more"), ("data show", "-n, --number N", "1 or more")],
)
def test_a_lower_limit_is_in_plain_words(words, option, limits):
    assert rows_of(tuple(words.split()))[1][option].limits == limits


@pytest.mark.parametrize(
    ("words", "example"),
    [
        ("train", "training.max_epochs=5"),
        ("tokenize", "tokenizer.vocab_size=4000"),
        ("data check", "corpus.filters.identical=false"),
        ("data show", "corpus.filters.identical=false"),
        ("translate", "decoding.max_length=50"),
        ("evaluate", "decoding.max_length=50"),
    ],
)
def test_the_example_of_set_fits_the_command(root, words, example):
    from mt_cli.cli.options import load_config, search_options

    assert example in rows_of(tuple(words.split()))[1]["--set KEY=VALUE"].meaning
    if example.startswith("decoding."):
        assert search_options([example]) == {"max_length": 50}
    else:
        load_config(root / "configs/multi30k_en_de.yaml", [example])


@pytest.mark.parametrize("words", [("train",), ("data", "show")], ids=" ".join)
def test_a_config_without_its_option_is_answered_with_the_right_command(mt, words):
    status, out, err = mt(*words, "x.yaml")
    command = " ".join(words)
    assert (status, out) == (2, "")
    assert err == f"mt: x.yaml: a config is given with --config:  mt {command} --config x.yaml\n"
    assert "--config 'a b.yaml'" in mt(*words, "a b.yaml", "--set", "x=1")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train", "missing option '--config'; see mt train --help"),
        ("import", "missing argument 'MODEL'; see mt import --help"),
        ("evaluate runs/x", "got unexpected extra argument(s) (runs/x); see mt evaluate --help"),
        ("trian", "no such command 'trian'. Did you mean 'train'?; see mt --help"),
        ("data chek", "no such command 'chek'. Did you mean 'check'?; see mt data --help"),
        ("translate --beam 3", "no such option: --beam"),
        ("translate a --beam-size 0", "invalid value for '--beam-size'"),
        ("translate a --beam-size x", "invalid value for '--beam-size'"),
        ("--fast", "no such option: --fast"),
        ("init --files a", "option '--files' requires 2 arguments"),
    ],
)
def test_a_wrong_command_line_is_answered_with_one_line(mt, words, message):
    status, out, err = mt(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"mt: {message}")


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_a_command_without_its_next_word_shows_the_help_as_an_error(mt, words):
    status, out, err = mt(*words)
    assert (status, out) == (2, "") and err == mt(*words, "--help")[1]


def test_the_program_is_not_run_by_completion(monkeypatch, mt):
    """Options are completed by their beginning; a wrong value before them is no error."""
    for name, value in {"COMP_WORDS": "mt train --progress loud --f", "COMP_CWORD": "4"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_MT_COMPLETE", "complete_bash")
    status, out, err = mt()
    assert (status, out.split(), err) == (0, ["--fresh"], "")
    assert cli.app.info.name == "mt"
