import gzip
import json
import os
import random
import unicodedata

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from mt_cli.batching.streamed import first_pairs
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import TokenizerConfig
from mt_cli.config.sources import KINDS, BuiltinSource, DatasetSource, FilesSource, FolderSource, TextSource
from mt_cli.corpus import sources
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.reading import read_corpora, read_evaluation_pairs
from mt_cli.corpus.sources import content_of, places_in, read_rows
from mt_cli.errors import CorpusError, MtError
from mt_cli.tokenizer.spelling import spelling_of

LANGUAGES = ("en", "it")


def read_pairs(sources):
    return read_evaluation_pairs(sources, LANGUAGES, [LANGUAGES], "k")[0]


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


def table(path, pairs):
    return {"file": write(path, [f"{source}\t{target}" for source, target in pairs])}


def corpora_of(tmp_path, seed=1, advance=lambda number: None, **corpus):
    config = CorpusConfig.model_validate(
        {"source": "xx", "target": "yy", "valid": {"builtin": "reverse-words"}, **corpus}, strict=False
    )
    return read_corpora(config, seed, Cache(tmp_path / "cache"), advance)


def some_pairs(first, last):
    return [(f"source {number}", f"target {number}") for number in range(first, last)]


def test_a_pair_with_an_empty_side_is_dropped_and_counted_and_nothing_shifts(tmp_path):
    pairs = [("one", "uno"), (" ", "due"), ("three", ""), ("", "\u2003"), ("four", "quattro")]
    train = corpora_of(tmp_path, train=table(tmp_path / "a.tsv", pairs))["train"]
    assert train.pairs == [("one", "uno"), ("four", "quattro")]
    assert train.counts() == {"kept": 2, "blank_source": 1, "blank_target": 1, "blank_pair": 1}
    assert [number for number, _, _ in train.rows()] == [1, 5]


def test_the_held_out_share_depends_on_the_seed_alone(tmp_path):
    train = {"builtin": "reverse-words", "split": "valid", "filters": {"identical": False}}

    def held_out(run, training_seed, **share):
        return corpora_of(tmp_path / run, training_seed, train=train, valid={"fraction": 0.2, **share})

    first, again, other = held_out("a", 1), held_out("b", 1), held_out("c", 2)
    assert first["valid"].pairs == again["valid"].pairs != other["valid"].pairs
    assert 75 < len(first["valid"]) < 125, "a share of 0.2 of 500, by the content of each pair"
    assert not set(first["valid"].pairs) & set(first["train"].pairs)
    whole = read_pairs([BuiltinSource(builtin="reverse-words", split="valid")])
    assert {*first["valid"].pairs, *first["train"].pairs} == {*whole}
    assert held_out("d", 2, seed=1)["valid"].pairs == first["valid"].pairs, "a share may have its own seed"


def test_a_held_out_pair_stays_held_out_when_a_corpus_grows(tmp_path):
    old, new = some_pairs(0, 400), some_pairs(400, 900)
    rows = {"old": old, "before": [*new, *old], "between": sorted([*old, *new])}

    def held_out(name, fraction):
        train, valid = table(tmp_path / f"{name}.tsv", rows[name]), {"fraction": fraction, "seed": 1}
        corpora = corpora_of(tmp_path / f"{name}{fraction}", train=train, valid=valid)
        assert not {*corpora["train"].pairs} & {*corpora["valid"].pairs}
        return {*corpora["valid"].pairs}

    assert held_out("old", 0.2) <= held_out("before", 0.2) == held_out("between", 0.2)
    assert held_out("between", 0.1) < held_out("between", 0.2), "a smaller share is a part of a larger one"


def test_the_held_out_pairs_do_not_depend_on_how_a_text_is_spelled_or_a_tokenizer_spells(tmp_path):
    pairs = [(f"Perché {number} l'età", f"Why {number} age") for number in range(300)]
    other = [(unicodedata.normalize("NFD", one).replace("'", "’").upper(), two) for one, two in pairs]
    held_out = []
    for rows, options in ((pairs, {}), (other, {}), (pairs, {"lowercase": True})):
        tree = {"source": "xx", "target": "yy", "train": table(tmp_path / "a.tsv", rows)}
        config = CorpusConfig.model_validate(tree | {"valid": {"fraction": 0.2, "seed": 1}}, strict=False)
        spelling = spelling_of(TokenizerConfig(**options))
        corpora = read_corpora(config, 1, Cache(tmp_path / "cache"), spelling=spelling)
        held_out.append([target for _, target in corpora["valid"].pairs])
    assert held_out[0] == held_out[1] == held_out[2]


