"""A fuzzer: `mt` ends cleanly for any config, corpus, command line, text, run directory or published model.

It ends with exit status 0, 1 or 2, within seconds, without a traceback. Published models and tokenizers are read by
libraries that may end the process, so each of them is read in its own, with limits on memory and time. Each case is
made from a seed. A failure names the family and the seed: `config 17` is repeated by

    pytest -m slow tests/system/test_hostile_input.py -k test_configs --fuzz-seed 17 --fuzz-cases 1

`--fuzz-minutes 30` runs each family for half an hour, with seeds from `--fuzz-seed` on.
"""

import base64
import contextlib
import copy
import csv
import dataclasses
import encodings.aliases
import gzip
import io
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
import warnings
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pyarrow
import pytest
import torch
import yaml
from pyarrow import parquet
from safetensors import safe_open
from safetensors.torch import load_file

from mt_cli.checkpoint import files
from mt_cli.cli import main as cli
from mt_cli.config.sources import FileSource, FilesSource
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import CorpusError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SECONDS = 60
ODD_VALUES = [
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 2**63, 2**64, -(2**70), 10**400),
    *(0.5, -0.5, 1e-320, 1e308, float("nan"), float("inf")),
    *("", " ", "a", "\0", "no", "auto", "../x", "/", "x" * 5000, "\ud7ff", "½", "ᴺ", "1e3", "~", "null"),
    *([], [[]], [None], [1, 2], ["a", "b"], ["a"] * 50, {}, {"a": 1}, {"": None}, {1: 2}, {"files": 3}, {"file": ".."}),
    *({"builtin": "reverse-words", "split": "train"}, {"fraction": 2}, {"files": ["/dev/null", "/dev/null"]}),
    *({"dataset": "."}, {"file": "x.parquet"}, {"file": "x.gz"}, [{"builtin": "reverse-words", "split": "x"}] * 3),
]
TEXTS = [
    "",
    "one two.",
    "one",
    "\t",
    "a\tb",
    '"',
    "ä",
    "日本語",
    "\u2028",
    "\u200f",
    "🙂" * 9,
    "x" * 3000,
    "one " * 300,
]


@pytest.fixture
def attempt(tmp_path, monkeypatch, capfd):
    """Runs a command that may fail with a message; returns exit status and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def hang(number, frame):
        raise AssertionError(f"more than {SECONDS} seconds")

    former = signal.signal(signal.SIGALRM, hang)

    problems = []

    def run(case, *arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        signal.alarm(SECONDS)
        status = None
        try:
            cli.main()
        except SystemExit as caught:
            status = caught.code or 0
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            problems.append(f"{case}: {arguments[:6]}: {type(error).__name__}: {str(error)[:200]} ({where})")
        finally:
            signal.alarm(0)
        err = capfd.readouterr().err
        if status is not None and status not in (0, 1, 2):
            problems.append(f"{case}: {arguments}: exit status {status}: {err[-500:]}")
        if "Traceback" in err or (status and not err):
            problems.append(f"{case}: {arguments}: says {err[-2000:]}")
        return status, err

    yield run
    signal.signal(signal.SIGALRM, former)
    assert not problems, "\n".join(problems)


@pytest.fixture
def seeds(request):
    """The seeds of a family, from `--fuzz-seed` on: a fixed number, or as many as fit into `--fuzz-minutes`."""
    first, number, minutes = (request.config.getoption(f"--fuzz-{name}") for name in ("seed", "cases", "minutes"))

    def numbers(usual):
        if minutes is None:
            return iter(range(first, first + (number or usual)))
        ends_at = time.monotonic() + 60 * minutes
        return itertools.takewhile(lambda seed: time.monotonic() < ends_at, itertools.count(first))

    return numbers


def nodes_of(tree, path=()):
    """The path of every value in a tree."""
    yield path
    if isinstance(tree, dict | list):
        for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from nodes_of(child, (*path, key))


def mutate(tree, chance):
    """A copy of a tree with a few values replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        paths = [path for path in nodes_of(tree) if path]
        if not paths:
            break
        path = chance.choice(paths)
        parent = tree
        for key in path[:-1]:
            parent = parent[key]
        value = copy.deepcopy(chance.choice(ODD_VALUES))
        match chance.randrange(4):
            case 0 if isinstance(parent, dict):
                del parent[path[-1]]
            case 1 if isinstance(parent, dict):
                parent[chance.choice(("", "d_modle", "training", 3, "x" * 200, "weight", "tag", "columns"))] = value
            case _:
                parent[path[-1]] = value
    return tree


def complete(tree):
    """The tree with every option written out, so that each can be mutated."""
    from mt_cli.config.loading import parse_config

    return yaml.safe_load(parse_config(tree, "test").to_yaml())


def bend(content, chance):
    """The bytes with a few of them changed, removed or added."""
    content = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 5, 40))):
        place = chance.randrange(len(content) + 1)
        match chance.randrange(5):
            case 0:
                content[place:] = b""
            case 1:
                content[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
            case 2:
                content[place : place + chance.randrange(1, 99)] = b""
            case 3:
                content[place:place] = chance.choice(TEXTS).encode("utf-8") + chance.choice((b"\n", b"\r", b"\0", b""))
            case _:
                if place < len(content):
                    content[place] ^= 1 << chance.randrange(8)
    return bytes(content)


def test_configs(attempt, seeds, tiny_tree, tmp_path):
    tree = complete(tiny_tree)
    text = yaml.safe_dump(tree).encode("utf-8")
    for seed in seeds(800):
        chance = random.Random(seed)
        bad = bend(text, chance) if seed % 4 == 0 else yaml.safe_dump(mutate(tree, chance), allow_unicode=True).encode()
        (tmp_path / "c.yaml").write_bytes(bad)
        attempt(f"config {seed}", "data", "check", "--config", "c.yaml")


def test_configs_that_train(attempt, seeds, tiny_tree, tmp_path):
    tree = complete(tiny_tree)
    for seed in seeds(200):
        chance = random.Random(seed)
        section = chance.choice(("model", "training", "decoding", "tokenizer"))
        bad = tree | {section: mutate({section: tree[section]}, chance).get(section)}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(bad), encoding="utf-8")
        limits = ("--set", "training.max_steps=2", "--set", f"name=run{seed}")
        attempt(f"training {seed}", "train", "--config", "c.yaml", *limits)


