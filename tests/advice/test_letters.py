import random
from unicodedata import normalize

import pytest
from tokenizers import normalizers

from mt_cli.advice.spellings import letters_to_replace
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.config.tags import Tagging
from mt_cli.tokenizer.spelling import normalization
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.lines import LineSplitter
from mt_cli.translation.translator import Translator


def made_up(number, vowels, seed=1, apostrophe=""):
    """Words of four syllables, with each vowel in its share."""
    generator = random.Random(seed)
    syllables = [f"{consonant}{vowel}" for consonant in "gjkmnprst" for vowel in vowels]
    return [
        " ".join(
            "".join(generator.choices(syllables, k=2)) + apostrophe + "".join(generator.choices(syllables, k=2))
            for _ in range(10)
        )
        for _ in range(number)
    ]


TILDE, CIRCUMFLEX, PLAIN = made_up(300, "aãeou"), made_up(60, "aâeou", 2), made_up(60, "aeou", 2)
REPLACED = TILDE, CIRCUMFLEX
APOSTROPHES = made_up(300, "aeou", apostrophe="'")
MIXED_APOSTROPHES = [*APOSTROPHES, *made_up(30, "aeou", 7, "’")]
DOTS = made_up(300, ["a", "ẹ\u0301", "ẹ", "o"])
LINES = [text.replace("ẹ\u0301", "é\u0329").replace("ẹ", "e\u0329") for text in DOTS[:150]]
SALTILLO = made_up(60, "aeou", 2, "ꞌ")
TONES, WITHOUT_TONES = ["a", "é", "è", "ẹ\u0301", "ẹ\u0300", "o"], ["a", "e", "e", "ẹ", "ẹ", "o"]


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([(TILDE, [text.upper() for text in CIRCUMFLEX])], {"ã": "â"}),
        ([([text.replace("ã", "a\u0303") for text in TILDE], CIRCUMFLEX)], {"ã": "â"}),
        # Letters that lost their tones: `é` is `e`, although `ẹ` became more frequent, too.
        (
            [(made_up(300, TONES), made_up(60, WITHOUT_TONES, 2))],
            {"é": "e", "è": "e", "ẹ\u0301": "ẹ", "ẹ\u0300": "ẹ"},
        ),
        # Apostrophes are left out where the compared text has none.
        ([(APOSTROPHES, PLAIN)], {"'": ""}),
        # Marks that look alike, of which the validation text mostly has one.
        ([([*DOTS, *LINES], DOTS[:60])], {"e\u0329": "ẹ", "é\u0329": "ẹ\u0301"}),
        ([(DOTS, LINES)], {"ẹ": "e\u0329", "ẹ\u0301": "é\u0329"}),
        # An apostrophe that is always another one is replaced.
        ([(MIXED_APOSTROPHES, SALTILLO)], {"'": "ꞌ", "’": "ꞌ"}),
    ],
)
def test_letters_that_the_compared_text_lacks_are_replaced(sides, expected):
    assert letters_to_replace(sides) == expected


@pytest.mark.parametrize(
    "sides",
    [
        [(made_up(300, "aéèo"), made_up(60, "aêêo", 2))],  # It may be either of two letters.
        [(made_up(300, "aãâeou"), made_up(60, "aãâeou", 2))],
        [(TILDE, CIRCUMFLEX[:1])],
        [(made_up(300, ["ṭa", "ṯa", "o", "u"]), [])],  # Two letters: few words have either.
        [(APOSTROPHES, made_up(60, "aeou", 2, " ' "))],
        [REPLACED, (made_up(300, "aãeiou", 3), [])],  # Another language has the letter.
        [([f"'{text}'" for text in made_up(300, "aeou")], PLAIN)],  # They are quotation marks.
        [(MIXED_APOSTROPHES, [*SALTILLO, *made_up(60, "aeou", 3, "'")])],
    ],
)
def test_letters_without_evidence_stay(sides):
    assert letters_to_replace(sides) == {}


@pytest.mark.parametrize(("old", "new"), [("g\u0303", "ĝ"), ("ã", "a\u0331")])
def test_letters_may_have_marks_of_their_own(old, new):
    train, valid = (made_up(number, f"{letter} o u i".split(), number) for number, letter in ((300, old), (60, new)))
    assert letters_to_replace([(train, valid)]) == {normalize("NFC", old): new}
    config = TokenizerConfig(letters={normalize("NFC", old): new})
    assert (
        normalizers.Sequence(normalization(config)).normalize_str(f"k{old}k {old.upper()}") == f"k{new}k {new.upper()}"
    )


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "char", "word_level"])
def test_letters_are_replaced_in_both_cases(algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, letters={"ã": "â", "'": ""})
    tokenizer = train_tokenizer(["tetã TETÃ m'bae â Â <2gn>"] * 9, config, ("<2gn>",))
    texts = ["tetã TETÃ", "teta\u0303 m'bae"]
    assert (
        normalizers.Sequence(normalization(TokenizerConfig(letters={"a\u0303": "â"}))).normalize_str(texts[1])
        == "tetâ m'bae"
    )
    assert tokenizer.decode(tokenizer.encode(texts)) == ["tetâ TETÂ", "tetâ mbae"]
    ends = [end for _, end in tokenizer.spans(texts[1])]
    assert ends == sorted(ends) and ends[-1] == len(texts[1])
    translator = Translator(None, (tokenizer, tokenizer), DecodingConfig(), 50, Tagging(("<2gn>",)), ("es", "gn"))
    (line,) = LineSplitter(translator).split(["<2gn> '"], None, False)
    assert [segment.ids for segment in line.segments] == [[]], "nothing is left"


def test_only_letters_are_replaced_each_once():
    for letters in ({"ab": "c"}, {"a": "a"}, {"a": "!"}, {"a": "b", "b": "c"}, {"ã": "ä", "Ä": "Ã"}):
        with pytest.raises(ValueError, match="letters"):
            TokenizerConfig(letters=letters)


def test_many_replaced_letters_have_one_short_name():
    letters = dict(zip("abcd", "efgh", strict=True))
    orders = letters, dict(reversed(letters.items())), letters | {"d": "i"}
    names = [TokenizerConfig(letters=order).changes_of_spelling for order in orders]
    assert names[0] == names[1] != names[2] and all(len("".join(name)) < 20 for name in names)
