"""What names of files and columns say of languages."""

import pytest

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource
from mt_cli.corpus.languages import NO_CODES
from mt_cli.features.recipes.codes import codes_in_columns, codes_in_names, direction_in_names


@pytest.mark.parametrize(
    ("files", "languages"),
    [
        (("train.es", "train.aym"), ("es", "aym")),
        (("train.hch", "train.shp"), ("hch", "shp")),
        (("a/train.en.gz", "b/train.yor.gz"), ("en", "yor")),
        (("news.en-yo.en", "news.en-yo.yo"), ("en", "yo")),
        (("train.eng_Latn", "train.zho_Hans"), ("eng_Latn", "zho_Hans")),
        (("train.pt_BR", "train.ayr_Latn"), ("pt_BR", "ayr_Latn")),
        (("eng_Latn.devtest", "zho_Hans.devtest"), ("eng_Latn", "zho_Hans")),
        (("eng.dev", "hau.dev"), ("eng", "hau")),
        (("dev-es.txt", "dev-aym.txt"), ("es", "aym")),
        (("a.en", "b.aym"), ("en", "aym")),
        (("y.en", "y.xqz"), ("en", "xqz")),
        (("train.qq", "train.shp"), ("qq", "shp")),
    ],
)
def test_codes_in_the_names_of_two_files_are_their_languages(files, languages):
    assert [each.language for each in codes_in_names(files)] == list(languages)
    assert [each.language for each in codes_in_names(files[::-1])] == list(languages[::-1])


@pytest.mark.parametrize(
    "files",
    [
        ("raw.dev", "new.dev"),
        ("all.bpe", "the.bpe"),
        ("train.foo", "train.xqz"),
        ("train.ref", "train.txt"),
        ("train.raw", "train.tok"),
        ("the-source.txt", "the-target.txt"),
        *((f"x.{code}", "x.out") for code in sorted(NO_CODES)),
    ],
)
def test_words_that_happen_to_be_codes_are_no_languages(files):
    assert [each.language for each in codes_in_names(files)] == ["", ""]


@pytest.mark.parametrize(
    ("names", "are_named", "expected"),
    [
        (["en", "yor"], False, ["en", "yor"]),
        (["id", "yor", "en"], True, ["yor", "en"]),
        (["aym", "shp"], True, ["aym", "shp"]),
        (["aym", "shp"], False, []),
        (["German", "yor", "score"], False, ["de", "yor"]),
        (["en", "aym", "shp"], True, ["en"]),
        (["en", "src", "raw"], True, ["en"]),
        (["en", "xqz"], True, ["en"]),
        (["url", "en", "de"], True, ["en", "de"]),
        (["id", "sentence_por_Latn", "sentence_eng_Latn"], False, ["por_Latn", "eng_Latn"]),
        (["text_en", "label", "text_yo"], False, ["en", "yo"]),
        (["en_text", "de-text"], True, ["en", "de"]),
        (["source_en", "target_de", "source_id"], True, ["en", "de"]),
        (["de-DE", "en-US"], True, ["de-DE", "en-US"]),
        (["title_en", "title_hau"], True, ["en", "hau"]),
        (["title_en", "title_de", "title_it"], True, ["en", "de", "it"]),
        (["text_en", "text_id"], True, ["en"]),
        (["line_no", "line_en"], True, ["en"]),
        (["text_id", "user_id", "is_valid", "source_text", "en"], True, ["en"]),
        (["price_to", "price_is", "en", "de"], True, ["en", "de"]),
        (["title_all", "title_the"], True, []),
        (["input_ids", "sentence", "text"], True, []),
    ],
)
def test_columns_are_languages_by_common_codes_and_one_beside_another(names, are_named, expected):
    assert list(codes_in_columns(names, are_named).values()) == expected


def test_a_direction_is_in_the_name_of_a_configuration_a_file_or_its_folder():
    for source in (
        DatasetSource(dataset="lafand", subset="en-yor"),
        DatasetSource(dataset="iwslt", subset="iwslt2017-en-yor"),
        FileSource(file="lafand/en-yor/train.csv"),
        FileSource(file="news.en-yor.tsv"),
        FilesSource(files=("news.en-yor.src", "news.en-yor.tgt")),
    ):
        assert direction_in_names(source) == ("en", "yor")
    assert direction_in_names(DatasetSource(dataset="f", subset="eng_Latn-ayr_Latn")) == ("eng_Latn", "ayr_Latn")
    for subset in (None, "all-new", "en-en", "eng-en", "en-xqz", "en", "en_yor", "pt_BR"):
        assert direction_in_names(DatasetSource(dataset="en-yor", subset=subset)) is None, subset