KINDS = (
    *("a.tsv", "a.csv", "a.jsonl", "b.jsonl", "a.tmx", "a.po", "a.tsv.gz", "a.tsv.zst", "a.csv.gz", "a.po.zst"),
    *("a.parquet", "b.parquet", "c.parquet"),
)
"""Files of every kind; `b` has a `translation` column, `c` a map in it."""


def spelled(kind, pairs, chance):
    """The bytes of a file of some pairs, in one of the spellings that its kind allows."""
    sides = list(zip(*pairs, strict=True))
    if kind.endswith(".parquet"):
        return parquet_bytes(kind, sides, chance)
    content = {"tsv": tsv, "csv": csv_text, "jsonl": jsonl, "tmx": tmx, "po": po}[kind.split(".")[1]](
        pairs, chance, kind.startswith("b")
    )
    content = content if isinstance(content, bytes) else chance.choice(("", "\ufeff")).encode() + content.encode()
    if kind.endswith(".gz"):
        return b"".join(map(gzip.compress, halves(content, chance)))
    if kind.endswith(".zst"):
        return b"".join(pyarrow.compress(half, "zstd", asbytes=True) for half in halves(content, chance))
    return content


def halves(content, chance):
    place = chance.randrange(len(content) + 1)
    return content[:place], content[place:]


def parquet_bytes(kind, sides, chance):
    """Text of any type, with nulls for blank sides."""
    blank = chance.choice((None, ""))
    types = chance.choice(([pyarrow.string(), pyarrow.large_string()], [pyarrow.string_view()]))
    arrays = [pyarrow.array([text or blank for text in side], chance.choice(types)) for side in sides]
    if kind.startswith("a"):
        arrays = [each.cast(pyarrow.string()).dictionary_encode() if chance.random() < 0.3 else each for each in arrays]
        table = dict(zip(("en", "xx"), arrays, strict=True))
    elif kind.startswith("b"):
        table = {"translation": pyarrow.StructArray.from_arrays(arrays, ["en", "xx"])}
    else:
        rows = [list(zip(("en", "xx"), texts, strict=True)) for texts in zip(*sides, strict=True)]
        table = {"translation": pyarrow.array(rows, pyarrow.map_(pyarrow.string(), pyarrow.string()))}
    file = io.BytesIO()
    # Arrow cannot cut columns of views.
    size = 1000 if len(types) == 1 else chance.choice((1, 7))
    options = {"row_group_size": size, "use_dictionary": chance.random() < 0.5}
    parquet.write_table(pyarrow.table(table | {"number": range(len(sides[0]))}), file, **options)
    return file.getvalue()


def tsv(pairs, chance, is_nested):
    end = chance.choice(("\n", "\r\n"))
    heading = chance.choice(("", f"en\txx{end}"))
    return heading + "".join(f"{source}\t{target}{end}" for source, target in pairs)


def csv_text(pairs, chance, is_nested):
    text = io.StringIO(newline="")
    options = {"quoting": chance.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL)), "lineterminator": "\r\n"}
    csv.writer(text, **options).writerows([*chance.choice(([], [("en", "xx")])), *pairs])
    return text.getvalue()


def jsonl(pairs, chance, is_nested):
    records = [{"en": source, "n": [1], "xx": target or chance.choice(("", None))} for source, target in pairs]
    records = [{"translation": record} for record in records] if is_nested else records
    return "".join(json.dumps(record, ensure_ascii=chance.random() < 0.5) + "\n" for record in records)


def tmx(pairs, chance, is_nested):
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{escape(a)}</seg></tuv><tuv xml:lang="xx"><seg>{escape(b)}</seg></tuv></tu>\n'
        for a, b in pairs
    )
    encoding = chance.choice(("utf-8", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1", "windows-1251"))
    text = f'<?xml version="1.0" encoding="{encoding[:6] if "16" in encoding else encoding}"?><tmx>{units}</tmx>'
    return text.encode(encoding, "xmlcharrefreplace")


def po(pairs, chance, is_nested):
    heading = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    return chance.choice(("", heading)) + "\n".join(
        f'#: file.c:{n}\nmsgctxt "{n}"\nmsgid {po_string(a, chance)}\nmsgstr {po_string(b, chance)}\n'
        for n, (a, b) in enumerate(pairs)
    )


def po_string(text, chance):
    spell = chance.choice(
        (
            lambda byte: chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:03o}",
            lambda byte: chr(byte) if 103 <= byte < 127 else f"\\x{byte:02x}",
        )
    )
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("\n", "\\n")
    return f'"{chance.choice((plain, "".join(map(spell, text.encode("utf-8")))))}"'


def transcoded(content, chance):
    """Text in another encoding that has its characters."""
    text = content.decode("utf-8", "replace")
    names = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "gb18030"]
    for encoding in ("latin-1", "cp1252", "shift_jis", "cp1251", "euc_jp"):
        with contextlib.suppress(UnicodeError):
            text.encode(encoding)
            names += [encoding] * 3
    return text.encode(chance.choice(names))


def separated(content, chance):
    """A table with other separators or line ends."""
    former, new = chance.choice(
        ((b"\t", b";"), (b"\t", b","), (b",", b";"), (b",", b"\t"), (b"\r\n", b"\r"), (b"\n", b"\r"))
    )
    return content.replace(former, new)


