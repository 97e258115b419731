import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config import BuiltinSource, CorpusConfig, FileSource, FilesSource
from mt_cli.corpus.reading import read_corpora, read_corpus, read_lines
from mt_cli.corpus.reverse_words import reverse_words_pairs
from mt_cli.errors import CorpusError

LANGUAGES = ("en", "it")
LINE = st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(LINE, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path_factory, lines, end, ends_last):
    path = tmp_path_factory.mktemp("lines") / "text"
    if lines and not lines[-1] and not ends_last:
        lines = [*lines, "last"]  # Without its end an empty last line cannot be told from none.
    text = end.join(lines) + (end if ends_last and lines else "")
    path.write_bytes(text.encode())
    expected = [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(lines)]
    assert read_lines(path) == expected


def test_two_files_and_a_table_give_the_same_pairs(tmp_path):
    (tmp_path / "a.en").write_text("one\u2028two\nthree\n", encoding="utf-8")
    (tmp_path / "a.it").write_text("uno due\n\ufefftre\n", encoding="utf-8")
    (tmp_path / "a.tsv").write_text("one\u2028two\tuno due\textra\nthree\t\ufefftre\n", encoding="utf-8")
    files = FilesSource(files=(str(tmp_path / "a.en"), str(tmp_path / "a.it")))
    table = FileSource(file=str(tmp_path / "a.tsv"))
    assert read_corpus([files], LANGUAGES, "k").pairs == read_corpus([table], LANGUAGES, "k").pairs


def test_a_pair_with_an_empty_side_is_dropped_and_counted_and_nothing_shifts(tmp_path):
    (tmp_path / "a.tsv").write_text("one\tuno\n \tdue\nthree\t\n\t\nfour\tquattro\n", encoding="utf-8")
    corpus = read_corpus([FileSource(file=str(tmp_path / "a.tsv"))], LANGUAGES, "k")
    assert corpus.pairs == [("one", "uno"), ("four", "quattro")]
    assert corpus.num_dropped == {"empty source": 1, "empty target": 1, "both sides empty": 1}


def test_several_sources_follow_each_other(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("c\td\n", encoding="utf-8")
    sources = [FileSource(file=str(tmp_path / name)) for name in ("a.tsv", "b.tsv")]
    assert read_corpus(sources, LANGUAGES, "k").pairs == [("a", "b"), ("c", "d")]


def config_with(fraction):
    train = {"builtin": "reverse-words", "split": "valid"}
    return CorpusConfig.model_validate(
        {"source": "a", "target": "b", "train": train, "valid": {"fraction": fraction}}, strict=False
    )


def test_the_held_out_share_depends_on_the_seed_alone():
    first, again, other = (read_corpora(config_with(0.2), seed) for seed in (1, 1, 2))
    assert first["valid"].pairs == again["valid"].pairs != other["valid"].pairs
    assert len(first["valid"].pairs) == 100
    assert not set(first["valid"].pairs) & set(first["train"].pairs)
    assert set(first["valid"].pairs) | set(first["train"].pairs) == set(reverse_words_pairs("valid"))


def test_a_share_that_leaves_nothing_is_refused():
    with pytest.raises(CorpusError, match="leaves one side empty"):
        read_corpora(config_with(0.0001), 1)


@pytest.mark.parametrize("lost", [3, 700, 1_900])
def test_the_line_where_files_part_is_found(tmp_path, lost):
    generator = random.Random(lost)
    english = [" ".join(["word"] * generator.randrange(3, 20)) + generator.choice(".?!") for _ in range(2_000)]
    italian = [line.replace("word", "parola") for line in english]
    del italian[lost]
    for name, lines in (("a.en", english), ("a.it", italian)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = FilesSource(files=(str(tmp_path / "a.en"), str(tmp_path / "a.it")))
    with pytest.raises(CorpusError) as caught:
        read_corpus([source], LANGUAGES, "k")
    assert "2,000 lines" in str(caught.value)
    assert "1,999" in str(caught.value)
    assert abs(int(str(caught.value).rpartition(" ")[2].replace(",", "")) - (lost + 1)) <= 2


def test_reversed_words_are_reversed_distinct_and_apart():
    splits = [reverse_words_pairs(split) for split in ("train", "valid", "test")]
    assert [len(pairs) for pairs in splits] == [20_000, 500, 1_000]
    assert all(target == source[::-1] for pairs in splits for source, target in pairs)
    assert len({source for pairs in splits for source, _ in pairs}) == 21_500
    with pytest.raises(CorpusError, match="no split"):
        read_corpus([BuiltinSource(builtin="reverse-words", split="exam")], LANGUAGES, "k")
