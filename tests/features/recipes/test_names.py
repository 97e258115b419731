"""Languages in the names of files and columns, and text for evaluation beside the training text."""

import pytest

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource
from mt_cli.corpus.languages import NO_CODES
from mt_cli.features.recipes.names import codes_in_columns, codes_in_file_names, direction_in_name, neighbours


@pytest.mark.parametrize(
    ("files", "languages"),
    [
        (("train.es", "train.aym"), ("es", "aym")),
        (("a/train.en.gz", "b/train.yor.gz"), ("en", "yor")),
        (("news.en-yo.en", "news.en-yo.yo"), ("en", "yo")),
        (("train.eng_Latn", "train.zho_Hans"), ("eng_Latn", "zho_Hans")),
        (("eng_Latn.devtest", "zho_Hans.devtest"), ("eng_Latn", "zho_Hans")),
        (("eng.dev", "hau.dev"), ("eng", "hau")),
        (("dev-es.txt", "dev-aym.txt"), ("es", "aym")),
        (("y.en.bpe", "y.de.bpe"), ("en", "de")),
        (("a.en", "b.aym"), ("en", "aym")),
        (("train.qq", "train.shp"), ("qq", "shp")),
        # In no registry, and yet like a code at the place of a code.
        *(((f"y.{a}", f"x-y.{b}"), (a, b)) for a, b in [("en", "xqz"), ("en", "xq"), ("eng_Latn", "xqz_Latn")]),
        (("y-en.txt", "y-xqz.txt"), ("en", "xqz")),
        # Words that happen to be codes.
        (("raw.dev", "new.dev"), ("", "")),
        (("all.bpe", "the.bpe"), ("", "")),
        (("train.foo", "train.xqz"), ("", "")),
        (("the-source.txt", "the-target.txt"), ("", "")),
        *(((f"x.{code}", "x.out"), ("", "")) for code in sorted(NO_CODES)),
    ],
)
def test_codes_at_the_places_of_codes_in_two_file_names_are_languages(files, languages):
    assert codes_in_file_names(files) == languages
    assert codes_in_file_names(files[::-1]) == languages[::-1]


@pytest.mark.parametrize(
    ("names", "are_headings", "expected"),
    [
        (["en", "yor"], False, ["en", "yor"]),
        (["id", "yor", "en"], True, ["yor", "en"]),
        (["aym", "shp"], True, ["aym", "shp"]),
        (["aym", "shp"], False, []),
        (["German", "yor", "score"], False, ["de", "yor"]),
        (["en", "aym", "shp"], True, ["en"]),
        (["en", "src", "raw"], True, ["en"]),
        (["id", "sentence_por_Latn", "sentence_eng_Latn"], False, ["por_Latn", "eng_Latn"]),
        (["source_en", "target_de", "source_id"], True, ["en", "de"]),
        (["de-DE", "en-US"], True, ["de-DE", "en-US"]),
        (["title_en", "title_hau"], True, ["en", "hau"]),
        (["text_en", "text_id"], True, ["en"]),
        (["text_id", "user_id", "is_valid", "source_text", "en"], True, ["en"]),
        (["price_to", "price_is", "en", "de"], True, ["en", "de"]),
        (["title_all", "title_the"], True, []),
    ],
)
def test_columns_are_languages_by_common_codes_and_one_beside_another(names, are_headings, expected):
    assert list(codes_in_columns(names, are_headings).values()) == expected


def test_a_direction_is_in_the_name_of_a_configuration_a_file_or_its_folder():
    for source in (
        DatasetSource(dataset="lafand", subset="iwslt2017-en-yor"),
        FileSource(file="lafand/en-yor/train.csv"),
        FilesSource(files=("news.en-yor.src", "news.en-yor.tgt")),
    ):
        assert direction_in_name(source) == ("en", "yor")
    assert direction_in_name(DatasetSource(dataset="f", subset="eng_Latn-ayr_Latn")) == ("eng_Latn", "ayr_Latn")
    for subset in (None, "all-new", "eng-en", "en-xqz", "en", "en_yor", "pt_BR"):
        assert direction_in_name(DatasetSource(dataset="en-yor", subset=subset)) is None, subset


@pytest.mark.parametrize(
    ("names", "valid", "test", "others"),
    [
        (["train.po"], ["dev.po"], ["test.po"], []),
        (["news.train.en.gz", "news.train.de.gz"], ["news.dev.en.gz", "news.dev.de.gz"], None, []),
        (["books.en", "books.de"], ["books.valid.en", "books.valid.de"], ["test-books.en", "test-books.de"], []),
        (["en.txt", "de.txt"], None, ["en_test.txt", "de_test.txt"], []),
        (["asyncio.po"], None, None, ["asyncio-dev.po", "test.po"]),
        (["books.en", "books.de"], None, None, ["test.en", "test.de", "books.test.en", "bookstest.de"]),
        (["trainers.tsv"], None, None, ["test.tsv", "testers.tsv"]),
    ],
)
def test_files_with_names_like_the_training_files_are_taken_for_evaluation(
    tmp_path, monkeypatch, names, valid, test, others
):
    monkeypatch.chdir(tmp_path)
    for name in (*names, *(valid or []), *(test or []), *others):
        (tmp_path / name).touch()
    trees = neighbours(names)
    expected = {role: files for role, files in {"valid": valid, "test": test}.items() if files}
    assert {role: tree.get("files", [tree.get("file")]) for role, tree in trees.items()} == expected