def packed(content, chance):
    return chance.choice((gzip.compress, lambda content: pyarrow.compress(content, "zstd", asbytes=True)))(content)


def sprinkled(content, chance):
    """The bytes with a few misplaced tokens of the format, or with another declared encoding."""
    content = re.sub(rb"(encoding=\"|charset=)[\w-]+", rb"\1" + chance.choice(ENCODINGS), content)
    for _ in range(chance.randrange(4)):
        place = chance.choice([0, len(content), *(found.end() for found in re.finditer(rb"[\n\">]", content))])
        content = content[:place] + chance.choice(TOKENS) + content[place:]
    return content


ENCODINGS = [*sorted({name.encode() for name in encodings.aliases.aliases.values()}), b"", b"x" * 300, b"foo", b"\xe9"]
TOKENS = [
    *(
        b"<tu>",
        b"</tu>",
        b"<seg>",
        b"</seg>",
        b"<tuv>",
        b"<ph>",
        b"&nbsp;",
        b"&#0;",
        b"<![CDATA[",
        b"<!--",
        b"<?x?>",
        b"%x;",
    ),
    *(b'<!DOCTYPE tmx SYSTEM "x">', b'<!DOCTYPE tmx [<!ENTITY a "b">]>', b"<!DOCTYPE tmx [%x;]>", b' xml:lang=""'),
    *(
        b'"',
        b'""',
        b",",
        b"\t",
        b";",
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b"sep=;\n",
        b"en\txx\n",
        b"en,xx,en\n",
        b"\xef\xbb\xbf",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"null",
        b"NaN",
        b'"en": 1,',
        b'"en": "x",',
        b'{"translation": 3}\n',
        b"\\ud800",
        b"\\u0000",
    ),
    *(
        b'msgid ""\n',
        b'msgstr "x"\n',
        b'msgstr[1] "x"\n',
        b'msgid_plural "x"\n',
        b"#, fuzzy\n",
        b"#~ ",
        b"\\",
        b"\\400",
        b"\\x",
    ),
]
CHANGES = (transcoded, separated, packed, sprinkled, sprinkled)


