import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import yaml
from pyarrow import parquet

from mt_cli.config import presets
from mt_cli.config.loading import config_of_text, load_config, parse_config
from mt_cli.config.sources import FileSource, FilesSource
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import CorpusError, InputError
from mt_cli.features.exchange.huggingface import unsupported
from mt_cli.features.recipes.child import _merged
from mt_cli.features.recipes.codes import codes_in_names
from mt_cli.features.recipes.naming import neighbours
from mt_cli.features.recipes.new_config import new_config

# Function words that Italian has too.
LIKE_ITALIAN = [f"da se non lo mi {word}" for word in ("la", "le", "ci", "gli", "per", "che") for _ in range(6)]
ENGLISH = [f"the dog and the cat are in the house {n}" for n in range(30)]
SPANISH = [f"el perro y el gato no es de la casa {n}" for n in range(30)]
MADE_UP = [f"zyx vut srq pon {n}" for n in range(30)]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def begun(source, languages=(None, None), name=None):
    """What `mt init` writes, read back."""
    new = new_config(source, languages, name, Cache(Path("cache")))
    assert config_of_text(new.text, "f.yaml") == new.config
    return new


@pytest.mark.parametrize(
    ("names", "others"),
    [
        (["typing.po"], ["test.po", "dev.po", "valid.po"]),
        (["asyncio.po"], ["asyncio-dev.po"]),
        (["books.tsv"], ["test.tsv", "valid.tsv"]),
        (["books.en", "books.de"], ["test.en", "test.de", "dev.en", "dev.de"]),
        (["books.en", "books.de"], ["books.test.en", "bookstest.de", "books_valid.en"]),
        (["trainers.tsv"], ["test.tsv", "testers.tsv"]),
    ],
)
def test_files_of_other_texts_are_not_taken_for_evaluation(empty_folder, names, others):
    for name in (*names, *others):
        (empty_folder / name).touch()
    assert neighbours(names) == {}


@pytest.mark.parametrize(
    ("names", "valid", "test"),
    [
        (["train.po"], ["dev.po"], ["test.po"]),
        (["train.tsv"], ["valid.tsv"], ["test.tsv"]),
        (["news.train.en.gz", "news.train.de.gz"], ["news.dev.en.gz", "news.dev.de.gz"], None),
        (["books.en", "books.de"], ["books.valid.en", "books.valid.de"], ["test-books.en", "test-books.de"]),
        (["en.txt", "de.txt"], None, ["en_test.txt", "de_test.txt"]),
    ],
)
def test_files_with_names_like_those_of_training_files_are_taken_for_evaluation(empty_folder, names, valid, test):
    for name in (*names, *(valid or []), *(test or [])):
        (empty_folder / name).touch()
    found = neighbours(names)
    expected = {"valid": valid, "test": test}
    assert {role: each.get("files", [each.get("file")]) for role, each in found.items()} == {
        role: each for role, each in expected.items() if each
    }


def test_the_plan_names_the_files_that_are_taken(empty_folder):
    for name in ("train", "dev", "test", "test_2017"):
        write(empty_folder / f"{name}.en", [f"{line} {name}" for line in ENGLISH])
        write(empty_folder / f"{name}.es", [f"{line} {name}" for line in SPANISH])
    lines = begun(FilesSource(files=("train.en", "train.es"))).lines
    for line in (
        "train: train.en and train.es",
        "valid: dev.en and dev.es, found by its name",
        "test: test.en and test.es, found by its name",
        "test_2017: test_2017.en and test_2017.es, found by its name",
    ):
        assert line in lines


@pytest.mark.parametrize("name", ["1e3", "1_0.5e5", "2026-01-01", "null", "yes"])
def test_a_name_like_a_number_stays_a_name(empty_folder, name):
    write(empty_folder / "train.en", ENGLISH)
    write(empty_folder / "train.es", SPANISH)
    assert begun(FilesSource(files=("train.en", "train.es")), name=name).config.name == name


def test_files_with_odd_names_are_the_files_of_the_config(empty_folder):
    for name in ("a\x85b", "a\u2028 b", "a: #b", "[1e3]", "'\"", "\U0001f600 {x}", "en-\x85name: x"):
        write(empty_folder / f"{name}.en", ENGLISH)
        write(empty_folder / f"{name}.es", SPANISH)
        files = f"{name}.en", f"{name}.es"
        assert begun(FilesSource(files=files)).config.corpus.train[0].files == files


