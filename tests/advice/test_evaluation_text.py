"""Text for evaluation beside the training text."""

import pytest

from mt_cli.advice.new_config import text_for_evaluation
from mt_cli.config.sources import FileSource, FilesSource


@pytest.mark.parametrize(
    ("names", "valid", "test", "others"),
    [
        (["train.po"], ["dev.po"], ["test.po"], []),
        (["news.train.en.gz", "news.train.de.gz"], ["news.dev.en.gz", "news.dev.de.gz"], None, ["dev.en", "dev.de"]),
        (["train.en", "train.de"], None, None, ["test.en", "valid.de", "test.txt"]),
        (["books.en", "books.de"], None, None, ["test.en", "test.de", "books.test.en", "books.test.de"]),
        (["trainers.tsv"], None, None, ["test.tsv", "testers.tsv"]),
        (["train-train.tsv"], ["train-val.tsv"], None, ["test-test.tsv"]),
    ],
)
def test_files_are_evaluation_text_by_their_names(tmp_path, monkeypatch, names, valid, test, others):
    monkeypatch.chdir(tmp_path)
    for name in (*names, *(valid or []), *(test or []), *others):
        (tmp_path / name).touch()
    trees = text_for_evaluation(FilesSource(files=names) if len(names) == 2 else FileSource(file=names[0]))
    expected = {role: files for role, files in {"valid": valid, "test": test}.items() if files}
    assert {role: tree.get("files", [tree.get("file")]) for role, tree in trees.items()} == expected
