import pytest
from tokenizers import normalizers

from mt_cli.advice.spellings import mixed_spellings, spellings_to_normalize
from mt_cli.config.sections import TokenizerConfig
from mt_cli.tokenizer.spelling import APOSTROPHES, normalization
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

WORDS = ["jach'a", "qilqt'aña", "t'ant'a", "k'iri", "ch'uñu"]
ALL = ("apostrophes", "joined_apostrophes")


def options(texts):
    return [mixed.option for mixed in mixed_spellings(texts)]


def with_mark(words, mark):
    return [word.replace("'", mark) for word in words]


def split(number, mark="'"):
    """Words with a space before their first apostrophe."""
    return [f"aka {word.replace(chr(39), ' ' + mark, 1)} uta" for word in WORDS * number]


def test_one_spelling_is_not_mixed():
    for mark in f"'{APOSTROPHES}":
        assert not mixed_spellings(with_mark(WORDS * 30, mark))


def test_rarer_spellings_are_counted_with_examples():
    for mark in APOSTROPHES:
        (mixed,) = mixed_spellings([*WORDS * 20, *(f"mä {word} uta" for word in with_mark(WORDS * 2, mark))])
        assert mixed.option == "apostrophes" and mixed.counts == {"'": 120, mark: 12}
        assert mixed.examples[0] == f"mä jach{mark}a uta"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([*split(20), *WORDS * 4], ["joined_apostrophes"]),
        ([f"aka {word} uta" for word in with_mark(WORDS * 20, " ’ ")], ["joined_apostrophes"]),
        ([*WORDS * 60, *["memexeitsie 'aix iyari"] * 60], []),  # An apostrophe begins words, as in Wixarika.
        (["he said 'no' and left"] * 100, []),
        ([*(f"véase :ref:`la guía <guide>` de {number}" for number in range(100)), *split(40)], []),
    ],
)
def test_spaces_of_quotes_and_markup_are_kept(texts, expected):
    assert options(texts) == expected


def test_normalised_spellings_are_not_mixed_any_more():
    texts = [*WORDS * 20, *with_mark(WORDS * 4, "’"), *["cafe\u0301"] * 9, *split(40)]
    assert sorted(options(texts)) == sorted(ALL)
    config = TokenizerConfig(normalize=ALL)
    assert not mixed_spellings([normalizers.Sequence(normalization(config)).normalize_str(text) for text in texts])


TEXT = "jach 'a qilqt’ana cafe\u0301 'quote' ’ a’"


@pytest.mark.parametrize(
    ("values", "text", "expected"),
    [
        ((), TEXT, "jach 'a qilqt’ana café 'quote' ’ a’"),
        (("apostrophes",), TEXT, "jach 'a qilqt'ana café 'quote' ’ a’"),
        (("joined_apostrophes",), TEXT, "jach'a qilqt’ana café 'quote' ’ a’"),
        (("joined_apostrophes",), "aka ch ’ ama uta, ch ' ama, a ’ ’ b", "aka ch’ama uta, ch'ama, a ’ ’ b"),
        (("joined_apostrophes",), *["usa `foro de ayuda`_ o :ref:`la guía` ` b"] * 2),
    ],
)
def test_each_value_changes_what_it_names_alone(values, text, expected):
    config = TokenizerConfig(algorithm="bpe", vocab_size=400, normalize=values)
    tokenizer = train_tokenizer([text] * 9, config)
    assert (
        tokenizer.decode(tokenizer.encode([text]))
        == [expected]
        == [normalizers.Sequence(normalization(config)).normalize_str(text)]
    )
    ends = [end for _, end in tokenizer.spans(text)]
    assert ends == sorted(ends) and ends[-1] == len(text), "places are those of the given text"


OTHER = with_mark(WORDS * 20, "’")


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([([*OTHER, *WORDS], WORDS * 5)], ["apostrophes"]),
        ([(OTHER, WORDS * 20)], ["apostrophes"]),  # The texts of training and validation differ.
        ([([*WORDS * 20, *OTHER], OTHER)], []),
        ([(OTHER, WORDS * 20), ([*WORDS * 20, *OTHER], OTHER)], []),  # One language has mostly others.
        ([([*WORDS * 4, *with_mark(WORDS * 40, "ʼ")], [])], []),
        ([(OTHER, OTHER)], []),  # There is nothing to decide.
    ],
)
def test_validation_text_decides_which_apostrophe_is_wanted(sides, expected):
    assert spellings_to_normalize(sides) == expected
