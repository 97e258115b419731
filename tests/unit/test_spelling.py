import json

import pytest

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.spelling import APOSTROPHES, SPACES_BESIDE, mixed_spellings, spaces_beside, spellings_to_normalize
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


MARKED = [
    "usa `foro` en casa",
    "véase :ref:`la guía <guide>` de aquí",
    "pulsa <b>Sí</b> o 'no",
    "el {name} de 'tu casa",
]


@pytest.mark.parametrize("text", MARKED)
def test_markup_is_neither_taken_for_apostrophes_nor_joined_with_words(text):
    texts = [text.replace("casa", f"casa{number}") for number in range(100)]
    assert options(texts) == []
    assert options([*texts, *(f"aka {word.replace(chr(39), ' ' + chr(39), 1)} uta" for word in WORDS * 40)]) == []


def test_no_space_beside_a_backtick_is_removed():
    for text in ("usa `foro de ayuda`_ o :ref:`la guía`", "a ` b", "en `casa", "di ` 'no"):
        tokenizer = trained([text, *WORDS] * 9, "joined_apostrophes")
        assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_a_tokenizer_from_when_backticks_were_joined_is_still_read(tmp_path):
    text = trained(WORDS * 9, *ALL).to_json()
    for new, old in zip(SPACES_BESIDE, spaces_beside(f"'{APOSTROPHES}"), strict=True):
        assert json.dumps(new, ensure_ascii=False) in text
        text = text.replace(json.dumps(new, ensure_ascii=False), json.dumps(old, ensure_ascii=False))
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.decode(again.encode(["jach `a"])) == ["jach'a"]


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