def test_a_long_name_of_a_file_gives_a_name_that_a_directory_can_have(empty_folder):
    name = "日本語" * 26
    write(empty_folder / f"{name}.tsv", ["\t".join(pair) for pair in zip(ENGLISH, SPANISH, strict=True)])
    (empty_folder / begun(FileSource(file=f"{name}.tsv")).config.name).mkdir()


def nested(path, keys, sides=(ENGLISH, MADE_UP)):
    rows = [{"translation": dict(zip(keys, pair, strict=True))} for pair in zip(*sides, strict=True)]
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write(path, [json.dumps(row) for row in rows])
    return FileSource(file=str(path))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("keys", "languages", "expected"),
    [
        (("en", "xyz"), (None, None), ("en", "xyz")),
        (("en", "xyz"), (None, "xyz"), ("en", "xyz")),
        (("en", "xyz"), ("xyz", None), ("xyz", "en")),
        (("en", "xyz"), ("en", "xx"), ("en", "xx")),
        (("eng", "xyz"), ("en", "xyz"), ("en", "xyz")),
        (("source", "target"), ("en", "xx"), ("en", "xx")),
        (("src", "tgt"), (None, "xx"), ("en", "xx")),
    ],
)
def test_the_keys_of_a_translation_are_languages(empty_folder, kind, keys, languages, expected):
    corpus = begun(nested(empty_folder / f"t.{kind}", keys), languages).config.corpus
    assert corpus.languages == expected
    sides = (ENGLISH, MADE_UP) if languages[0] != "xyz" else (MADE_UP, ENGLISH)
    assert [row[1:] for row in read_rows(corpus.train[0], expected)] == list(zip(*sides, strict=True))


def test_a_third_key_of_a_translation_is_asked_about(empty_folder):
    source = nested(empty_folder / "t.jsonl", ("en", "xyz", "uvw"), (ENGLISH, MADE_UP, MADE_UP))
    with pytest.raises(InputError, match=r"there are the languages en, xyz, uvw; choose with --source-language"):
        new_config(source, (None, None), None, Cache(empty_folder))
    assert begun(source, ("en", "uvw")).config.corpus.languages == ("en", "uvw")


@pytest.mark.parametrize("suffixes", [("es", "xyz"), ("xyz", "es")])
def test_the_side_whose_suffix_is_not_known_is_named(empty_folder, suffixes):
    write(empty_folder / "a.train.es", MADE_UP)  # Its words are not needed.
    write(empty_folder / "train.xyz", MADE_UP[::-1])
    names = {"es": "a.train.es", "xyz": "train.xyz"}
    side = ("source", "target")[suffixes.index("xyz")]
    with pytest.raises(InputError, match="xyz is in no registry of languages; if it is a code") as caught:
        new_config(FilesSource(files=tuple(names[each] for each in suffixes)), (None, None), None, Cache(empty_folder))
    assert f"the language of the {side} is not known" in str(caught.value)
    assert f"--{side}-language xyz" in str(caught.value)


def write_pairs(names):
    for name, lines in zip(names, (ENGLISH, LIKE_ITALIAN), strict=True):
        write(Path(name), lines[:30])
    return FilesSource(files=names)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("y.en", "x-y.xqz"), "xqz"),
        (("y.en", "x-y.xq"), "xq"),
        (("y.eng_Latn", "x-y.xqz_Latn"), "xqz_Latn"),
        (("eng_Latn.dev", "xqz_Latn.dev"), "xqz_Latn"),
        (("y-en.txt", "y-xqz.txt"), "xqz"),
    ],
)
def test_words_never_overrule_a_name_like_a_code(empty_folder, names, code):
    source = write_pairs(names)
    with pytest.raises(
        InputError, match=f": {code} is in no registry of languages; .* give --target-language {code}, "
    ):
        new_config(source, (None, None), None, Cache(empty_folder))
    assert begun(source, (None, code)).config.corpus.target == code


def test_a_code_may_be_before_the_suffix_of_a_compressed_file():
    assert codes_in_names(("y.en.gz", "y.xqz.gz")) == (("en", ""), ("xqz", ""))
    assert codes_in_names(("y.en.bpe", "y.de.bpe")) == (("en", ""), ("de", ""))


@pytest.mark.parametrize("suffix", ["txt", "src", "tgt", "trg", "ref"])
def test_words_decide_where_a_suffix_is_no_code(empty_folder, suffix):
    lines = begun(write_pairs(("y.en", f"y.{suffix}"))).lines
    assert lines[0] == "languages: en to it (en from a name, it recognised by its words)"


def test_the_plan_says_where_the_languages_are_from(empty_folder):
    source = write_pairs(("y.en", "y.xqz"))
    assert begun(source, (None, "xqz")).lines[0] == (
        "languages: en to xqz (en from a name, xqz from --target-language)"
    )


