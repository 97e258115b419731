"""Damaged units and files: an error that names the option, or skipped, counted and named."""

import gzip
import json
import re

import pytest
from corpora import sentences, write_config
from formats import numbered
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.batching.streamed import StreamedPairs
from mt_cli.config.loading import parse_config
from mt_cli.config.sources import FileSource, FolderSource
from mt_cli.corpus.read_report import ReadReport
from mt_cli.corpus.sources import read_rows
from mt_cli.corpus.tmx import parts_of
from mt_cli.errors import CorpusError
from mt_cli.tokenizer.training import train_tokenizers

HEAD, END = '<?xml version="1.0"?>\n<tmx>\n<header/><body>\n', "</body></tmx>\n"
FIRST_LINE = 4


def unit(source, target="x"):
    return f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="it"><seg>{target}</seg></tuv></tu>\n'


def read(path, skip=True):
    return numbered(path, skip_damaged=skip)


DAMAGED = {
    "ampersand": unit("R & D"),
    "control": unit("a&#x1F;b"),
    "nul": unit("a\0b"),
    "entity": unit("a&nbsp;b"),
    "tag": unit("a <b c"),
    "crossed": unit("a").replace("</tuv></tu>", "</tu></tuv>"),
    "start": unit("a").replace("<tu>", ""),
    "end": unit("a").replace("</tu>", ""),
    "inside": unit("a").replace("<tu>", "<tu x>"),
    "comment": unit("a <!-- b"),
    "nested": unit(unit("a").strip()),
}


@pytest.mark.parametrize("where", [0, 1, 3])
@pytest.mark.parametrize("kind", DAMAGED)
def test_only_the_damaged_unit_is_lost_and_its_line_is_named(tmp_path, kind, where):
    units = [unit(f"text {number}") for number in range(3)]
    units.insert(where, DAMAGED[kind])
    units = [text.replace("<tu>", "<tu><!-- note -->", 1) for text in units]
    path = tmp_path / "a.tmx.gz"
    path.write_bytes(gzip.compress((HEAD + "".join(units) + END).encode()))
    rows, report = read(path)
    lines = [FIRST_LINE + line for line in range(4) if line != where]
    if kind != "nested":
        assert [row[:2] for row in rows] == [(line, f"text {n}") for n, line in enumerate(lines)]
        assert report.num_skipped == {"unit": 1} and "1 of 4 units" in next(report.notes())
    assert [row[1] for row in rows if row[1].startswith("text")] == [f"text {n}" for n in range(3)]
    assert report.skipped[0].startswith(f"{path}, line {FIRST_LINE + where}: "), report.skipped
    with pytest.raises(CorpusError, match="`skip_damaged: true`"):
        read(path, skip=False)


@pytest.mark.parametrize("length", range(len(HEAD) + 10, len(HEAD + unit("text 0") + unit("text 1")), 23))
def test_of_a_file_that_is_cut_off_all_complete_units_are_read(tmp_path, length):
    text = (HEAD + unit("text 0") + unit("text 1") + END)[:length]
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    if complete := text.count("</tu>"):
        rows, report = read(tmp_path / "a.tmx")
        assert [row[1] for row in rows] == [f"text {n}" for n in range(complete)]
        assert report.num_skipped["unit"] == 1 and "cut off" in report.skipped[0]
    else:
        with pytest.raises(CorpusError, match="units are damaged"):
            read(tmp_path / "a.tmx")


def test_a_fault_of_the_whole_file_is_no_damage_of_units(tmp_path):
    """What is left of a file in another encoding are the units without accents."""
    units = [unit(f"perché {n}" if n % 3 else f"text {n}") for n in range(30)]
    (tmp_path / "a.tmx").write_bytes((HEAD + "".join(units) + END).encode("cp1252"))
    with pytest.raises(CorpusError, match="20 of its 30 units"):
        read(tmp_path / "a.tmx")
    (tmp_path / "b.tmx").write_bytes((HEAD.replace("?>", ' encoding="utf-16"?>') + unit("a") + END).encode())
    with pytest.raises(CorpusError, match=r"b\.tmx, line 1: not utf-16"):
        read(tmp_path / "b.tmx")


TEXTS = st.text("ab<&>é\u4f60 \n'\"]-!", max_size=8)
SPACES = st.sampled_from(["", "\n", "<!-- <tu><tuv/></tu> -->\n", "<!-- </tu> -->", "<note>n</note>"])
UNITS = st.one_of(
    st.tuples(TEXTS, TEXTS).map(lambda pair: unit(*(re.sub("[<&>]", lambda m: f"&#{ord(m[0])};", t) for t in pair))),
    TEXTS.map(lambda text: unit(f"<![CDATA[{text.replace(']]>', '')} </tu> <tu>]]>")),
    st.just("<tu a='1'><prop>p</prop><!-- </tu> --></tu>\n"),
)


@given(st.lists(st.tuples(SPACES, UNITS), min_size=1), st.integers(1, 40))
def test_the_parts_of_a_text_do_not_depend_on_its_pieces_and_are_its_units(parts, size):
    text = HEAD + "".join(space + text for space, text in parts) + END
    in_pieces = list(parts_of(text[start : start + size] for start in range(0, len(text), size)))
    assert in_pieces == list(parts_of([text]))
    assert [part.text for part in in_pieces] == [text.strip() for _, text in parts]
    assert [part.line for part in in_pieces] == [
        (HEAD + "".join(space + text for space, text in parts[:n]) + parts[n][0]).count("\n") + 1
        for n in range(len(parts))
    ]


