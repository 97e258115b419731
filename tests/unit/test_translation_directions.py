import pytest

from mt_cli.translation.directions import with_balanced_directions


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("\u2066Il medico.", "\u2066The doctor\u2069 sleeps.", "Il medico."),
        ("la casa\u202c rossa", "the red \u202ahouse\u202c", "la casa rossa"),
        ("\u2067a \u202bb\u202c c\u2069", "\u2067a \u202bb\u202c c\u2069", "\u2067a \u202bb\u202c c\u2069"),
        ("\u2066a", "\u2066b", "\u2066a"),
        ("a", "b", "a"),
    ],
)
def test_directions_that_lost_their_partner_are_left_out(text, source, expected):
    assert with_balanced_directions(text, source) == expected
