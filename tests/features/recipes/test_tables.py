"""`mt init` with tables: columns by number, given formats, column codes, quotation marks, languages that differ."""

import json

import pytest

from mt_cli.corpus.sources import read_rows

ENGLISH = [f"the dog and the cat are in the house {number}" for number in range(30)]
ITALIAN = [f"il cane e il gatto non sono nella casa {number}" for number in range(30)]
PAIRS = list(zip(ENGLISH, ITALIAN, strict=True))
HELD = [(f"yes, {a}", f"sì, {b}") for a, b in PAIRS]


def write(path, rows, heading=None):
    rows = [*([heading] if heading else []), *rows]
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")


def pairs_of(corpus, role="train"):
    return [row[1:] for row in read_rows(getattr(corpus, role)[0], corpus.languages)]


def test_columns_are_chosen_by_number(init, tmp_path):
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write(tmp_path / f"{name}.tsv", [(str(n), a, f"x{n}", b) for n, (a, b) in enumerate(pairs)])
    err, corpus = init("--file", "a.tsv", "--columns", "2", "4", "--valid", "held.tsv")
    assert "languages: en to it" in err
    assert corpus.train[0].columns == corpus.valid[0].columns == ("2", "4")
    assert (pairs_of(corpus), pairs_of(corpus, "valid")) == (PAIRS, HELD)
    for columns, message in (
        (("2", "5"), "a.tsv: no column 5; there are 4, counted from 1"),
        (("0", "2"), "a.tsv: no column 0"),
        (("2", "2"), "--columns 2 2: give two columns"),
        (("x", "2"), "a.tsv: no column 'x' among"),
    ):
        err, corpus = init("--file", "a.tsv", "--columns", *columns)
        assert corpus is None and message in err
    err, corpus = init("--file", "a.tsv")
    assert corpus is None and "or number them from 1, with --columns SOURCE TARGET" in err


def test_a_heading_names_the_languages_of_columns_that_are_chosen_by_number(init, tmp_path):
    write(tmp_path / "a.tsv", [(str(n), b, a) for n, (a, b) in enumerate(PAIRS)], ("id", "ita", "eng"))
    _, corpus = init("--file", "a.tsv", "--columns", "3", "2")
    assert corpus.languages == ("eng", "ita")
    assert pairs_of(corpus) == PAIRS


@pytest.mark.parametrize("name", ["pairs.txt", "pairs"])
def test_the_refusal_of_a_file_without_a_known_suffix_names_the_option_that_reads_it(init, tmp_path, name):
    write(tmp_path / name, PAIRS)
    write(tmp_path / "held.txt", HELD)
    err, corpus = init(name)
    assert corpus is None and "(mt init: --format tsv)" in err
    _, corpus = init(name, "--format", "tsv", "--valid", "held.txt")
    assert pairs_of(corpus) == PAIRS and pairs_of(corpus, "valid") == HELD
    assert (corpus.train[0].format, corpus.valid[0].format) == ("tsv", "tsv")
    err, corpus = init(name, "--format", "xlsx")
    assert corpus is None and "--format xlsx: use tsv, plain_tsv, quoted_tsv, csv or json" in err
    write(tmp_path / "other.it", PAIRS)
    err, corpus = init("--files", name, "other.it", "--format", "tsv")
    assert corpus is None and "--format: only a --file has it" in err


def test_a_file_beside_one_of_a_given_format_has_its_format(init, tmp_path):
    write(tmp_path / "train.txt", PAIRS)
    write(tmp_path / "valid.txt", HELD)
    _, corpus = init("train.txt", "--format", "plain_tsv")
    assert (corpus.valid[0].file, corpus.valid[0].format) == ("valid.txt", "plain_tsv")


