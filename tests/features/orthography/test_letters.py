import random
from unicodedata import normalize

import pytest

from mt_cli.config.directions import Tagging
from mt_cli.config.sections import TokenizerConfig
from mt_cli.evaluation.evaluate import note_on_spelling
from mt_cli.evaluation.texts import Scorer
from mt_cli.features.orthography.letters import letters_to_replace, other_letters
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.translation.lines import LineSplitter


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


def test_letters_with_other_marks_in_the_compared_text_are_found():
    train, valid = made_up(300, "aãeou"), made_up(60, "aâeou", 2)
    (letter,) = other_letters(train, valid)
    assert (letter.old, letter.new) == ("ã", "â") and letter.num_words > 1_000
    assert 1 <= len(letter.examples) <= 3 and all("ã" in example for example in letter.examples)
    assert letters_to_replace([(train, valid)]) == {"ã": "â"}
    assert letters_to_replace([(train, [text.upper() for text in valid])]) == {"ã": "â"}
    assert letters_to_replace([([text.replace("ã", "a\u0303") for text in train], valid)]) == {"ã": "â"}


@pytest.mark.parametrize(("old", "new"), [("g\u0303", "ĝ"), ("a\u0331", "ã"), ("ã", "a\u0331"), ("e\u0323\u0301", "é")])
def test_letters_may_have_marks_of_their_own(old, new):
    train, valid = (made_up(number, f"{letter} o u i".split(), number) for number, letter in ((300, old), (60, new)))
    assert letters_to_replace([(train, valid)]) == {normalize("NFC", old): new}
    config = TokenizerConfig(algorithm="bpe", vocab_size=400, letters={normalize("NFC", old): new})
    tokenizer = train_tokenizer(train, config, ())
    assert tokenizer.decode(tokenizer.encode([f"k{old}k {old.upper()}"])) == [f"k{new}k {new.upper()}"]


@pytest.mark.parametrize(
    ("train", "valid"),
    [
        (made_up(300, "aãeou"), made_up(60, "aãeou", 2)),
        (made_up(300, "aãâeou"), made_up(60, "aãâeou", 2)),
        (made_up(300, "aãeou"), made_up(60, "aeou", 2)),
        (made_up(300, "aãeou"), made_up(1, "aâeou", 2)),
        (["ãx"] * 3_000 + made_up(300, "aeou"), made_up(60, "aâeou", 2)),
        (made_up(300, "aeou"), made_up(60, "aâeou", 2)),
        (made_up(30, "aãeou"), []),
        ([], made_up(30, "aãeou")),
    ],
    ids=["same", "both", "no other letter", "short", "one word", "only compared", "nothing compared", "no train"],
)
def test_letters_without_evidence_stay(train, valid):
    assert other_letters(train, valid) == []


def test_apostrophes_are_left_out_where_the_compared_text_has_none():
    train, plain = made_up(300, "aeou", apostrophe="'"), made_up(60, "aeou", 2)
    assert letters_to_replace([(train, plain)]) == {"'": ""}
    for valid in (made_up(60, "aeou", 2, "'"), made_up(60, "aeou", 2, "’")):
        assert letters_to_replace([(train, valid)]) == {}
    quoting = [f"'{text}'" for text in made_up(300, "aeou")]
    assert letters_to_replace([(quoting, plain)]) == {}, "quotation marks around sentences"


def test_an_apostrophe_that_is_always_another_one_is_replaced():
    train = [*made_up(300, "aeou", apostrophe="'"), *made_up(30, "aeou", 7, "’")]
    valid = made_up(60, "aeou", 2, "ꞌ")
    assert letters_to_replace([(train, valid)]) == {"'": "ꞌ", "’": "ꞌ"}
    assert letters_to_replace([(train, valid), (["l'un d'eux"] * 99, ["l'un d'eux"] * 9)]) == {}
    for mixed in (
        made_up(60, "aeou", 2, "'"),
        [*valid, *made_up(60, "aeou", 3, "'")],
        [*valid[:9], *made_up(50, "aeou")],
    ):
        assert letters_to_replace([(train, mixed)]) == {}
    assert letters_to_replace([([*train, *made_up(90, "aeou", 8, "ꞌ")], valid)]) == {}, "train has both"


def test_what_is_written_for_an_apostrophe_or_stands_alone_is_one():
    train = made_up(300, "aeou", apostrophe="'")
    for written in (" ' ", "' ", " '", "&apos;", "ʾ", "ˈ"):
        assert letters_to_replace([(train, made_up(60, "aeou", 2, written))]) == {}, written
    foreign = made_up(300, "aeiou", 3, "'"), made_up(60, "aeiou", 4, "’")
    assert letters_to_replace([(train, made_up(60, "aeou", 2)), foreign]) == {}


