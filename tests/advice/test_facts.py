"""Facts of a corpus, which the choices of `mt init` depend on."""

from dataclasses import replace

import numpy as np
import pytest

from mt_cli.advice.facts import _diversity, find_facts
from mt_cli.config.loading import parse_config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import read

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
    found = facts("A B\tx y z\nA B\tx y z\nc\t今日は\n \tq\n", languages=("en", "xx"))
    assert (found.num_pairs, found.num_target_words, found.num_distinct_words) == (2, 5, 8)
    assert found.scripts == ({"Latin"}, {"Latin", "Han", "Hiragana"})


def test_pairs_count_once_if_both_directions_are_learned(facts):
    text = "A B\tx y z\nc\tq r\n"
    both = facts(text, both_directions=True, tag="to_target")
    assert both == replace(facts(text), num_directions=2.0)


def test_diversity_is_distinct_2_of_the_less_diverse_language(facts, tmp_path):
    filters = {"overlap": False, "duplicates": False}
    valid = {"file": str(tmp_path / "p.tsv")}
    found = facts("a b a b\ta b c d\na b c d\te f g h\n", valid=valid, filters=filters)
    assert found.diversity == pytest.approx(4 / 6)


def test_diversity_depends_on_the_text_and_not_on_its_size():
    random = np.random.default_rng(1)
    few, many = ([" ".join(map(str, random.zipf(1.3, 10))) for _ in range(number)] for number in (1_000, 20_000))
    assert _diversity(many) == pytest.approx(_diversity(few), rel=0.05)
    assert _diversity([f"w{number}" for number in range(300)]) == 1.0  # Of single words, different words count.


@pytest.mark.parametrize("times", [1, 3])
def test_the_length_of_sentences_is_compared_with_valid(facts, tmp_path, times):
    lines = [f"en{n:03} words\tit{n:03} words" for n in range(50)]
    repeated = ("\t".join(" ".join([side] * times) for side in line.split("\t")) for line in lines)
    (tmp_path / "valid.tsv").write_text("".join(f"{line}\n" for line in repeated), encoding="utf-8")
    found = facts("\n".join(lines), valid={"file": str(tmp_path / "valid.tsv")}, filters={"overlap": False})
    assert found.length_ratio == pytest.approx((12 * times - 1) / 11)


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