SPELLINGS = [
    ({"normalize": ("nfc",)}, "perché no", "perche\u0301 no", "perche no"),
    ({"normalize": ("apostrophes",)}, "l'età", "l’età", "l età"),
    ({"normalize": ("joined_apostrophes",)}, "ch'a", "ch ' a", "ch a"),
    ({"letters": {"ã": "â"}}, "tetâ", "tetã", "teta"),
    ({"lowercase": True}, "Das Haus", "das haus", "das maus"),
    ({"nfkc": True}, "ﬁne №1", "fine No1", "fine 1"),
    ({"algorithm": "sentencepiece"}, "ﬁne", "fine", "Fine"),
]


@pytest.mark.parametrize(("options", "text", "same", "other"), SPELLINGS)
def test_duplicates_and_overlap_are_found_in_texts_as_the_tokenizer_spells_them(tmp_path, options, text, same, other):
    train = [(text, "a"), (same, "a"), (other, "a"), ("held", text), ("x", "y")]
    corpus = {
        "source": "xx",
        "target": "yy",
        "train": table(tmp_path / "train.tsv", train),
        "test": table(tmp_path / "test.tsv", [("t", same)]),
        "valid": table(tmp_path / "valid.tsv", [("valid", "v")]),
        "filters": {"identical": False},
    }
    for tokenizer, expected in ((options, [text, other, "x"]), ({}, [text, same, other, "held", "x"])):
        spelling = spelling_of(TokenizerConfig(**tokenizer))
        config = CorpusConfig.model_validate(corpus, strict=False)
        corpora = read_corpora(config, 1, Cache(tmp_path / "cache"), spelling=spelling)
        assert [source for source, _ in corpora["train"].pairs] == expected, tokenizer
        stream = tuple(source.model_copy(update={"streaming": True}) for source in config.train)
        in_stream = [source for source, _ in first_pairs(config.model_copy(update={"train": stream}), 9, spelling)]
        # A stream is not compared with `test` here.
        assert [text for text in in_stream if text != "held"] == [text for text in expected if text != "held"]


@pytest.mark.parametrize("duplicates", [True, False])
def test_a_held_out_share_never_leaks(tmp_path, duplicates):
    generator = random.Random(3)
    pairs = [(f"s {generator.randrange(300)}", f"t {generator.randrange(300)}") for _ in range(600)]
    pairs += pairs[:100]
    test = [(f"s {number}", f"t {number + 500}") for number in range(20)]
    settings = {
        "train": table(tmp_path / "a.tsv", pairs),
        "valid": {"fraction": 0.1},
        "test": table(tmp_path / "t.tsv", test),
        "filters": {"duplicates": duplicates},
    }
    corpora = corpora_of(tmp_path, **settings)
    for name in ("valid", "test"):
        for side in (0, 1):
            assert not {pair[side] for pair in corpora["train"].pairs} & {pair[side] for pair in corpora[name].pairs}
    assert corpora["train"].counts()["overlap"] > 20
    # Resuming reads the same again, from the cache or, where it was deleted, from the text.
    for cache in (tmp_path, tmp_path / "elsewhere"):
        again = corpora_of(cache, **settings)
        assert all(again[name].pairs == corpora[name].pairs for name in corpora)


def test_a_share_that_leaves_nothing_is_refused(tmp_path):
    with pytest.raises(CorpusError, match="leaves `train` or `valid` empty"):
        corpora_of(tmp_path, train={"builtin": "reverse-words", "split": "valid"}, valid={"fraction": 0.0001})


def test_a_sentence_of_valid_or_test_is_not_trained_on(tmp_path):
    train = [*some_pairs(0, 10), ("source 100", "other"), ("other", "target 100"), ("source 200", "target 3 too")]
    sets = {name: table(tmp_path / f"{name}.tsv", some_pairs(*span)) for name, span in SPANS.items()}
    settings = {"valid": sets["valid"], "test": sets["test"], "extra_tests": {"extra": sets["extra"]}}
    settings["train"] = table(tmp_path / "a.tsv", [*train, ("source 300", "x"), ("fine", "fine too")])
    corpora = corpora_of(tmp_path, **settings)
    assert corpora["train"].pairs == [*some_pairs(0, 10), ("fine", "fine too")]
    assert corpora["train"].counts()["overlap"] == 4
    kept = corpora_of(tmp_path, **settings, filters={"overlap": False})
    assert len(kept["train"]) == 15


