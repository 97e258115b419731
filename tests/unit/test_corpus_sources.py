"""Laws of files, folders, data sets and practice corpora as sources of pairs."""

import gzip
import json
import os
import re

import pyarrow as pa
import pytest
import yaml
from corpora import practice_pairs
from pyarrow import parquet

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import KINDS, DatasetSource, FilesSource, FolderSource, TextSource
from mt_cli.corpus import sources
from mt_cli.corpus.sources import content_of, places_in, read_rows
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


@pytest.mark.parametrize("streaming", [False, True])
def test_a_damaged_local_dataset_is_refused_by_one_message(tmp_path, monkeypatch, streaming):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    good = pa.array(["a", "b", "c"])
    bad = pa.Array.from_buffers(pa.string(), 3, [None, good.buffers()[1], pa.py_buffer(b"a\xe9c")])
    for name, table, message in (
        ("bad", pa.table({"en": good, "it": bad}), "row 0: not UTF-8"),
        ("twice", pa.table([good] * 3, names=["en", "it", "en"]), "'en'"),
    ):
        (tmp_path / name).mkdir()
        parquet.write_table(table, tmp_path / name / "train.parquet")
        with pytest.raises(CorpusError, match=f"train.parquet.*{message}"):
            rows_of(DatasetSource(dataset=str(tmp_path / name), streaming=streaming))


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
    (tmp_path / "test.csv").write_text("en;it\na;b\n", encoding="utf-8")
    source = DatasetSource(dataset=str(tmp_path))
    assert [row[1:] for row in rows_of(source)] == pairs
    for split, message in (("test", "semicolons"), ("dev", "'dev'.*train, test")):
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


def test_a_folder_is_the_pairs_of_its_files_by_name(tmp_path):
    for name, span in {"b/one.tsv": (0, 3), "a.tsv": (3, 5), "other.csv": (5, 6)}.items():
        write_table(tmp_path / name, *span)
    source = FolderSource(folder=str(tmp_path), pattern="**/*.tsv")
    expected = [(place, f"source {n}", f"target {n}") for place, n in enumerate([3, 4, 0, 1, 2], start=1)]
    assert rows_of(source) == expected
    corpus = CorpusConfig(source="en", target="it", train=(source,), valid=(source,))
    places = places_in(corpus, "train", [(tmp_path.name, 2), (tmp_path.name, 5)])
    assert places == {(tmp_path.name, 2): "a.tsv, line 2", (tmp_path.name, 5): "b/one.tsv, line 3"}
    before = content_of(source, LANGUAGES)
    (tmp_path / "b/one.tsv").rename(tmp_path / "b/two.tsv")
    assert content_of(source, LANGUAGES) != before


@pytest.mark.parametrize(("folder", "pattern"), [("none", "*.po"), (".", "*.po"), ("a.tsv", "*.po"), (".", "../*.tsv")])
def test_a_folder_without_files_is_refused(tmp_path, monkeypatch, folder, pattern):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "a.tsv", 0, 1)
    with pytest.raises(CorpusError, match=f"folder {folder}: "):
        rows_of(FolderSource(folder=folder, pattern=pattern))


def test_every_kind_of_source_can_be_read_and_is_documented(root):
    classes = [kind for kind in KINDS.values() if issubclass(kind, TextSource)]
    assert set(sources.KINDS) == set(classes)
    rows = (root / "docs" / "data.md").read_text(encoding="utf-8")
    assert all(f"| `{tag.strip('<>')}: " in rows for tag, kind in KINDS.items() if kind in classes)


@pytest.fixture(scope="module")
def phrasebook():
    splits = ("train", "valid", "test", "test_compositional")
    return {split: practice_pairs(split) for split in splits}


def words_in(text):
    return re.findall(r"\w+(?:[':]\w+)*", text)


def test_each_practice_sentence_is_in_one_split_once(phrasebook):
    assert [len(pairs) for pairs in phrasebook.values()] == [48_000, 1_000, 1_000, 1_000]
    pairs = [pair for split in phrasebook.values() for pair in split]
    for side in (0, 1):
        assert len({pair[side] for pair in pairs}) == len(pairs)
    with pytest.raises(CorpusError, match="'dev'"):
        practice_pairs("dev")
    reversed_words = [pair for split in ("valid", "test") for pair in practice_pairs(split, "reverse-words")]
    assert len({source for source, _ in reversed_words}) == 1_500
    assert all(target == source[::-1] for source, target in reversed_words)


def test_known_words_make_new_practice_sentences(phrasebook):
    """Also the example of the README."""
    known = {word for english, _ in phrasebook["train"] for word in words_in(english)}
    for split in ("test", "test_compositional"):
        assert sum(set(words_in(english)) <= known for english, _ in phrasebook[split]) > 900
    example = "The old doctor does not see the red house."
    assert example not in dict(phrasebook["train"]) and set(words_in(example)) <= known