def corpus_files(tmp_path):
    """A small whole file of each kind, and how a config names it."""
    pairs = [(f"one {number} twò.", f"ONE {number} TWÒ.") for number in range(20)]
    named = []
    for kind in KINDS:
        (tmp_path / kind).write_bytes(spelled(kind, pairs, random.Random(0)))
        named.append(({"file": kind}, kind))
    for name, side in (("a.en", 0), ("a.xx", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    (tmp_path / "hub").mkdir()
    shutil.copy(tmp_path / "a.parquet", tmp_path / "hub" / "train.parquet")
    hub = {"dataset": "hub", "split": "train", "columns": ["en", "xx"]}
    return [*named, ({"files": ["a.en", "a.xx"]}, "a.en"), (hub, "hub/train.parquet")]


def test_corpora(attempt, seeds, tiny_tree, tmp_path):
    kinds = corpus_files(tmp_path)
    for source, _ in kinds:
        tiny_tree["corpus"]["train"] = source
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
        assert attempt(str(source), "data", "check", "--config", "c.yaml")[0] in (0, 2)
    for seed in seeds(600):
        chance = random.Random(seed)
        source, name = chance.choice(kinds)
        kept = (tmp_path / name).read_bytes()
        tiny_tree["corpus"]["train"] = source | ({"streaming": True} if seed % 5 == 0 else {})
        tiny_tree["corpus"]["valid"] = {"files": ["a.en", "a.xx"]}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
        (tmp_path / name).write_bytes(chance.choice((bend, bend, bend, *CHANGES))(kept, chance))
        options = ("--set", "training.validate_every_steps=5")
        attempt(f"corpus {seed} {name}", "data", "check", "--config", "c.yaml", *options)
        (tmp_path / name).write_bytes(kept)


def test_command_lines(attempt, seeds, trained, tiny_config, tmp_path):
    (tmp_path / "text.txt").write_text("one two.\n", encoding="utf-8")
    commands = ["train", "translate", "tokenize", "evaluate", "data check", "data show", "data", "dance"]
    options = ["--config", "--run", "--set", "--input", "--output", "--beam-size", "--length-penalty", "--n-best"]
    options += ["--json", "--attention", "--tag", "--source", "--reference", "--split", "--side", "--ids", "--device"]
    options += ["-n", "--dropped", "--fresh", "--help"]
    values = [str(trained), str(tiny_config), "text.txt", "out.txt", "none", ".", "", "-1", "0", "1", "2", "9" * 14]
    values += ["1e400", "nan", "cpu", "cuda:7", "a.png", "a.xyz", "training.max_steps=1", "=", "a=b=c", "x.y.z=["]
    for seed in seeds(500):
        chance = random.Random(seed)
        start = chance.choice(commands).split()
        arguments = start + [chance.choice(chance.choice((options, values, TEXTS))) for _ in range(chance.randrange(7))]
        if seed % 2:
            arguments += ["--run", str(trained)] if start[0] in ("translate", "tokenize", "evaluate") else []
            arguments += ["--config", str(tiny_config)] if start[0] in ("train", "data") else []
        attempt(f"command line {seed}", *arguments, stdin=b"one.\n")


def test_text_to_translate(attempt, seeds, trained, tmp_path):
    for seed in seeds(300):
        chance = random.Random(seed)
        lines = "\n".join(chance.choice(TEXTS) for _ in range(chance.randrange(6))).encode("utf-8")
        text = bytes(chance.randrange(256) for _ in range(200)) if seed % 10 == 0 else bend(lines, chance)
        options = chance.choice(((), ("--json",), ("--beam-size", "3", "--n-best", "2"), ("--length-penalty", "0")))
        attempt(f"text {seed}", "translate", "--run", trained, *options, stdin=text)


def forge(path, chance):
    """Write a checkpoint with wrong content and the right checksum."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    name = chance.choice(sorted(tensors))
    match chance.randrange(5):
        case 0:
            del tensors[name]
        case 1:
            tensors[name] = torch.full((chance.choice((0, 1, 7)),), chance.choice((0.0, float("nan"), 1e30)))
        case 2:
            tensors[chance.choice(("model.x", "optimizer.0", "optimizer.999.exp_avg", "optimizer.a.b"))] = tensors[name]
        case 3:
            tree = json.loads(metadata["state"])
            metadata["state"] = json.dumps(mutate(tree, chance), skipkeys=True)
        case _:
            key = chance.choice(sorted(set(metadata) - {"sha256"}))
            metadata[key] = chance.choice(("", "{}", "[]", "null", "3", "[" * 3000, '{"python": 1}'))
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    files.save_file(tensors, path, metadata | {"sha256": "0" * 64})
    files._write_checksum(str(path))


def test_damaged_run_directories(attempt, seeds, tiny_config, tmp_path):
    (tmp_path / "text.txt").write_text("one two.\n", encoding="utf-8")
    command = ("train", "--config", tiny_config, "--set", "training.validate_every_steps=4", "--set")
    assert attempt("whole run", *command, "training.max_steps=8")[0] == 0
    shutil.copytree("runs/tiny", "kept")
    kept = tmp_path / "kept"
    paths = sorted(path.relative_to(kept) for path in kept.rglob("*") if path.is_file())
    for seed in seeds(300):
        chance = random.Random(seed)
        shutil.rmtree("runs/tiny")
        shutil.copytree("kept", "runs/tiny")
        path = tmp_path / "runs" / "tiny" / chance.choice(paths)
        if path.suffix == ".safetensors" and seed % 2:
            forge(path, chance)
        elif seed % 7 == 0:
            path.unlink()
            if seed % 2:
                path.mkdir()
        elif path.suffix == ".json" and seed % 3:
            path.write_text(json.dumps(mutate(json.loads(path.read_bytes()), chance), skipkeys=True), encoding="utf-8")
        else:
            path.write_bytes(bend(path.read_bytes(), chance))
        case = f"run directory {seed} {path.name}"
        attempt(
            case, "translate", "one two.", "--run", "runs/tiny", *(("--attention", "a.png") if seed % 9 == 0 else ())
        )
        attempt(case, "tokenize", "one two.", "--run", "runs/tiny")
        attempt(case, *command, f"training.max_steps={chance.choice((8, 9))}")


WORDS = [
    *(
        "one",
        "two,",
        "three;",
        "four",
        "|",
        '"five"',
        "'six'",
        "\\n",
        "perché",
        "città",
        "Привет",
        "世界",
        "テスト",
        "שלום",
    ),
    *("🙂", "&", "<b>", "&amp;", "a\\tb", "100%", "=", "é", "ñ", "\u2028", "\ufeff"),
]


def read_sides(tmp_path, kind, contents):
    """The pairs that the readers find in one or two files; None if they refuse."""
    names = [str(tmp_path / name) for name in ([kind] if len(contents) == 1 else ("a.en", "a.xx"))]
    source = FileSource(file=names[0]) if len(names) == 1 else FilesSource(files=tuple(names))
    for name, content in zip(names, contents, strict=True):
        with open(name, "wb") as file:
            file.write(content)
    try:
        return [row[1:] for row in read_rows(source, ("en", "xx"))]
    except CorpusError:
        return None


def test_readers(seeds, tmp_path):
    """A valid file gives its pairs in every spelling; a broken file gives some pairs or a `CorpusError`."""
    for seed in seeds(2_000):
        chance = random.Random(seed)
        words = chance.choice((WORDS, WORDS[:10], WORDS[:8]))
        texts = [" ".join(chance.choices(words, k=chance.randrange(1, 9))) for _ in range(chance.randrange(1, 30))]
        pairs = [("one", "due"), *((text, chance.choice((*texts, ""))) for text in texts)]
        kind = chance.choice((*KINDS, "two files"))
        if kind == "two files":
            whole = ["".join(f"{pair[side]}\n" for pair in pairs).encode() for side in (0, 1)]
        else:
            whole = [spelled(kind, pairs, chance)]
        change = chance.choice((bend, bend, *CHANGES))
        broken = [change(content, chance) if chance.random() < 0.8 else content for content in whole]
        try:
            assert read_sides(tmp_path, kind, whole) == pairs
            found = read_sides(tmp_path, kind, broken)
            if change is transcoded and kind in ("a.tsv", "a.csv", "a.jsonl", "b.jsonl", "a.po", "two files"):
                assert found in (None, pairs)
        except Exception as error:
            raise AssertionError(f"reader {seed} {kind}") from error


def content_of(folder):
    """The files of a folder with their contents, links and times."""
    return {
        str(path.relative_to(folder)): path.is_dir() or (path.lstat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
    }


def plant(path, outside, chance):
    """Replace a file, or add one, by a link, a pipe, a folder or bytes."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    match chance.randrange(6):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case 2:
            path.write_bytes(bytes(chance.randrange(256) for _ in range(99)))
        case _:
            targets = (outside / "file", outside, outside / "none", "/dev/zero", "/dev/full", ".", path.name)
            path.symlink_to(chance.choice(targets))


def test_untrusted_run_directories(attempt, seeds, tiny_config, tmp_path):
    """No content of a run directory makes a command change files outside it, and an export replaces nothing."""
    command = ("train", "--config", tiny_config, "--set", "training.validate_every_steps=4", "--set")
    assert attempt("whole run", *command, "training.max_steps=8")[0] == 0
    shutil.copytree("runs/tiny", "kept")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("one two.\n", encoding="utf-8")
    (tmp_path / "outside" / "test.txt").write_text("one two.\n", encoding="utf-8")
    before = content_of(tmp_path / "outside")
    run = tmp_path / "runs" / "tiny"
    names = [str(path.relative_to("kept")) for path in Path("kept").rglob("*")]
    names += ["report.html", "pictures", "pictures/positions.png", "hypotheses/files.txt", ".lock", "bad_batch.jsonl"]
    names += [f"{name}.tmp" for name in names if "." in name] + ["checkpoints/former_best.safetensors", "x", "a/b"]
    for seed in seeds(300):
        chance = random.Random(seed)
        shutil.rmtree(run)
        shutil.copytree("kept", run)
        for name in chance.choices(names, k=chance.choice((1, 1, 2, 3))):
            path = run / name
            if path.suffix == ".json" and path.is_file() and seed % 2:
                path.write_text(json.dumps(mutate(json.loads(path.read_bytes()), chance), skipkeys=True))
            elif path.parent.is_dir() or not os.path.lexists(path.parent):
                plant(path, tmp_path / "outside", chance)
        case = f"stranger {seed}"
        commands = [
            ("translate", "one two.", "--run", run),
            ("score", "one.", "ONE.", "--run", run),
            ("tokenize", "one.", "--run", run),
            ("evaluate", "--run", run, "--source", "outside/file", "--reference", "outside/test.txt"),
            ("inspect", "--run", run),
            ("report", "--run", run, *(("--compare", "kept") if seed % 3 else ())),
            (*command, f"training.max_steps={chance.choice((8, 9))}"),
        ]
        for arguments in chance.sample(commands, 3):
            attempt(case, *arguments)
        output = Path(
            chance.choice(("new", "new", "a/b", "outside", "outside/file/x", "runs/tiny/x", "kept", "x" * 256))
        )
        was_there = os.path.lexists(output)
        status, _ = attempt(case, "export", "--run", run, "--output", output, "--format", "bundle")
        assert status or (not was_there and (output / "model.json").is_file()), case
        assert not [*tmp_path.glob("*.unfinished-*")], case
        for folder in ("new", "a"):
            shutil.rmtree(folder, ignore_errors=True)
        assert content_of(tmp_path / "outside") == before, case


def test_standard_streams(forked, seeds, trained, tiny_config, tmp_path):
    (tmp_path / "text.txt").write_text("one two.\n" * 9, encoding="utf-8")
    (tmp_path / "caf\udce9").write_text("one two.\n", encoding="utf-8")
    run, config = f" --run {trained}", f" --config {tiny_config}"
    commands = [
        *("--help", "--version", "dance", "translate --help", "doctor", "data show" + config, "data check" + config),
        *("tokenize X" + run, "translate X" + run, "translate one. --prefix X" + run, "score one. X" + run),
        *("translate" + run, "translate --input X" + run, "translate one. --output X" + run, "inspect X" + run),
        *("translate --input text.txt --output X" + run, "translate one. --alignment X --attention text.txt" + run),
        *("evaluate --source text.txt --reference X" + run, "translate one. --run X", f"train{config} --set X=1"),
        *("train --config X", "evaluate --split X" + run, "translate one. --device X" + run, "report --run X"),
    ]
    words = [
        "one.",
        "text.txt",
        "caf\udce9",
        "caf\udcc3\udca9",
        "perché",
        "\x1b[31m",
        "\x9b2J",
        "\r",
        "none",
        ".",
        "日本",
    ]
    problems = []
    for seed in seeds(400):
        chance = random.Random(seed)
        arguments = chance.choice(commands).replace("X", chance.choice(words)).split()
        streams = tuple(chance.choice(("there", "there", "closed", "full", "left")) for _ in range(3))
        encoding = chance.choice(("utf-8", "ascii", "cp1252", "utf-16"))
        status, _, err = forked(*arguments, streams=streams, encoding=encoding)
        is_told = status == 0 or err or streams[2] != "there" or arguments == ["doctor"]  # Whose findings are results.
        steers = any(not character.isprintable() and character != "\n" for character in err)
        if status not in (0, 1, 2) or "Traceback" in err or "Exception ignored" in err or steers or not is_told:
            problems.append(f"streams {seed}: {arguments}: {streams} {encoding}: exit status {status}: {err[-2000:]!r}")
    assert not problems, "\n".join(problems)


def with_state(path, change):
    """Write a checkpoint again with a changed state, and the right checksum."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    metadata["state"] = json.dumps(change(json.loads(metadata["state"])), skipkeys=True)
    files.save_file(tensors, path, metadata | {"sha256": "0" * 64})
    files._write_checksum(str(path))


ANCESTOR = {"run": "old", "languages": ["en", "xx"], "step": 3, "weights": "0" * 64, "parents": []}
COMMANDS_ON_A_RUN = (
    "translate one. --run runs/tiny",
    "tokenize one. --run runs/tiny",
    "score one. ONE. --run runs/tiny --json",
    "evaluate --run runs/tiny --source two.en --reference two.xx --against kept",
    "inspect --run runs/tiny",
    "report --run runs/tiny --compare kept",
    "average --run runs/tiny --last 2",
    "average --run runs/tiny --run kept --output new",
    "export --run runs/tiny --format bundle --output new",
    "tune-decoding --run runs/tiny --beam-sizes 1 --max-sentences 3",
    "train --config tiny.yaml --set training.max_steps=9",
    "train --config tiny.yaml --set training.max_steps=1 --set name=new --set init.run=runs/tiny",
    "report --run kept --compare runs/tiny",
)


def test_states(attempt, seeds, tiny_tree, tmp_path):
    """A run whose state, report, config, metrics or tokenizer has other values, with the right checksum."""
    for side, line in (("en", "one two.\n"), ("xx", "ONE TWO.\n")):
        (tmp_path / f"two.{side}").write_text(line * 2, encoding="utf-8")
    tiny_tree["corpus"] |= {"test": {"files": ["two.en", "two.xx"]}}
    tiny_tree["training"] |= {"validate_every_steps": 4, "keep_validated": 2, "max_epochs": None, "max_steps": 8}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    assert attempt("whole run", "train", "--config", "tiny.yaml")[0] == 0
    shutil.copytree("runs/tiny", "kept")
    names = sorted(str(path.relative_to("kept")) for path in Path("kept").glob("checkpoints/*.safetensors"))
    for name in names:
        with_state(tmp_path / "kept" / name, lambda state: state | {"parents": [ANCESTOR | {"parents": [ANCESTOR]}]})
    sidecars = ["report.json", "config.yaml", "metrics.jsonl", "tokenizer.source.json", "tokenizer.target.json"]
    for seed in seeds(300):
        chance = random.Random(seed)
        for folder in ("runs/tiny", "runs/new", "new"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree("kept", "runs/tiny")
        run = tmp_path / "runs" / "tiny"
        name = chance.choice(sidecars) if seed % 3 == 0 else "the states"
        if name == "the states":
            for each in names:
                with_state(run / each, lambda state, seed=seed: mutate({"": state}, random.Random(seed)).get(""))
        elif name == "metrics.jsonl":
            rows = [json.loads(line) for line in (run / name).read_text(encoding="utf-8").splitlines()]
            (run / name).write_text("".join(f"{json.dumps(row, skipkeys=True)}\n" for row in mutate(rows, chance)))
        else:
            tree = yaml.safe_load((run / name).read_text(encoding="utf-8"))
            write = yaml.safe_dump if name == "config.yaml" else json.dumps
            options = {} if name == "config.yaml" else {"skipkeys": True}
            (run / name).write_text(write(mutate(tree, chance), **options), encoding="utf-8")
        for command in chance.sample(COMMANDS_ON_A_RUN, 4):
            attempt(f"state {seed} {name}", *command.split())


LARGE = [
    "x" * 10**6,
    "▁" * 600,
    10**40,
    [0] * 99_999,
    2**24,
    2**31 - 1,
    65_536,
    ["\ue000"],
    "[EOS]",
    "<pad>",
    ">>a<<",
    4,
]
"""Values that are dangerous in models, besides `ODD_VALUES`."""
SPELLINGS = [
    *(
        '"\\UFFFFFFFF"',
        "!!timestamp abc",
        "!!int ''",
        "!!bool x",
        "!!binary x",
        ".inf",
        "-.inf",
        ".nan",
        "1:1" + ":1" * 999,
    ),
    *(
        "[" * 3000,
        "{a: " * 3000,
        "9" * 5000,
        "0x" + "f" * 5000,
        "&a [*a]",
        "<<: {a: 1}",
        "!!python/name:os.system",
        "? [a]",
    ),
    *("'", '"', "- " * 2000, "a: &a [" + "x," * 99 + "]\n" + "\n".join(f"b{i}: &b{i} [*a, *a]" for i in range(40))),
]
"""Text that is dangerous in YAML and JSON."""


@pytest.fixture
def isolated(forked, fork_server, tmp_path):
    """Runs a command in a process with limits on its memory and time; returns exit status and standard error."""
    problems = []

    def run(case, *arguments):
        status, _, err = forked(*arguments, limits=(30, 4 * 2**30))
        [peak] = fork_server.peaks
        is_told = status == 0 or (err.count("mt: ") == 1 and err.startswith("mt: "))
        if status not in (0, 1, 2) or "Traceback" in err or peak > 2**30 or not is_told:
            problems.append(f"{case}: {arguments}: exit status {status}, {peak / 2**20:.0f} MB: {err[-1500:]}")
        return status, err

    yield run
    assert not problems, "\n".join(problems)


def change_tree(path, chance):
    """Change some values of a JSON file."""
    tree = json.loads(path.read_bytes())
    for _ in range(chance.choice((1, 1, 2, 4))):
        if chance.randrange(3):
            tree = mutate(tree, chance)
        elif paths := [path for path in nodes_of(tree) if path]:
            *parents, last = chance.choice(paths[:40] if chance.randrange(2) else paths)
            parent = tree
            for key in parents:
                parent = parent[key]
            if isinstance(parent, dict) and chance.randrange(2):
                parent[chance.choice([str(value) for value in LARGE])] = parent.pop(last)
            else:
                parent[last] = chance.choice(LARGE)
    path.write_text(json.dumps(tree, skipkeys=True), encoding="utf-8")


def change_text(path, chance):
    """Change bytes of a text, or put a dangerous spelling in place of a word."""
    text = path.read_bytes()
    words = list(re.finditer(rb"[\w.]+", text))
    if chance.randrange(2) and words:
        word = chance.choice(words)
        path.write_bytes(text[: word.start()] + chance.choice(SPELLINGS).encode("utf-8") + text[word.end() :])
    else:
        path.write_bytes(bend(text, chance))


def change_pieces(path, chance):
    """Change a SentencePiece model: its bytes, or the values of its description."""
    proto = sentencepiece_model().ModelProto()
    proto.ParseFromString(path.read_bytes())
    piece = chance.choice(list(proto.pieces))
    charsmap = proto.normalizer_spec.precompiled_charsmap
    match chance.randrange(9):
        case 0:
            piece.piece = chance.choice(("x" * 10**6, "x" * 513, "", "[PAD]", "\ue000x", "<s>", "▁"))
        case 1:
            piece.score = chance.choice((float("nan"), float("inf"), 3e38, -3e38, 1e-40))
        case 2:
            piece.type = chance.choice((1, 2, 3, 4, 5, 6))
        case 3:
            for length in range(1, chance.choice((100, 512, 3000))):
                proto.pieces.add(piece=chance.choice("ab") * length, score=-length, type=1)
        case 4:
            proto.trainer_spec.model_type = chance.choice((1, 2, 3, 4))
        case 5:
            proto.normalizer_spec.precompiled_charsmap = bend(charsmap, chance)
        case 6:
            place = 4 * chance.randrange(len(charsmap) // 4)
            word = chance.randrange(2**32).to_bytes(4, "little")
            proto.normalizer_spec.precompiled_charsmap = charsmap[:place] + word + charsmap[place + 4 :]
        case 7:
            proto.normalizer_spec.precompiled_charsmap = charsmap.replace(b"\0a\0", b"\0" + b"a" * 100_000 + b"\0", 1)
        case _:
            path.write_bytes(bend(path.read_bytes(), chance))
            return
    path.write_bytes(proto.SerializeToString())


def sentencepiece_model():
    return pytest.importorskip("sentencepiece.sentencepiece_model_pb2", reason="sentencepiece is not installed")


def odd_tensor(tensor, chance):
    """A tensor in place of another one."""
    odd = [
        *(tensor.flatten()[:0], tensor.flatten()[0], tensor[:1], tensor[None], tensor.half(), tensor.bfloat16()),
        *(tensor.double(), tensor.to(torch.complex64), tensor.to(torch.int64), tensor.to(torch.bool), tensor * 1e38),
        *(tensor.to(torch.float8_e4m3fn), tensor * float("nan"), torch.zeros(7), torch.zeros(0, 5)),
    ]
    return chance.choice(odd).clone()


def change_safetensors(path, chance):
    """Change tensors, the description of tensors, or bytes."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    match chance.randrange(3):
        case 0:
            tensors = load_file(path)
            name = chance.choice(sorted(tensors))
            tensors[name if chance.randrange(4) else "x"] = odd_tensor(tensors[name], chance)
            with contextlib.suppress(KeyError):  # Older versions of safetensors do not write complex numbers.
                files.save_file(tensors, path)
        case 1:
            header = json.dumps(mutate(json.loads(content[8:end]), chance), skipkeys=True).encode("utf-8")
            path.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])
        case _:
            path.write_bytes(bend(content[:end], chance) + content[end:])


