import json
import random
from unicodedata import normalize

import pytest

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.spelling import (
    APOSTROPHES,
    letters_to_replace,
    mixed_spellings,
    other_letters,
    spellings_to_normalize,
)
from mt_cli.errors import RunError
from mt_cli.evaluation.texts import Scorer
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.tokenizer.trust import has_only_own_steps

WORDS = ["jach'a", "qilqt'aña", "t'ant'a", "k'iri", "ch'uñu"]
ALL = ("nfc", "apostrophes", "joined_apostrophes")


def options(texts):
    return [found.option for found in mixed_spellings(texts)]


def trained(texts, *names):
    return train_tokenizer(texts, TokenizerConfig(algorithm="bpe", vocab_size=400, normalize=names), ())


def test_one_spelling_is_not_mixed():
    for mark in f"'{APOSTROPHES}":
        assert not mixed_spellings([word.replace("'", mark) for word in WORDS * 30])
    assert not mixed_spellings([]) and not mixed_spellings(["no apostrophe", "l'un", "l’un"])


@pytest.mark.parametrize("mark", APOSTROPHES)
def test_other_apostrophes_are_counted_with_examples(mark):
    (found,) = mixed_spellings([*WORDS * 20, *(f"mä {word.replace(chr(39), mark)} uta" for word in WORDS * 2)])
    assert found.option == "apostrophes" and found.counts == {"'": 120, mark: 12}
    assert found.examples[0] == f"mä jach{mark}a uta"


def test_a_space_before_an_apostrophe_inside_a_word_is_found_unless_it_begins_words_or_quotes():
    split = [f"aka {word.replace(chr(39), ' ' + chr(39), 1)} uta" for word in WORDS * 20]
    assert options([*split, *WORDS * 4]) == ["joined_apostrophes"]
    assert options([*WORDS * 60, *["memexeitsie 'aix iyari"] * 60]) == [], "as in Wixarika"
    assert options(["he said 'no' and left"] * 100) == [], "quotation marks"


def test_an_apostrophe_with_spaces_on_both_sides_is_one_inside_a_word():
    texts = [f"aka {word.replace(chr(39), ' ’ ')} uta" for word in WORDS * 20]
    assert options(texts) == ["joined_apostrophes"]
    tokenizer = trained(texts, "joined_apostrophes")
    assert tokenizer.decode(tokenizer.encode(["aka ch ’ ama uta", "ch ' ama", "a ’ ’ b"])) == [
        "aka ch’ama uta",
        "ch'ama",
        "a ’ ’ b",
    ]


def test_decomposed_letters_are_found():
    (found,) = mixed_spellings([*["café"] * 50, "un cafe\u0301 solo"])
    assert (found.option, found.counts) == ("nfc", {"composed": 50, "decomposed": 1})


def test_normalised_spellings_are_not_mixed_any_more():
    texts = [*WORDS * 20, *(word.replace("'", "’") for word in WORDS * 4), *["cafe\u0301"] * 9]
    texts += [f"aka {word.replace(chr(39), ' ' + chr(39), 1)} uta" for word in WORDS * 40]
    assert sorted(options(texts)) == sorted(ALL)
    tokenizer = trained(texts, *ALL)
    assert not mixed_spellings(tokenizer.decode(tokenizer.encode(texts)))


def test_each_value_changes_what_it_names_alone():
    text = "jach 'a qilqt’ana cafe\u0301 'quote' ’ a’"
    changed = {
        "nfc": "jach 'a qilqt’ana café 'quote' ’ a’",
        "apostrophes": "jach 'a qilqt'ana cafe\u0301 'quote' ’ a’",
        "joined_apostrophes": "jach'a qilqt’ana cafe\u0301 'quote' ’ a’",
    }
    for name, expected in changed.items():
        tokenizer = trained([text] * 9, name)
        assert tokenizer.decode(tokenizer.encode([text])) == [expected]


def test_tokens_have_their_places_in_the_text_that_was_given():
    text = "jach 'a qilqt’ana"
    tokenizer = trained([text] * 9, *ALL)
    ends = [end for _, end in tokenizer.spans(text)]
    assert ends == sorted(ends) and ends[-1] == len(text)


def test_a_normalising_tokenizer_is_trusted_when_it_is_read_again(tmp_path):
    tokenizer = trained(WORDS * 9, *ALL)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.encode(["jach ’a"]) == tokenizer.encode(["jach'a"]) and has_only_own_steps(again._backend)