def catalogue(folder, name, messages):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'msgid "{a}"\nmsgstr "{b}"\n\n' for a, b in messages), encoding="utf-8")
    return path


FAULTS = {
    "line": b'msgid "a"\nmsgstr "b\n',
    "UTF-8": b'msgid "a"\nmsgstr "\xe9"\n',
    "msgstr": b'msgid "a"\n',
    "gzip": gzip.compress(b"x"),
    "KOI8-R": b'msgid ""\nmsgstr "Content-Type: text/plain; charset=KOI8-R\\n"\n',
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_file_of_a_folder_is_skipped_whole_counted_and_named(tmp_path, fault):
    catalogue(tmp_path, "po/a.po", [("one", "uno")])
    damaged = catalogue(tmp_path, "po/sub/b.po", [("two", "due"), ("three", "tre")])
    is_whole = fault in ("KOI8-R", "gzip")
    damaged.write_bytes(FAULTS[fault] if is_whole else damaged.read_bytes() + FAULTS[fault])
    catalogue(tmp_path, "po/z.po", [("four", "quattro")])
    source = FolderSource(folder=str(tmp_path / "po"), pattern="**/*.po", skip_damaged=True)
    report = ReadReport()
    assert [row[1:] for row in read_rows(source, ("en", "it"), report)] == [("one", "uno"), ("four", "quattro")]
    (note,) = report.notes()
    assert note.startswith("1 of 3 files was skipped: sub/b.po") and fault in note
    with pytest.raises(CorpusError, match=r"b\.po.*`skip_damaged: true`"):
        list(read_rows(source.model_copy(update={"skip_damaged": False}), ("en", "it")))


def test_a_folder_in_which_all_is_damaged_is_an_error(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.po").write_text("damage\n", encoding="utf-8")
    source = FolderSource(folder=str(tmp_path), pattern="*.po", skip_damaged=True)
    with pytest.raises(CorpusError, match=r"all of its files .*a\.po, line 1"):
        list(read_rows(source, ("en", "it")))


def test_units_of_a_folder_of_memories_are_skipped_and_not_the_files(tmp_path):
    (tmp_path / "a.tmx").write_text(HEAD + unit("a") + unit("b & c") + END, encoding="utf-8")
    (tmp_path / "b.tmx").write_text(HEAD + unit("d") + END, encoding="utf-8")
    source = FolderSource(folder=str(tmp_path), pattern="*.tmx", skip_damaged=True)
    report = ReadReport()
    assert [row[1] for row in read_rows(source, ("en", "it"), report)] == ["a", "d"]
    assert report.num_skipped == {"unit": 1} and "1 of 3 units" in next(report.notes())


@pytest.mark.parametrize(("key", "value"), [("skip_damaged", True), ("inline_codes", "keep")])
def test_options_of_memories_are_refused_for_other_files(key, value):
    assert FileSource(file="a.tmx.gz", **{key: value})
    for other in ({"file": "a.po"}, {"file": "a.tmx", "format": "tsv"}):
        with pytest.raises(ValueError, match=f"{key}: only"):
            FileSource(**other, **{key: value})


PAIRS = [(f"the open window of house {n}", f"la finestra della casa {n}") for n in range(60)]


def test_init_check_and_training_name_and_count_what_is_skipped(mt, tmp_path):
    units = "".join(unit(*pair) for pair in PAIRS)
    (tmp_path / "m.tmx").write_text(HEAD + units + unit("R & D") + END, encoding="utf-8")
    status, _, err = mt("init", "--file", "m.tmx", "--name", "m")
    assert status == 2 and "m.tmx, line 64: " in err and "--skip-damaged" in err
    note = "note: 1 of 61 units was skipped: m.tmx, line 64: "
    status, _, err = mt("init", "--file", "m.tmx", "--name", "m", "--skip-damaged")
    assert status == 0 and note in err
    status, out, _ = mt("data", "check", "--config", "m.yaml")
    assert status == 0 and note in out
    row = json.loads(mt("data", "check", "--config", "m.yaml", "--json")[1])["corpora"][0]
    assert row["num_skipped_units"] == 1 and row["skipped"][0].startswith("m.tmx, line 64: ")
    config = write_config(tmp_path, sentences(3), target="it", train={"file": "m.tmx", "skip_damaged": True})
    status, _, err = mt("train", "--config", config)
    assert status == 0 and note in err
    assert json.loads((tmp_path / "runs/checked/report.json").read_text())["corpora"][0]["num_skipped_units"] == 1
    for source in (("--files", "a", "b"), ("--file", "m.tmx", "--format", "tsv")):
        status, _, err = mt("init", *source, "--skip-damaged")
        assert status == 2 and "skip_damaged" in err


def test_streams_count_what_they_skip(tmp_path):
    (tmp_path / "m.tmx").write_text(HEAD + unit("R & D") + "".join(unit(*pair) for pair in PAIRS) + END)
    file = {"file": str(tmp_path / "m.tmx"), "skip_damaged": True}
    tree = {"source": "en", "target": "it", "train": {**file, "streaming": True}, "valid": file}
    config = parse_config({"name": "s", "corpus": tree, "training": {"max_steps": 1, "validate_every_steps": 1}}, "s")
    pairs = StreamedPairs(config.corpus, train_tokenizers(lambda: PAIRS, config), [[], []], 1)
    for _ in range(2):
        list(pairs.pools(1, 0))
    assert pairs.counts[0]["damaged"] == 2 and pairs.counts[0]["kept"] == 2 * len(PAIRS)