def change_archive(path, chance):
    """Write the members of an archive again, one of them changed, or change its own records."""
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        members = {member.filename: archive.read(member) for member in archive.infolist()}
    small = [name for name in members if len(members[name]) < 20_000]
    name = chance.choice(small if chance.randrange(2) else list(members))
    if name.endswith(".pkl") or chance.randrange(3) == 0:
        members[name] = bend(members[name], chance)
    elif chance.randrange(2):
        members[name] = chance.choice((b"", b"\0" * 2**24, members[name][:100], members[name] * 3))
    else:
        start = content.rindex(b"PK\x01\x02") if chance.randrange(2) else content.index(b"PK\x05\x06")
        start += chance.randrange(46)
        word = chance.choice((b"\0", b"\1", b"\x63", b"\xff" * 4, b"\xff\xff\xff\x7f"))
        path.write_bytes(content[:start] + word + content[start + len(word) :])
        return
    with zipfile.ZipFile(
        path, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2))
    ) as file:
        for each, data in members.items():
            file.writestr(each, data)


def change_pickle(path, chance):
    """Write other values in either format of PyTorch, or change the archive."""
    tensors = dict(torch.load(path, weights_only=True))
    name = chance.choice(sorted(tensors))
    is_zip = chance.randrange(3) > 0
    match chance.randrange(6):
        case 0:
            tensors[chance.choice((name, name, 3, None, ("a", 1), "x"))] = odd_tensor(tensors[name], chance)
        case 1:
            shape = chance.choice(((10**5, 10**5), (2**40,), (1, 3), tuple(tensors[name].shape)))
            tensors[name] = torch.zeros(1).expand(shape)
        case 2:
            values = (
                3,
                "x",
                [tensors[name]],
                {"a": tensors[name]},
                bytearray(9),
                torch.eye(3).to_sparse(),
                torch.Size([1]),
            )
            tensors[name] = chance.choice(values)
        case 3:
            tensors[name] = torch.empty((99_999,) * 3, device="meta")
        case 4:
            tensors[name] = torch.nn.Parameter(tensors[name]).T
        case _:
            pass
    torch.save(tensors, path, _use_new_zipfile_serialization=is_zip)
    if chance.randrange(2):
        if is_zip:
            change_archive(path, chance)
        else:
            content = path.read_bytes()
            path.write_bytes(bend(content[:6000], chance) + content[6000:])