def test_syllables_of_korean_are_no_letters_with_marks():
    train, valid = (
        made_up(number, syllables, number) for number, syllables in ((300, "로든놀에은"), (60, "럽다년요을"))
    )
    assert letters_to_replace([(train, valid)]) == {} and letters_to_replace([(valid * 5, train)]) == {}


def test_a_letter_that_lost_marks_is_the_one_with_the_other_marks():
    """As in Yoruba with tones, compared with text without tones: `é` is `e`, although `ẹ` became more frequent, too."""
    vowels = ["a", "é", "è", "ẹ\u0301", "ẹ\u0300", "o"]
    plain = ["a", "e", "e", "ẹ", "ẹ", "o"]
    replaced = letters_to_replace([(made_up(300, vowels), made_up(60, plain, 2))])
    assert replaced == {"é": "e", "è": "e", "ẹ\u0301": "ẹ", "ẹ\u0300": "ẹ"}
    two = letters_to_replace([(made_up(300, "aéèo"), made_up(60, "aêêo", 2))])
    assert two == {}, "which of both is it?"


def test_a_letter_of_another_language_stays():
    own = (made_up(300, "aãeou"), made_up(60, "aâeou", 2))
    assert letters_to_replace([own, (made_up(300, "aãeiou", 3), [])]) == {}, "no text to compare"
    other = (made_up(300, "aãeiou", 3), made_up(60, "aãeiou", 4))
    assert letters_to_replace([own, other]) == {}
    assert letters_to_replace([(made_up(300, "aiou", 3), made_up(60, "aiou", 4)), own]) == {"ã": "â"}


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "char", "word_level"])
def test_letters_are_replaced_in_both_cases(algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, letters={"ã": "â", "'": ""})
    tokenizer = train_tokenizer(["tetã TETÃ m'bae â Â"] * 9, config, ())
    texts = ["tetã TETÃ", "teta\u0303 m'bae"]
    assert tokenizer.decode(tokenizer.encode(texts)) == ["tetâ TETÂ", "tetâ mbae"]
    ends = [end for _, end in tokenizer.spans(texts[1])]
    assert ends == sorted(ends) and ends[-1] == len(texts[1])


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "char", "word_level"])
def test_a_line_of_which_nothing_is_left_is_blank(algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, letters={"'": ""})
    tokenizer = train_tokenizer(["m'bae <2gn>"] * 9, config, ("<2gn>",))
    splitter = LineSplitter(tokenizer, 50, Tagging(("<2gn>",)), ("es", "gn"))
    for line, tag in (("'", None), ("''", "<2gn>"), ("<2gn> '", None)):
        assert [segment.ids for segment in splitter.split(line, tag, False).segments] == [[]]


@pytest.mark.parametrize(
    ("letters", "cause"),
    [
        *(
            (letters, "two different letters")
            for letters in (
                *({"ã": "ab"}, {"ab": "c"}, {"a": "a"}, {"a": " "}, {" ": ""}, {"": "a"}, {"▁": ""}, {"!": ""}),
                *({"1": "2"}, {"'": "#"}, {"a\u0303": "â"}, {"a\u0331\u0332\u0333\u0331": "a"}, {"\u0331": "a"}),
            )
        ),
        *(
            (letters, "twice")
            for letters in ({"a": "b", "b": "c"}, {"ã": "ä", "Ä": "Ã"}, {"ã": "â", "Ã": "A"}, {"x": "x\u0331"})
        ),
    ],
)
def test_only_letters_are_replaced_each_once(letters, cause):
    with pytest.raises(ValueError, match=f"letters: .*{cause}"):
        TokenizerConfig(letters=letters)


def test_a_character_without_case_may_become_one_with_case():
    assert TokenizerConfig(letters={"'": "ꞌ"}).letters_in_both_cases == [("'", "ꞌ")]


def test_a_score_names_the_letters_that_were_replaced():
    config = TokenizerConfig(normalize=["nfc"], letters={"ã": "â", "'": ""})
    scores = Scorer("gn", "13a", spelling=config.changes_of_spelling).score(["a"], ["a"])
    assert scores["bleu"].signature.endswith("|normalize:nfc+ã>â+'>")
    assert TokenizerConfig(letters={"ã": "â"}).changes_of_spelling == ("nfc", "ã>â"), "letters are composed, too"
    assert TokenizerConfig().changes_of_spelling == ()


def test_references_that_are_spelled_otherwise_are_named_unless_they_are_few():
    config = TokenizerConfig(letters={"ã": "â"})
    note = note_on_spelling(config, ["tetã guasu", "oga"])
    assert note == (
        "1 of 2 references are spelled as this run never writes (nfc, ã>â), as in tetã instead of tetâ: its scores are "
        "too low"
    )
    assert "cafe\u0301 instead of café" in note_on_spelling(config, ["un cafe\u0301"])
    for references in (["tetâ"], ["tetã", *["tetâ"] * 30], []):
        assert note_on_spelling(config, references) is None
    assert note_on_spelling(TokenizerConfig(), ["cafe\u0301"]) is None