SPANS = {"valid": (100, 105), "test": (200, 205), "extra": (300, 305)}


def test_duplicates_are_dropped_across_corpora_and_by_each_corpus_filters(tmp_path):
    first = table(tmp_path / "a.tsv", [("a", "b"), ("a", "b"), ("a", "c")])
    second = table(tmp_path / "b.tsv", [("a", "b"), ("d", "e"), ("d", "e")])
    valid = {"builtin": "reverse-words"}
    pairs = corpora_of(tmp_path, train=[first, second], valid=valid)["train"].pairs
    assert pairs == [("a", "b"), ("a", "c"), ("d", "e")]
    second["filters"] = {"duplicates": False}
    assert len(corpora_of(tmp_path, train=[first, second], valid=valid)["train"]) == 5


def test_validation_and_test_sets_are_not_filtered(tmp_path):
    odd = [("same", "same"), ("same", "same"), ("bell\x07", "x")]
    settings = {name: table(tmp_path / f"{name}.tsv", odd) for name in ("valid", "test")}
    corpora = corpora_of(tmp_path, train={"builtin": "reverse-words"}, **settings)
    assert len(corpora["valid"]) == len(corpora["test"]) == 3


def test_a_tag_is_prepended_to_each_source_and_does_not_hide_duplicates(tmp_path):
    plain, tagged = table(tmp_path / "a.tsv", [("a", "b")]), table(tmp_path / "b.tsv", [("a", "b"), ("c", "d")])
    tagged["tag"] = "<bt>"
    train = corpora_of(tmp_path, train=[plain, tagged])["train"]
    assert train.pairs == [("a", "b"), ("<bt> c", "d")]


def test_the_cache_is_used_until_the_data_changes(tmp_path):
    settings = {"train": table(tmp_path / "a.tsv", some_pairs(0, 50)), "valid": {"fraction": 0.1}}
    first = corpora_of(tmp_path, **settings)["train"].fingerprint
    (tmp_path / "a.tsv").touch()
    assert corpora_of(tmp_path, **settings)["train"].fingerprint == first
    changed = [
        corpora_of(tmp_path, **settings, filters={"identical": False}),
        corpora_of(tmp_path, 2, **settings),
        corpora_of(tmp_path, **{**settings, "valid": {"fraction": 0.2}}),
        corpora_of(tmp_path, **settings, source="zz"),
    ]
    table(tmp_path / "a.tsv", some_pairs(1, 51))
    changed.append(corpora_of(tmp_path, **settings))
    assert len({first, *(corpora["train"].fingerprint for corpora in changed)}) == 6


@pytest.mark.parametrize("problem", ["have changed while they were read", "line 2", "only 10 bytes are free"])
def test_a_corpus_that_cannot_be_read_leaves_nothing_behind(tmp_path, monkeypatch, problem):
    train = table(tmp_path / "a.tsv", some_pairs(0, 50))
    if problem == "line 2":
        write(tmp_path / "a.tsv", ["a\tb", "c"])
    elif problem.startswith("only"):
        monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 10}))

    def change(number):
        if "changed" in problem:
            table(tmp_path / "a.tsv", some_pairs(1, 51))

    with pytest.raises(MtError, match=problem):
        corpora_of(tmp_path, advance=change, train=train, valid={"fraction": 0.1})
    assert not (tmp_path / "cache").exists()


def test_a_stream_of_files_is_never_counted_and_reports_where_one_ends(tmp_path):
    english, italian = write(tmp_path / "a.en", ["one", "two", "three"]), write(tmp_path / "a.it", ["uno", "due"])
    rows = read_rows(FilesSource(files=(english, italian), streaming=True), LANGUAGES)
    assert [next(rows), next(rows)] == [(1, "one", "uno"), (2, "two", "due")]
    with pytest.raises(CorpusError, match=r"a\.en and .*a\.it: .* 2 lines"):
        next(rows)
    (tmp_path / "a.it").write_bytes(gzip.compress(b"uno\ndue\ntre\n"))
    for streaming in (False, True):
        with pytest.raises(CorpusError, match=r"a\.it: .*compressed with gzip"):
            list(read_rows(FilesSource(files=(english, italian), streaming=streaming), LANGUAGES))