def change_arrays(path, chance):
    """Change arrays, their headers, or the archive."""
    if chance.randrange(3) == 0:
        return change_archive(path, chance)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = chance.choice(sorted(arrays))
    array = arrays[name]
    if name == "special:model.yml" or chance.randrange(4) == 0:
        other = path.with_name("options.yml")
        other.write_bytes(arrays["special:model.yml"].tobytes().rstrip(b"\0"))
        change_text(other, chance)
        arrays["special:model.yml"] = np.frombuffer(other.read_bytes() + b"\0", np.int8)
        other.unlink()
    else:
        structured = np.zeros(3, [("a", "f4"), ("b", "i4")])
        odd = [array.astype(kind) for kind in ("f2", "f8", ">f4", "i8", "c8", "?", "S4")]
        odd += [structured, array.ravel()[:0], array.ravel()[0], array[None], array * np.float32("nan"), array.T]
        arrays[name if chance.randrange(4) else chance.choice(("x", "Wemb", "special:x"))] = chance.choice(odd)
    chance.choice((np.savez, np.savez, np.savez_compressed))(path, **arrays)
    return None


CHANGERS = {
    **{".json": change_tree, ".yml": change_text, ".spm": change_pieces, ".safetensors": change_safetensors},
    **{".bin": change_pickle, ".npz": change_arrays},
}