def test_no_language_is_suggested_for_text_that_may_be_in_any(empty_folder):
    write(empty_folder / "a.tsv", [f"{a}\t{b}" for a, b in zip(ENGLISH, MADE_UP, strict=True)])
    with pytest.raises(InputError, match=r"give its code with --target-language$"):
        new_config(FileSource(file="a.tsv"), (None, None), None, Cache(empty_folder))


def test_pairs_that_are_all_too_long_are_refused_before_a_config_is_written(empty_folder):
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(5_000)]
    rows = [[" ".join(generator.choices(words, k=300)) for _ in range(2)] for _ in range(20)]
    write(empty_folder / "a.tsv", ["\t".join(row) for row in rows])
    with pytest.raises(CorpusError, match=r"every pair has more than corpus.max_tokens 256 .* split the texts into"):
        new_config(FileSource(file="a.tsv"), ("en", "xx"), None, Cache(empty_folder))


def test_a_config_says_what_cannot_be_exported_to_transformers(empty_folder):
    write(empty_folder / "train.en", ENGLISH)
    write(empty_folder / "train.es", SPANISH)
    new = begun(FilesSource(files=("train.en", "train.es")))
    (line,) = (line for line in new.text.splitlines() if line.startswith("  positions: "))
    assert line.endswith("; mt export --format huggingface needs model.positions: sinusoidal")
    tree = new.config.model_dump(mode="json")
    tree["model"] |= {"positions": "sinusoidal"}
    assert [unsupported(new.config)[0].key, *unsupported(parse_config(tree, "f.yaml"))] == ["model.positions"]


