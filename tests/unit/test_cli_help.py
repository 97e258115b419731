import re

import pytest
from command_lines import COMMANDS, parse


def test_help_ends_with_examples_that_parse_and_a_page(mt, root):
    for name in [(), *COMMANDS]:
        status, out, err = mt(*name, "--help")
        assert (status, err) == (0, ""), name
        examples = re.findall(r"^ +(mt .*?) *$", out.partition("Examples:")[2], flags=re.MULTILINE)
        assert 1 <= len(examples) <= 3, name
        assert all(name in ((), parse(line)[0]) for line in examples), name
        assert all((root / page).is_file() for page in re.findall(r"docs/\S+", out)), name


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