def attack(folder, chance):
    """Change one file of a model, or some."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in CHANGERS)
    for path in {chance.choice(paths) for _ in range(chance.choice((1, 1, 1, 2)))}:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            is_text = path.suffix == ".json" and chance.randrange(4) == 0
            (change_text if is_text else CHANGERS[path.suffix])(path, chance)


PUBLISHED = ("safetensors", "pickle", "bpe", "two", "native", "bundle", "exported")


@pytest.fixture(scope="module")
def published(trained, tmp_path_factory):
    """Folders of models that `mt import` reads, by their kinds."""
    marian_files = pytest.importorskip("marian_files")
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.bundle import export_bundle
    from mt_cli.features.exchange.huggingface import export_huggingface
    from mt_cli.model.transformer import Transformer

    folder = tmp_path_factory.mktemp("published")
    made = {name: folder / f"{name}-en-de" for name in PUBLISHED}
    for name in ("safetensors", "bpe", "two"):
        made[name].mkdir()
    theirs, _ = marian_files.write_marian(made["safetensors"], tags=(">>deu<<",))
    marian_files.write_marian(made["bpe"], "bpe")
    marian_files.write_two_vocabularies(made["two"])
    shutil.copytree(made["safetensors"], made["pickle"])
    (made["pickle"] / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), made["pickle"] / "pytorch_model.bin")
    marian_files.write_native(theirs, made["safetensors"], made["native"])
    run = TrainedRun.load(trained)
    export_bundle(run, made["bundle"])
    _, shared = run.tokenizers
    changes = {"model": run.config.model.model_copy(update={"tie_embeddings": "all"})}
    changes["tokenizer"] = run.config.tokenizer.model_copy(update={"shared": True})
    model = Transformer(changes["model"], shared.vocab_size, shared.vocab_size)
    config = run.config.model_copy(update=changes)
    run = dataclasses.replace(run, config=config, tokenizers=(shared, shared), model=model)
    export_huggingface(run, made["exported"], ["one two."], "card")
    return made


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_models(isolated, seeds, published, tmp_path, family):
    """An import makes a run that translates, or it leaves nothing."""
    for seed in seeds(50):
        chance = random.Random(seed)
        shutil.rmtree(tmp_path / "model-en-de", ignore_errors=True)
        shutil.copytree(published[family], tmp_path / "model-en-de")
        attack(tmp_path / "model-en-de", chance)
        case = f"{family} {seed}"
        status, _ = isolated(case, "import", "model-en-de", "--output", "runs/x", "--allow-pickle")
        assert status == 0 or not (tmp_path / "runs").exists(), case
        if status == 0:
            isolated(case, "translate", "--run", "runs/x", *(text for text in TEXTS[1:] if len(text) < 999))
            shutil.rmtree(tmp_path / "runs")


@pytest.fixture(scope="module")
def made_runs(trained, published, tmp_path_factory):
    """Runs with a tokenizer of each kind."""
    from mt_cli.checkpoint.trained import TrainedRun, write_run
    from mt_cli.config.sections import TokenizerConfig
    from mt_cli.features.exchange.importing import import_model
    from mt_cli.model.transformer import Transformer
    from mt_cli.tokenizer.training import train_tokenizer

    folder, run, made = tmp_path_factory.mktemp("runs"), TrainedRun.load(trained), []
    for algorithm in ("word_level", "bpe", "unigram", "char"):
        options = {"vocab_size": 300} if algorithm in ("bpe", "unigram") else {}
        config = TokenizerConfig(algorithm=algorithm, **options)
        source, target = (train_tokenizer([f"{word} {word.upper()}" for word in WORDS] * 9, config) for _ in range(2))
        model = Transformer(run.config.model, source.vocab_size, target.vocab_size)
        update = {"tokenizer": config}
        write_run(folder / algorithm, run.config.model_copy(update=update), (source, target), model, 9)
        made.append(folder / algorithm)
    for kind in ("safetensors", "bpe"):
        import_model(str(published[kind]), folder / f"imported-{kind}", ("en", "de"))
        made.append(folder / f"imported-{kind}")
    return made


def change_details(path, chance):
    """Change the normalisation, the merges or the scores of a tokenizer, if it has them."""
    tree = json.loads(path.read_bytes())
    for step in tree["normalizer"].get("normalizers", ()):
        if step["type"] == "Precompiled":
            content = base64.b64decode(step["precompiled_charsmap"])
            step["precompiled_charsmap"] = base64.b64encode(bend(content, chance)).decode("ascii")
    vocab, merges = tree["model"]["vocab"], tree["model"].get("merges", [])
    for _ in range(chance.randrange(3) if merges else 0):
        merge = [chance.choice(list(vocab)) for _ in range(chance.choice((2, 2, 2, 1, 3)))]
        merges[chance.randrange(len(merges))] = chance.choice((merge, "".join(merge), " ".join(merge)))
    for piece in vocab if isinstance(vocab, list) and chance.randrange(2) else ():
        piece[1] = chance.choice((1e308, -1e308, 0.0, 7.0, -1e-320))
    path.write_text(json.dumps(tree), encoding="utf-8")


def test_tokenizers(isolated, seeds, made_runs, tmp_path):
    """With any content of its tokenizers, a run is used or refused."""
    for seed in seeds(200):
        chance = random.Random(seed)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(chance.choice(made_runs), tmp_path / "run")
        path = tmp_path / "run" / f"tokenizer.{chance.choice(('source', 'target'))}.json"
        chance.choice((change_tree, change_tree, change_text, change_details))(path, chance)
        texts = [text for text in TEXTS if len(text) < 999]
        isolated(f"tokenizer {seed}", "tokenize", "--run", "run", "--side", path.name.split(".")[1], *texts[1:])
        if seed % 4 == 0:
            isolated(f"tokenizer {seed}", "translate", "--run", "run", "one two.")