def table(path, columns):
    """A file of columns by name."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
        return FileSource(file=path.name)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    mark = {".tsv": "\t", ".csv": ","}.get(path.suffix)
    cells = [[*columns], *([str(cell) for cell in row.values()] for row in rows)]
    write(path, [json.dumps(row) for row in rows] if mark is None else [mark.join(row) for row in cells])
    return FileSource(file=path.name)


NUMBERS = list(range(30))


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tsv", "csv"])
def test_words_never_overrule_a_column_like_a_code(empty_folder, kind):
    source = table(empty_folder / f"t.{kind}", {"en": ENGLISH, "xqz": LIKE_ITALIAN[:30]})
    with pytest.raises(InputError, match=r"xqz is in no registry of languages; .* give --target-language xqz, "):
        new_config(source, (None, None), None, Cache(empty_folder))
    corpus = begun(source, ("en", "xqz")).config.corpus
    assert [row[1:] for row in read_rows(corpus.train[0], corpus.languages)] == list(
        zip(ENGLISH, LIKE_ITALIAN, strict=False)
    )


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tsv", "csv"])
def test_the_columns_of_a_table_are_named_if_it_is_not_clear_which_to_read(empty_folder, kind):
    source = table(empty_folder / f"t.{kind}", {"id": NUMBERS, "en": ENGLISH, "xqz": MADE_UP})
    with pytest.raises(InputError, match=r"columns id, en, xqz .* name the two columns with --columns SOURCE TARGET"):
        new_config(source, (None, None), None, Cache(empty_folder))
    assert begun(source, ("en", "xqz")).config.corpus.train[0].columns is None


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_without_text_is_refused_with_the_columns_that_there_are(empty_folder, kind):
    source = table(empty_folder / f"t.{kind}", {"id": NUMBERS, "en": ENGLISH})
    with pytest.raises(InputError, match=r"not text; there are the columns id, en; name the two columns"):
        new_config(source, (None, None), None, Cache(empty_folder))


def test_the_other_one_of_two_columns_has_the_language_that_is_given(empty_folder):
    corpus = begun(table(empty_folder / "t.jsonl", {"xqz": MADE_UP, "en": ENGLISH}), (None, "xq")).config.corpus
    assert (corpus.languages, corpus.train[0].columns) == (("en", "xq"), ("en", "xqz"))


def test_a_parquet_file_may_map_languages_to_texts(empty_folder):
    rows = [None, *([("en", a), ("xqz", b)] for a, b in zip(ENGLISH, MADE_UP, strict=True))]
    column = pa.array(rows, pa.map_(pa.string(), pa.string()))
    parquet.write_table(pa.table({"translation": column}), "m.parquet")
    corpus = begun(FileSource(file="m.parquet")).config.corpus
    assert corpus.languages == ("en", "xqz")
    assert next(read_rows(corpus.train[0], corpus.languages)) == (1, "", "")


def test_a_part_in_another_orthography_is_left_out_and_named(mt, tmp_path):
    generator = random.Random(1)

    def words(number, letters):
        return ["".join(generator.choices(letters, k=12)) for _ in range(number)]

    modern, old = "kwaeiosnt", "cuaeiosnq"
    for name, target in {"train": [*words(1000, modern), *words(500, old)], "dev": words(300, modern)}.items():
        for suffix, lines in (
            ("es", [f"{word} y una frase" for word in words(len(target), "abcdefghilmnoprstu")]),
            ("shp", target),
        ):
            (tmp_path / f"{name}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    status, _, err = mt("init", "--files", "train.es", "train.shp", "--output", "shp.yaml")
    assert status == 0, err
    (note,) = [line for line in err.splitlines() if "as in another orthography" in line]
    assert "train.shp, lines 1,001 to 1,500: letters in shp unlike those of valid" in note and "left out by" in note
    assert load_config(tmp_path / "shp.yaml").corpus.filters.other_orthography
    comment = "other_orthography: true}  # leaves out train.shp, lines 1,001 to 1,500: spelled otherwise than valid"
    assert comment in (tmp_path / "shp.yaml").read_text(encoding="utf-8")
    # Most of `train` is never left out.
    (tmp_path / "dev.shp").write_text("".join(f"{line}\n" for line in words(300, old + "xyz")), encoding="utf-8")
    status, _, err = mt("init", "--files", "train.es", "train.shp", "--output", "other.yaml")
    assert status == 0 and "not left out, as it is most of train" in err
    assert not load_config(tmp_path / "other.yaml").corpus.filters.other_orthography


def test_a_run_from_the_same_language_is_named_to_begin_with(mt, trained, tmp_path):
    for name, texts in (("en", "one two"), ("it", "uno due"), ("xx", "ONE TWO")):
        (tmp_path / f"train.{name}").write_text("".join(f"{texts} {n}.\n" for n in range(60)), encoding="utf-8")
    assert " to begin with a well" not in mt("init", "--files", "train.en", "train.it", "--output", "first.yaml")[2]
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    (tmp_path / "runs" / "damaged" / "checkpoints").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "checkpoints" / "best.safetensors").touch()
    (tmp_path / "runs" / "damaged" / "report.json").touch()
    shutil.copytree(trained, tmp_path / "runs" / "unfinished")
    (tmp_path / "runs" / "unfinished" / "report.json").unlink()
    (tmp_path / "runs" / "unfinished" / "checkpoints" / "best.safetensors").touch()
    status, _, err = mt("init", "--files", "train.en", "train.it", "--output", "second.yaml")
    assert status == 0 and "note: runs/tiny translates from en, too, into xx (" in err, err
    assert "mt init --begin-with runs/tiny writes such a config" in err
    assert " to begin with a well" not in mt("init", "--files", "train.en", "train.xx", "--output", "third.yaml")[2]


def test_a_config_that_begins_with_a_run_has_its_model_and_the_spellings_of_the_text(mt, trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    words = ["lo", "mang'", "gn", "er", "jach", "qull"]
    for name, apostrophe in (("train", "\u2019"), ("valid", "'")):
        shown = [f"{words[n % 6]} d{apostrophe}un {words[n // 6 % 6]} l{apostrophe}altro" for n in range(60)]
        texts = [f"{text} {n + 60 * (name == 'valid')}." for n, text in enumerate(shown)]
        (tmp_path / f"{name}.it").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("".join(f"one {name} {n}.\n" for n in range(60)), encoding="utf-8")
    command = ("init", "--files", "train.en", "train.it", "--name", "child", "--begin-with")
    status, _, err = mt(*command, "runs/tiny")
    assert status == 0 and "of runs/tiny  tokenizer, model" in err and "expect" not in err, err
    text = (tmp_path / "child.yaml").read_text(encoding="utf-8")
    assert "init: {run: runs/tiny, vocabulary: extend}" in text and "begins with runs/tiny." in text
    assert "normalize: [apostrophes" in text and "model:" not in text
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_epochs=1")
    assert status == 0 and "begins with runs/tiny" in err, err
    own = load_config(tmp_path / "runs/child/config.yaml")
    assert own.model.d_model == 32 and "apostrophes" in own.tokenizer.normalize
    status, _, err = mt(*command, "runs/tinny", "--output", "other.yaml")
    assert status == 2 and "--begin-with: runs/tinny: no such run directory, did you mean runs/tiny?" in err
    assert mt("init", "--example", "quickstart", "--begin-with", "runs/tiny")[0] == 2
    status, _, err = mt("init", "--files", "train.en", "train.it", "--name", "tiny", "--begin-with", "runs/tiny")
    assert status == 2 and "is the directory of this run itself; give the config another name" in err
    shutil.copytree(tmp_path / "runs/tiny", tmp_path / f"runs/{tmp_path.name}_en_it")
    own = ("init", "--files", "train.en", "train.it", "--begin-with", f"runs/{tmp_path.name}_en_it")
    assert mt(*own, "--output", "same.yaml")[0] == 0
    assert load_config(tmp_path / "same.yaml").name == f"{tmp_path.name}_en_it_2"


def test_the_spellings_of_a_run_to_begin_with_are_kept_beside_those_of_the_text(mt, tiny_tree, tmp_path):
    tree = tiny_tree | {"name": "parent"}
    tree["tokenizer"] = {"letters": {"ã": "a"}}
    tree["training"]["max_epochs"] = 1
    (tmp_path / "parent.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert mt("train", "--config", "parent.yaml")[0] == 0
    for name, letter in (("train", "õ"), ("valid", "ô")):
        shown = [f"l{letter}p k{letter}la r{letter} w{letter}sk{chr(97 + n % 26)}" for n in range(300)]
        texts = [f"{text} {n + 300 * (name == 'valid')}." for n, text in enumerate(shown)]
        (tmp_path / f"{name}.xx").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        (tmp_path / f"{name}.en").write_text("".join(f"one {name} {n}.\n" for n in range(300)), encoding="utf-8")
    status, _, err = mt("init", "--files", "train.en", "train.xx", "--name", "child", "--begin-with", "runs/parent")
    assert status == 0, err
    assert 'of runs/parent  tokenizer, model, but tokenizer.letters {"ã": "a", "õ": "ô"}' in err
    assert load_config(tmp_path / "child.yaml").tokenizer.letters == {"ã": "a", "õ": "ô"}
    assert "# of runs/parent, and as valid or test writes" in (tmp_path / "child.yaml").read_text(encoding="utf-8")


def test_letters_of_a_run_and_of_a_text_are_merged_so_that_none_is_replaced_twice():
    for old, new, expected in (
        ({"é": "e"}, {"ã": "â"}, {"é": "e", "ã": "â"}),
        ({"â": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"ã": "a"}, {"ã": "â"}, {"ã": "â"}),
        ({"õ": "ã"}, {"ã": "â"}, {"õ": "â", "ã": "â"}),
    ):
        assert _merged(old, new) == expected


def test_a_config_that_begins_with_a_model_for_several_directions_has_a_tag(mt, tiny_tree, tmp_path):
    tree = tiny_tree | {"name": "several"}
    tree["corpus"] |= {"tag": "to_target", "both_directions": True}
    tree["training"]["max_epochs"] = 1
    (tmp_path / "several.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    assert mt("train", "--config", "several.yaml")[0] == 0
    for name, texts in (("en", "one two"), ("it", "uno due")):
        (tmp_path / f"train.{name}").write_text("".join(f"{texts} {n}.\n" for n in range(60)), encoding="utf-8")
    status, _, err = mt("init", "--files", "train.en", "train.it", "--name", "child", "--begin-with", "runs/several")
    assert status == 0, err
    assert "tag: to_target" in (tmp_path / "child.yaml").read_text(encoding="utf-8")
    status, _, err = mt("train", "--config", "child.yaml", "--set", "training.max_epochs=1")
    assert status == 0 and "new source entries" in err, err
    assert mt("translate", "--run", "runs/child", "--to", "it", "one two")[0] == 0


def test_a_config_names_the_cpu_only_if_a_gpu_could_train_a_larger_model(empty_folder, monkeypatch):
    write(empty_folder / "a.en", ENGLISH)
    write(empty_folder / "a.es", SPANISH)
    source = FilesSource(files=("a.en", "a.es"))
    new = begun(source)
    assert new.config.training.planned_for is None and "planned_for" not in new.text
    monkeypatch.setattr(presets, "LEVELS", [replace(level, preset="base") for level in presets.LEVELS])
    monkeypatch.setattr(presets, "DIVERSE_LEVELS", [replace(level, preset="base") for level in presets.DIVERSE_LEVELS])
    new = begun(source)
    assert new.config.training.planned_for == "cpu"
    assert "  planned_for: cpu  # these pairs allow a larger model, on a GPU\n" in new.text
    monkeypatch.setattr("mt_cli.features.recipes.facts.pick_device", lambda name: torch.device("cuda"))
    assert begun(source).config.training.planned_for is None