def test_the_validation_text_says_which_apostrophe_is_wanted():
    other = [word.replace("'", "’") for word in WORDS * 20]
    assert spellings_to_normalize([([*other, *WORDS], WORDS * 5)]) == ["apostrophes"]
    assert spellings_to_normalize([(other, WORDS * 20)]) == ["apostrophes"], "train and valid differ"
    assert spellings_to_normalize([([*WORDS * 20, *other], other)]) == []
    both = [(other, WORDS * 20), ([*WORDS * 20, *other], other)]
    assert spellings_to_normalize(both) == [], "one language has mostly others"


def test_a_few_accents_in_a_text_without_apostrophes_say_nothing():
    other = [word.replace("'", "’") for word in WORDS * 200]
    unused = (WORDS * 200, [*["jach ´a"] * 9, *["jacha"] * 200])
    assert spellings_to_normalize([(other, WORDS * 20), unused]) == ["apostrophes"]


def test_the_character_that_a_text_has_most_is_not_replaced():
    texts = [*WORDS * 4, *(word.replace("'", "ʼ") for word in WORDS * 40)]
    assert options(texts) == ["apostrophes"] and spellings_to_normalize([(texts, [])]) == []
    assert spellings_to_normalize([([word.replace("'", "X") for word in texts], [])]) == []


def test_a_score_of_normalised_hypotheses_says_so():
    plain, named = Scorer.of("ay"), Scorer("ay", "13a", spelling=ALL)
    assert named.score(["a b"], ["a b"])["chrf"].signature == (
        plain.score(["a b"], ["a b"])["chrf"].signature + "|normalize:nfc+apostrophes+joined_apostrophes"
    )


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
    (found,) = other_letters(train, valid)
    assert (found.old, found.new) == ("ã", "â") and found.num_words > 1_000
    assert 1 <= len(found.examples) <= 3 and all("ã" in example for example in found.examples)
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
    assert has_only_own_steps(tokenizer._backend)


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


def test_a_letter_of_another_language_stays():
    own = (made_up(300, "aãeou"), made_up(60, "aâeou", 2))
    other = (made_up(300, "aãeiou", 3), made_up(60, "aãeiou", 4))
    assert letters_to_replace([own, other]) == {}
    assert letters_to_replace([(made_up(300, "aiou", 3), made_up(60, "aiou", 4)), own]) == {"ã": "â"}


@pytest.mark.parametrize("algorithm", ["bpe", "unigram", "char", "word_level"])
def test_letters_are_replaced_in_both_cases_and_such_a_tokenizer_is_trusted(tmp_path, algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=400, letters={"ã": "â", "'": ""})
    tokenizer = train_tokenizer(["tetã TETÃ m'bae â Â"] * 9, config, ())
    texts = ["tetã TETÃ", "teta\u0303 m'bae"]
    assert tokenizer.decode(tokenizer.encode(texts)) == ["tetâ TETÂ", "tetâ mbae"]
    ends = [end for _, end in tokenizer.spans(texts[1])]
    assert ends == sorted(ends) and ends[-1] == len(texts[1])
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    assert has_only_own_steps(Tokenizer.load(tmp_path / "tokenizer.json")._backend)


@pytest.mark.parametrize("content", ["ab", "▁", " ", "\n", "1"])
def test_a_tokenizer_that_replaces_a_letter_by_anything_else_is_not_trusted(tmp_path, content):
    state = json.loads(train_tokenizer(["tetã"], TokenizerConfig(algorithm="char", letters={"ã": "â"}), ()).to_json())
    step = next(each for each in state["normalizer"]["normalizers"] if each.get("pattern") == {"String": "ã"})
    step["content"] = content
    (tmp_path / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(RunError, match="splits or joins text in a way that no"):
        Tokenizer.load(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    "letters",
    [
        *({"ã": "ab"}, {"ab": "c"}, {"a": "a"}, {"a": " "}, {" ": ""}, {"": "a"}, {"▁": ""}, {"a": "b", "b": "c"}),
        *({"1": "2"}, {"a\u0303": "â"}, {"a\u0331\u0332\u0333\u0331": "a"}, {"\u0331": "a"}),
    ],
)
def test_what_is_no_replacement_of_a_letter_is_a_config_error(letters):
    with pytest.raises(ValueError, match="give two different letters"):
        TokenizerConfig(letters=letters)


def test_a_score_names_the_letters_that_were_replaced():
    config = TokenizerConfig(normalize=["nfc"], letters={"ã": "â", "'": ""})
    scores = Scorer("gn", "13a", spelling=config.changes_of_spelling).score(["a"], ["a"])
    assert scores["bleu"].signature.endswith("|normalize:nfc+ã>â+'>")