@pytest.mark.parametrize("streaming", [False, True])
def test_a_local_dataset_is_read_or_refused_by_one_message(tmp_path, monkeypatch, streaming):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    good = pa.array(["a", "b", "c"])
    bad = pa.Array.from_buffers(pa.string(), 3, [None, good.buffers()[1], pa.py_buffer(b"a\xe9c")])
    nested = pa.StructArray.from_arrays([good, bad], ["en", "it"])
    for number, (table, message) in enumerate(
        (
            (pa.table({"en": good, "it": bad}), "row 0: not UTF-8"),
            (pa.table({"translation": nested}), "after row 0: not UTF-8"),
            (pa.table([good] * 3, names=["en", "it", "en"]), "column 'en' occurs 2 times"),
        )
    ):
        (tmp_path / str(number)).mkdir()
        parquet.write_table(table, tmp_path / str(number) / "train.parquet")
        with pytest.raises(CorpusError, match=f"train.parquet.*{message}"):
            list(read_rows(DatasetSource(dataset=str(tmp_path / str(number)), streaming=streaming), LANGUAGES))


def test_a_dataset_has_another_identity_if_its_files_change_in_size_or_not(tmp_path):
    path = tmp_path / "books" / "train.jsonl"
    path.parent.mkdir()
    source, found = DatasetSource(dataset=str(path.parent)), []
    for word in ("casa", "casa", "cosa", "case di"):
        path.write_text(json.dumps({"en": "the house", "it": word}) + "\n", encoding="utf-8")
        os.utime(path, (1, 1))
        found.append(content_of(source, LANGUAGES))
        assert [row[2] for row in read_rows(source, LANGUAGES)] == [word]
    assert found[0] == found[1] and found[1] != found[2] != found[3]


def test_the_rows_of_a_dataset_are_those_of_its_files(tmp_path):
    pairs = [*some_pairs(0, 10_000), ("007", "1.50"), ("True", "1e5"), ("NA", "null"), ("2020-01-01", "7")]
    features = [{"name": name, "dtype": kind} for name, kind in (("en", "string"), ("it", "string"), ("n", "int64"))]
    card = yaml.safe_dump({"dataset_info": {"features": features}})
    (tmp_path / "README.md").write_text(f"---\n{card}---\n", encoding="utf-8")
    lines = [f"{source},{target},{number or ''}\n" for number, (source, target) in enumerate(pairs)]
    (tmp_path / "train.csv").write_text("en,it,n\n" + "".join(lines), encoding="utf-8")
    (tmp_path / "test.csv").write_text("en;it\na;b\n", encoding="utf-8")
    source = DatasetSource(dataset=str(tmp_path))
    assert [row[1:] for row in read_rows(source, LANGUAGES)] == pairs
    for split, message in (("test", "separated by semicolons"), ("dev", "no split 'dev'; it has train, test")):
        with pytest.raises(CorpusError, match=message):
            list(read_rows(source.model_copy(update={"split": split}), LANGUAGES))


def test_a_dataset_reads_no_file_outside_of_it(tmp_path):
    (tmp_path / "own.jsonl").write_text(json.dumps({"en": "mine", "it": "mio"}), encoding="utf-8")
    folder = tmp_path / "books"
    folder.mkdir()
    for data_files, in_card, message in (
        (str(tmp_path / "own.jsonl"), "../own.jsonl", r"own.jsonl.*is not one of its files"),
        *(
            (address, address, "names files of another place")
            for address in ("hf://datasets/x/a", "http://127.0.0.1:9/a")
        ),
    ):
        (folder / "README.md").write_text(
            f"---\nconfigs:\n- config_name: a\n  data_files: {in_card}\n---\n", encoding="utf-8"
        )
        for options in ({}, {"data_files": data_files}):
            with pytest.raises(CorpusError, match=message):
                list(read_rows(DatasetSource(dataset=str(folder), **options), LANGUAGES))


