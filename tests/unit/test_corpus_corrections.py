"""Laws of a file of corrections: whole lines, the last of which counts."""

import pytest
from full_disk import room_for

from mt_cli.corpus.corrections import (
    Correction,
    append_corrections,
    check_corrections_file,
    current_corrections,
    read_corrections,
)
from mt_cli.errors import InputError, MtError


def correction(source, target, draft="draft", languages=("en", "it")):
    return Correction.of(source, target, draft, languages, "app")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corrections.jsonl"


def test_the_last_line_counts_and_a_draft_takes_back(path):
    rows = [
        ("one", "uno"),
        ("two", "due"),
        ("one", "un\n\u2028"),
        ("two", "draft"),
        ("three", "draft"),
        ("three", "tre"),
    ]
    append_corrections(path, [correction(*row) for row in rows[:4]])
    append_corrections(path, [correction(*row) for row in rows[4:]])
    append_corrections(path, [correction("one", "une", languages=("eng", "pt-PT"))])
    append_corrections(path, [correction("one", "um", languages=("en", "pt_PT"))])
    assert [row.pair for row in read_corrections(path)] == [*rows, ("one", "une"), ("one", "um")]
    current = {(row.source, row.target_language): row.target for row in current_corrections([path])}
    assert current == {("one", "it"): "un\n\u2028", ("one", "pt_PT"): "um", ("three", "it"): "tre"}


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(path):
    append_corrections(path, [correction("one", "uno")])
    before = path.read_bytes()
    with room_for(path, 20), pytest.raises(MtError, match="cannot be written"):
        append_corrections(path, [correction("two", "due")])
    assert path.read_bytes() == before


def test_a_line_without_an_end_is_followed_by_a_new_line(path):
    append_corrections(path, [correction("one", "uno")])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    append_corrections(path, [correction("two", "due")])
    assert [row.source for row in read_corrections(path)] == ["one", "two"]


def test_a_line_that_was_cut_off_is_left_out(path):
    append_corrections(path, [correction("one", "uno"), correction("two", "due")])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        num_whole = (whole[:length] + b"\n").count(b"}\n")
        assert [row.source for row in read_corrections(path)] == ["one", "two"][:num_whole]
    path.write_bytes(whole[:-9])
    append_corrections(path, [correction("three", "tre")])
    assert [row.source for row in read_corrections(path)] == ["one", "three"]


def test_lines_that_are_no_corrections_are_named(path):
    append_corrections(path, [correction("one", "uno")])
    first = path.read_bytes()
    for line in (b'{"source": "a"}\n', b"[]\n", b"a\tb", b"<xliff/>", b"\xff"):
        path.write_bytes(first + line)
        with pytest.raises(InputError, match=r"corrections\.jsonl, line 2: "):
            check_corrections_file(path)
