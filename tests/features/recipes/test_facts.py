"""Facts of a corpus, which the choices of `mt init` depend on."""

import numpy as np
import pytest

from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import scripts_in, scripts_of
from mt_cli.data.prepare import read
from mt_cli.features.recipes.facts import _diversity, find_facts

VALID = {"builtin": "reverse-words", "split": "valid"}


@pytest.fixture
def facts(tmp_path):
    """A function that finds the facts of the text of a table."""

    def find(text, languages=("en", "it"), valid=VALID, **corpus):
        (tmp_path / "p.tsv").write_text(text, encoding="utf-8")
        corpus |= {"train": {"file": str(tmp_path / "p.tsv")}, "valid": valid}
        corpus |= dict(zip(("source", "target"), languages, strict=True))
        config = parse_config({"name": "t", "corpus": corpus, "training": {"device": "cpu"}}, "f.yaml")
        return find_facts(config, read(config, Cache(tmp_path / "cache")))

    return find


def test_facts_are_counted_after_cleaning(facts):
    found = facts("a b\tx y z\na b\tx y z\nc\t今日は\n \tq\n", languages=("en", "xx"))
    assert (found.num_pairs, found.num_target_words, found.num_distinct_words) == (2, 5, 8)
    assert found.scripts == ({"Latin"}, {"Latin", "Han", "Hiragana"})


def test_text_is_in_capitals_if_half_of_the_sources_are(facts):
    small, large = (f"{word * 2} {word * 3} {word * 4}\t{word}\n" for word in ("ab", "CD"))
    for text, is_in_capitals in ((small * 2 + large, False), (small + large, True)):
        assert facts(text, filters={"duplicates": False}).is_in_capitals == is_in_capitals


def test_diversity_is_distinct_2_of_the_less_diverse_language(facts, tmp_path):
    filters = {"overlap": False, "duplicates": False}
    valid = {"file": str(tmp_path / "p.tsv")}
    found = facts("a b a b\ta b c d\na b c d\te f g h\n", valid=valid, filters=filters)
    assert found.diversity == pytest.approx(4 / 6)


def test_diversity_depends_on_the_text_and_not_on_its_size():
    random = np.random.default_rng(1)
    few, many = ([" ".join(map(str, random.zipf(1.3, 10))) for _ in range(number)] for number in (1_000, 20_000))
    assert _diversity(many) == pytest.approx(_diversity(few), rel=0.05)
    # Of single words, different words count.
    assert _diversity(["one", "two", "one two three"] + ["one", "two"] * 100) < 0.05
    assert _diversity([f"w{number}" for number in range(300)]) == 1.0


@pytest.mark.parametrize("times", [1, 3])
def test_the_length_of_sentences_is_compared_with_valid(facts, tmp_path, times):
    lines = [f"en{n:03} words\tit{n:03} words" for n in range(50)]
    repeated = ("\t".join(" ".join([side] * times) for side in line.split("\t")) for line in lines)
    (tmp_path / "valid.tsv").write_text("".join(f"{line}\n" for line in repeated), encoding="utf-8")
    found = facts("\n".join(lines), valid={"file": str(tmp_path / "valid.tsv")}, filters={"overlap": False})
    assert found.length_ratio == pytest.approx((12 * times - 1) / 11)


def test_scripts_of_real_sentences_are_those_of_their_languages(texts):
    for language, lines in texts.items():
        assert scripts_in(" ".join(lines)) <= set(scripts_of(language)), language


def test_scripts_without_spaces_have_about_as_many_words(facts):
    sentences = {
        "th": "ฉันชอบอ่านหนังสือในสวนสาธารณะทุกเย็นกับเพื่อนของฉัน",
        "my": "ကျွန်တော်သည်ညနေတိုင်းသူငယ်ချင်းနှင့်အတူပန်းခြံတွင်စာအုပ်ဖတ်ရတာကြိုက်သည်",
        "zh": "我喜欢每天晚上和朋友一起在公园里看书",
        "it": "mi piace leggere libri nel parco ogni sera con il mio amico",
    }
    for language, sentence in sentences.items():
        found = facts(f"I like to read\t{sentence}\n", languages=("en", language))
        assert 7 <= found.num_target_words <= 17, language


@pytest.mark.parametrize("is_mixed", [True, False])
def test_mixed_spellings_are_normalised_and_others_are_not(facts, is_mixed):
    text = "".join(f"casa {number}\tjach 'a uta {number}\n" for number in range(200))
    text += "".join(f"otra {number}\tjach’a uta {number}\n" for number in range(30))
    text = text if is_mixed else text.replace(" '", "'").replace("’", "'")
    found = facts(text, languages=("es", "ay"), valid={"fraction": 0.1})
    assert found.spellings == (("apostrophes", "joined_apostrophes") if is_mixed else ())