def test_a_folder_is_the_pairs_of_its_files_in_the_order_of_their_names(tmp_path):
    (tmp_path / "b").mkdir()
    for name, span in {"b/one.tsv": (0, 3), "a.tsv": (3, 5), "other.csv": (5, 6)}.items():
        table(tmp_path / name, some_pairs(*span))
    source = FolderSource(folder=str(tmp_path), pattern="**/*.tsv")
    pairs = some_pairs(3, 5) + some_pairs(0, 3)
    assert list(read_rows(source, LANGUAGES)) == [(number, *pair) for number, pair in enumerate(pairs, 1)]
    corpus = CorpusConfig(source="en", target="it", train=(source,), valid=(source,))
    found = places_in(corpus, "train", [(tmp_path.name, 2), (tmp_path.name, 5)])
    assert found == {(tmp_path.name, 2): "a.tsv, line 2", (tmp_path.name, 5): "b/one.tsv, line 3"}
    before = content_of(source, LANGUAGES)
    (tmp_path / "b/one.tsv").rename(tmp_path / "b/two.tsv")
    assert content_of(source, LANGUAGES) != before


@pytest.mark.parametrize(
    ("folder", "pattern", "message"),
    [
        ("none", "*.po", "folder none: no such folder"),
        (".", "*.po", r"folder .: .*\*.po"),
        ("a.tsv", "*.po", "folder a.tsv: .*`file`"),
        (".", "../*.tsv", r"folder .: .*\.\./"),
    ],
)
def test_a_folder_without_files_is_refused(tmp_path, monkeypatch, folder, pattern, message):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "a.tsv", [("one", "uno")])
    with pytest.raises(CorpusError, match=message):
        list(read_rows(FolderSource(folder=folder, pattern=pattern), LANGUAGES))


def test_every_kind_of_source_can_be_read_and_is_documented(root):
    classes = [kind for kind in KINDS.values() if issubclass(kind, TextSource)]
    assert set(sources.KINDS) == set(classes)
    rows = (root / "docs" / "data.md").read_text(encoding="utf-8")
    assert all(f"| `{tag.strip('<>')}: " in rows for tag, kind in KINDS.items() if kind in classes)


PHRASEBOOK = {"builtin": "phrasebook-en-it", "split": "test"}


@pytest.mark.parametrize(
    ("languages", "options", "advice"),
    [
        (("en", "it"), {}, None),
        (("en_GB", "ita"), {}, None),
        (("it", "en"), {"reverse": True}, None),
        (("de", "fr"), {"languages": ["en", "it"]}, None),
        (("no", "it"), {}, "corpus.source to en and corpus.target to it"),
        (("en", "de"), {}, "corpus.source to en and corpus.target to it"),
        (("it", "en"), {}, "`reverse: true`"),
        (("en", "it"), {"reverse": True}, "`reverse: false`"),
        (("en", "it"), {"languages": ["en", "sv"]}, "corpus.source to en"),
    ],
)
@pytest.mark.parametrize("key", ["train", "extra_tests.extra"])
def test_a_built_in_corpus_is_read_in_its_languages_and_their_varieties_alone(
    tmp_path, languages, options, advice, key
):
    corpus = {"train": {"builtin": "reverse-words"}, "valid": {"builtin": "reverse-words", "split": "valid"}}
    corpus |= {"train": PHRASEBOOK | options} if key == "train" else {"extra_tests": {"extra": PHRASEBOOK | options}}
    corpus |= {"source": languages[0], "target": languages[1]}
    if advice is None:
        assert len(corpora_of(tmp_path, **corpus)[key.rpartition(".")[2]])
    else:
        with pytest.raises(CorpusError, match=rf"^corpus.{key}: phrasebook-en-it .*; set {advice}"):
            corpora_of(tmp_path, **corpus)


@pytest.mark.parametrize("languages", [("en", "en"), ("en", "eng"), ("eng_Latn", "en"), ("xx", "xx")])
def test_two_sides_in_one_language_are_refused(tmp_path, languages):
    source, target = languages
    train = [{"builtin": "reverse-words"}, {"builtin": "reverse-words", "languages": list(languages)}]
    with pytest.raises(CorpusError, match=rf"^corpus.source, corpus.target: {source} and {target} are one language"):
        corpora_of(tmp_path, source=source, target=target, train=train[0])
    with pytest.raises(CorpusError, match=rf"^corpus.train\[1\].languages: {source} and {target} are one language"):
        corpora_of(tmp_path, train=train)