def test_json_is_read_as_lines_and_as_an_array(init, tmp_path):
    rows = [{"it": target, "en": source} for source, target in PAIRS]
    (tmp_path / "array.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    (tmp_path / "lines.json").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for name in ("array.json", "lines.json"):
        _, corpus = init("--file", name, "--source-language", "en", "--target-language", "it")
        assert pairs_of(corpus) == PAIRS


def test_json_files_of_settings_do_not_disturb_a_folder_of_tables(init, tmp_path):
    (tmp_path / "tables").mkdir()
    write(tmp_path / "tables/a.tsv", PAIRS)
    (tmp_path / "tables/package.json").write_text('{"name": "x"}', encoding="utf-8")
    _, corpus = init("tables")
    assert pairs_of(corpus) == PAIRS


def test_codes_in_the_names_of_columns_are_the_languages(init, tmp_path):
    rows = [(str(n), a, b) for n, (a, b) in enumerate(PAIRS)]
    for heading, languages in (
        (("id", "sentence_eng_Latn", "sentence_ita_Latn"), ("eng_Latn", "ita_Latn")),
        (("id", "text_en", "text_it"), ("en", "it")),
        (("id", "source_en", "target_it"), ("en", "it")),
        (("n", "en-GB", "it-IT"), ("en-GB", "it-IT")),
    ):
        write(tmp_path / "a.tsv", rows, heading)
        err, corpus = init("--file", "a.tsv")
        assert "from a name" in err and "recognised" not in err
        assert corpus.languages == languages and pairs_of(corpus) == PAIRS
    (tmp_path / "hub").mkdir()
    write(tmp_path / "hub/train.tsv", rows, ("id", "sentence_eng_Latn", "sentence_ita_Latn"))
    _, corpus = init("--dataset", "hub")
    assert corpus.languages == ("eng_Latn", "ita_Latn") and pairs_of(corpus) == PAIRS


def test_languages_that_a_table_does_not_have_are_refused(init, tmp_path):
    write(tmp_path / "a.tsv", PAIRS, ("en", "it"))
    err, corpus = init("--file", "a.tsv", "--source-language", "no", "--target-language", "it")
    assert corpus is None and "has no language no; there are the languages en, it; give one of them with --sou" in err
    _, corpus = init("--file", "a.tsv", "--source-language", "en_GB", "--target-language", "it")
    assert corpus.languages == ("en_GB", "it") and pairs_of(corpus) == PAIRS


def test_varieties_in_a_heading_are_never_mixed(init, tmp_path):
    write(tmp_path / "a.tsv", [(a, b, f"{b} x") for a, b in PAIRS], ("en", "it-IT", "it-CH"))
    err, corpus = init("--file", "a.tsv", "--source-language", "en", "--target-language", "it")
    assert corpus is None
    assert "several varieties of it: it-IT, it-CH; choose one with --target-language, such as it_IT" in err
    _, corpus = init("--file", "a.tsv", "--source-language", "en", "--target-language", "it_CH")
    assert pairs_of(corpus) == [(a, f"{b} x") for a, b in PAIRS]
    write(tmp_path / "b.tsv", PAIRS, ("en", "it-IT"))
    err, corpus = init("--file", "b.tsv", "--source-language", "en", "--target-language", "it_CH")
    assert corpus is None and "has no language it_CH; there are the languages en, it-IT" in err


def test_columns_by_number_are_reversed_if_the_languages_are_given_in_the_other_order(init, tmp_path):
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write(tmp_path / f"{name}.tsv", [(str(n), a, b) for n, (a, b) in enumerate(pairs)])
    given = ("--columns", "2", "3", "--source-language", "it", "--target-language", "en", "--valid", "held.tsv")
    err, corpus = init("--file", "a.tsv", *given)
    assert corpus.train[0].reverse and "is en to it; `reverse: true` exchanges its sides" in err
    assert pairs_of(corpus) == [(b, a) for a, b in PAIRS] and pairs_of(corpus, "valid") == [(b, a) for a, b in HELD]


def test_the_columns_of_a_table_are_not_those_of_a_memory_for_validation(init, tmp_path):
    write(tmp_path / "a.tsv", PAIRS)
    units = (f"<tu><tuv lang='en'><seg>{a}</seg></tuv><tuv lang='it'><seg>{b}</seg></tuv></tu>" for a, b in HELD)
    (tmp_path / "held.tmx").write_text(f"<tmx><body>{''.join(units)}</body></tmx>", encoding="utf-8")
    _, corpus = init("--file", "a.tsv", "--columns", "1", "2", "--valid", "held.tmx")
    assert corpus.valid[0].columns is None and pairs_of(corpus, "valid") == HELD


def test_one_language_twice_is_refused_with_both_codes(init, tmp_path):
    for name, lines in (("eng", ENGLISH), ("en", [f"{line} x" for line in ENGLISH])):
        (tmp_path / f"train.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    err, corpus = init("--files", "train.eng", "train.en")
    assert corpus is None and "both sides seem to be one language, eng and en" in err
    err, corpus = init("--files", "train.eng", "train.en", "--source-language", "en", "--target-language", "eng")
    assert corpus is None and "--source-language en --target-language eng: are one language" in err
    _, corpus = init("--files", "train.eng", "train.en", "--source-language", "en-US", "--target-language", "en-GB")
    assert corpus.languages == ("en-US", "en-GB")


def test_users_are_told_that_a_table_is_quoted(init, mt, tmp_path):
    write(tmp_path / "a.tsv", [*PAIRS, ('"say ""a"""', '"di ""a"""')], ("en", "it"))
    err, corpus = init("--file", "a.tsv")
    assert "note: a.tsv: quoted as spreadsheets do (2 cells, the first in line 32)" in err
    assert pairs_of(corpus)[-1] == ('say "a"', 'di "a"')
    for _ in range(2):  # Also if the text comes from the cache.
        _, _, err = mt("data", "check", "--config", "new.yaml")
        assert err.count("read without the quotation marks") == 1, err
    (tmp_path / "hub").mkdir()
    (tmp_path / "a.tsv").rename(tmp_path / "hub/train.tsv")
    _, corpus = init("--dataset", "hub")
    assert pairs_of(corpus)[-1] == ('say "a"', 'di "a"')
