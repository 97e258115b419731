"""Laws of files, folders, data sets and practice corpora as sources of pairs."""

import gzip
import json
import os
import re

import pytest
import yaml
from corpora import practice_pairs

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import BuiltinSource, DatasetSource, FilesSource, FolderSource
from mt_cli.corpus.source_rows import content_of, places_in, read_rows
from mt_cli.errors import CorpusError

LANGUAGES = ("en", "it")


def rows_of(source, **changes):
    return list(read_rows(source.model_copy(update=changes), LANGUAGES))


def write_table(path, first, last):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"source {n}\ttarget {n}\n" for n in range(first, last)), encoding="utf-8")


def test_a_stream_of_files_reports_where_one_ends(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\nthree\n", encoding="utf-8")
    (tmp_path / "a.it").write_text("uno\ndue\n", encoding="utf-8")
    source = FilesSource(files=(str(tmp_path / "a.en"), str(tmp_path / "a.it")), streaming=True)
    rows = read_rows(source, LANGUAGES)
    assert [next(rows), next(rows)] == [(1, "one", "uno"), (2, "two", "due")]
    with pytest.raises(CorpusError, match=r"a\.en and .*a\.it: .* 2 lines"):
        next(rows)
    (tmp_path / "a.it").write_bytes(gzip.compress(b"uno\ndue\ntre\n"))
    for streaming in (False, True):
        with pytest.raises(CorpusError, match=r"a\.it: .*gzip"):
            rows_of(source, streaming=streaming)


def test_the_client_still_has_its_list_of_files(tmp_path):
    """`corpus/hub.py` uses this private function, and has a slower way without it."""
    from huggingface_hub._tree_cache import read_tree_cache

    assert read_tree_cache(str(tmp_path), "0" * 40) is None


def test_a_dataset_has_another_identity_if_its_files_change(tmp_path):
    path = tmp_path / "books" / "train.jsonl"
    path.parent.mkdir()
    source, identities = DatasetSource(dataset=str(path.parent)), []
    for word in ("casa", "casa", "cosa", "case di"):
        path.write_text(json.dumps({"en": "the house", "it": word}) + "\n", encoding="utf-8")
        os.utime(path, (1, 1))
        identities.append(content_of(source, LANGUAGES))
        assert [row[2] for row in rows_of(source)] == [word]
    assert identities[0] == identities[1] and identities[1] != identities[2] != identities[3]


def test_the_rows_of_a_dataset_are_those_of_its_files(tmp_path):
    pairs = [("source", "target"), ("007", "1.50"), ("True", "1e5"), ("NA", "null"), ("2020-01-01", "7")]
    features = [{"name": name, "dtype": kind} for name, kind in (("en", "string"), ("it", "string"), ("n", "int64"))]
    card = yaml.safe_dump({"dataset_info": {"features": features}})
    (tmp_path / "README.md").write_text(f"---\n{card}---\n", encoding="utf-8")
    lines = [f"{source},{target},{number or ''}\n" for number, (source, target) in enumerate(pairs)]
    (tmp_path / "train.csv").write_text("en,it,n\n" + "".join(lines), encoding="utf-8")
    (tmp_path / "test.csv").write_text("en|it\na|b\n", encoding="utf-8")
    source = DatasetSource(dataset=str(tmp_path))
    assert [row[1:] for row in rows_of(source)] == pairs
    for split, message in (("test", "found 1 column"), ("dev", "'dev'.*train, test")):
        with pytest.raises(CorpusError, match=message):
            rows_of(source, split=split)


def test_a_dataset_reads_no_file_outside_of_it(tmp_path):
    (tmp_path / "own.jsonl").write_text(json.dumps({"en": "mine", "it": "mio"}), encoding="utf-8")
    folder = tmp_path / "books"
    folder.mkdir()
    addresses = ("hf://datasets/x/a", "http://127.0.0.1:9/a")
    for data_files, in_card in ((str(tmp_path / "own.jsonl"), "../own.jsonl"), *zip(addresses, addresses, strict=True)):
        card = f"---\nconfigs:\n- config_name: a\n  data_files: {in_card}\n---\n"
        (folder / "README.md").write_text(card, encoding="utf-8")
        for options in ({}, {"data_files": data_files}):
            with pytest.raises(CorpusError):
                rows_of(DatasetSource(dataset=str(folder), **options))


@pytest.mark.parametrize("name", ["t[sv]", "w?", "*.tsv"])
def test_a_folder_may_have_the_name_of_a_pattern(tmp_path, name):
    write_table(tmp_path / name / "a.tsv", 0, 3)
    assert len(rows_of(FolderSource(folder=f"{tmp_path}/{name}/**/*.tsv"))) == 3
    with pytest.raises(CorpusError, match=r"has no \.po, \.tmx or \.xlf files"):
        rows_of(FolderSource(folder=f"{tmp_path}/{name}"))


def test_a_folder_is_the_pairs_of_its_files_by_name(tmp_path):
    for name, span in {"b/one.tsv": (0, 3), "a.tsv": (3, 5), "other.csv": (5, 6)}.items():
        write_table(tmp_path / name, *span)
    source = FolderSource(folder=f"{tmp_path}/**/*.tsv")
    expected = [(place, f"source {n}", f"target {n}") for place, n in enumerate([3, 4, 0, 1, 2], start=1)]
    assert rows_of(source) == expected
    corpus = CorpusConfig(source="en", target="it", train=(source,), valid=(source,))
    places = places_in(corpus, "train", [(tmp_path.name, 2), (tmp_path.name, 5)])
    assert places == {(tmp_path.name, 2): "a.tsv, line 2", (tmp_path.name, 5): "b/one.tsv, line 3"}
    before = content_of(source, LANGUAGES)
    (tmp_path / "b/one.tsv").rename(tmp_path / "b/two.tsv")
    assert content_of(source, LANGUAGES) != before


@pytest.mark.parametrize("folder", ["none", ".", "*.po", "a.tsv", "a.tsv/*.po"])
def test_a_folder_without_files_is_refused(tmp_path, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "a.tsv", 0, 1)
    with pytest.raises(CorpusError, match=f"folder {re.escape(folder)}: "):
        rows_of(FolderSource(folder=folder))


def test_each_practice_sentence_is_in_one_split_once():
    pairs = [pair for split in ("train", "valid", "test", "test_compositional") for pair in practice_pairs(split)]
    reversed_words = [pair for split in ("valid", "test") for pair in practice_pairs(split, "reverse-words")]
    for practice in (pairs, reversed_words):
        assert all(len({pair[side] for pair in practice}) == len(practice) > 0 for side in (0, 1))
    assert all(target == source[::-1] for source, target in reversed_words)
    with pytest.raises(CorpusError, match="'dev'"):
        practice_pairs("dev")


def test_a_practice_corpus_is_read_in_its_languages_alone():
    source = BuiltinSource(builtin="phrasebook-en-it", split="test")
    pairs = [row[1:] for row in read_rows(source, ("en_GB", "ita"))]
    assert [row[2:0:-1] for row in read_rows(source, ("it", "en"))] == pairs
    with pytest.raises(CorpusError, match="names en, it, and the languages are en and de"):
        list(read_rows(source, ("en", "de")))
