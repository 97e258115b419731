"""A fuzzer: `mt` ends cleanly for any config, corpus, command line, text, run directory or published model.

It ends with exit status 0, 1 or 2, within seconds, without a traceback, in a process with limits on memory and time,
because libraries that read models may end it. Every case is made from a seed. A failure names the family and the seed:
`config 17` is repeated by

    pytest -m slow tests/system/test_hostile_input.py -k test_configs --fuzz-seed 17 --fuzz-cases 1

`--fuzz-minutes 30` runs every family for half an hour, with seeds from `--fuzz-seed` on.
"""

import copy
import encodings.aliases
import gzip
import itertools
import json
import math
import os
import random
import re
import shutil
import time
from pathlib import Path
from typing import get_args

import pyarrow
import pytest
import torch
import yaml
from command_lines import COMMANDS
from pyarrow import parquet
from safetensors import safe_open

from mt_cli.checkpoint import files
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.base import Section
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.features.exchange.bundle import export_bundle

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ODD_VALUES = [
    *(None, True, False, 0, -1, 1, 2, 3, 7, 2**31, 2**63, 2**64, -(2**70), 10**400),
    *(0.5, -0.5, 1e-320, 1e308, float("nan"), float("inf")),
    *("", " ", "a", "\0", "no", "auto", "../x", "/", "x" * 5000, "\ud7ff", "½", "ᴺ", "1e3", "~", "null"),
    *("loop", "loop/below", "file/below", "none/below", "x" * 300, {"file": "loop.tsv"}, {"files": ["file/a", "loop"]}),
    *([], [[]], [None], [1, 2], ["a", "b"], ["a"] * 50, {}, {"a": 1}, {"": None}, {1: 2}, {"files": 3}, {"file": ".."}),
    *({"builtin": "reverse-words", "split": "train"}, {"fraction": 2}, {"files": ["/dev/null", "/dev/null"]}),
    *({"dataset": "."}, {"file": "x.parquet"}, {"file": "x.gz"}, [{"builtin": "reverse-words", "split": "x"}] * 3),
]
LARGE_VALUES = ["x" * 10**6, "▁" * 600, 10**40, [0] * 99_999, 2**24, 2**31 - 1, 65_536, ["\ue000"], "[EOS]", ">>a<<"]
"""Values that are dangerous in models."""
TEXTS = ["", "one two.", "one", "\t", "a\tb", '"', "ä", "日本語", "\u2028", "\u200f", "🙂" * 9, "x" * 3000, "a " * 300]
SHORT_TEXTS = [text for text in TEXTS[1:] if len(text) < 999]
SPELLINGS = [
    *('"\\UFFFFFFFF"', "!!timestamp abc", "!!int ''", "!!binary x", ".inf", ".nan", "1:1" + ":1" * 999, "[" * 3000),
    *("{a: " * 3000, "9" * 5000, "&a [*a]", "<<: {a: 1}", "!!python/name:os.system", "? [a]", "- " * 2000),
]
"""Text that is dangerous in YAML and JSON."""
TOKENS = [
    *b"<tu> </tu> <seg> &nbsp; &#0; <![CDATA[ <!-- %x; <!DOCTYPE_tmx_[%x;]> { } [ null NaN \\ud800 \\400 \\x".split(),
    *(b'<!DOCTYPE tmx [<!ENTITY a "b">]>', b' xml:lang=""', b'"', b'""', b",", b"\t", b";", b"\r", b"\n", b"\r\n"),
    *(b"sep=;\n", b"en\txx\n", b"en,xx,en\n", b"\xef\xbb\xbf", b'"en": 1,', b"\0", b"#, fuzzy\n", b"#~ ", b"\\"),
    *(b"<ph>", b'msgid ""\n', b'msgstr[1] "x"\n', b'msgid_plural "x"\n'),
]
"""Pieces of corpus formats in the wrong place."""
ENCODINGS = [*sorted({name.encode() for name in encodings.aliases.aliases.values()}), b"", b"x" * 300, b"foo", b"\xe9"]


@pytest.fixture
def attempt(forked, fork_server):
    """Runs a command that may fail with a message; returns exit status and standard error.

    `is_strict` asks for one line of standard error, and for less than a gigabyte.
    """
    problems = []

    def run(case, *arguments, is_strict=False, **options):
        environment = {"HF_HUB_OFFLINE": "1"}
        status, _, err = forked(*arguments, limits=(60, 4 * 2**30), environment=environment, **options)
        [peak] = fork_server.peaks
        is_silent = arguments == ("doctor",) or options.get("streams", ("there",) * 3)[2] != "there"
        is_told = not status or is_silent or "mt: " in err
        if is_strict:
            is_told = peak < 2**30 and (not status or (err.count("mt: ") == 1 and err.startswith("mt: ")))
        steers = any(not character.isprintable() and character != "\n" for character in err)
        is_clean = "Traceback" not in err and "Exception ignored" not in err and not steers
        if status not in (0, 1, 2) or not is_clean or not is_told:
            details = f"{options}: exit status {status}, {peak / 2**20:.0f} MB: {err[-1500:]!r}"
            problems.append(f"{case}: {arguments[:6]}: {details}")
        return status, err

    yield run
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


def mutate(tree, chance, values=ODD_VALUES):
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
        value = copy.deepcopy(chance.choice(values))
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


def sprinkle(content, chance):
    """The bytes with misplaced pieces of a format, another declared encoding, or other separators."""
    content = re.sub(rb"(encoding=\"|charset=)[\w-]+", rb"\1" + chance.choice(ENCODINGS), content)
    if chance.randrange(3) == 0:
        content = content.replace(
            *chance.choice(((b"\t", b";"), (b",", b";"), (b",", b"\t"), (b"\r\n", b"\r"), (b"\n", b"\r")))
        )
    for _ in range(chance.randrange(4)):
        place = chance.choice([0, len(content), *(match.end() for match in re.finditer(rb"[\n\">]", content))])
        content = content[:place] + chance.choice(TOKENS) + content[place:]
    return content


def respell(content, chance):
    """The bytes with a dangerous spelling in place of a word."""
    words = list(re.finditer(rb"[\w.]+", content))
    if not words:
        return bend(content, chance)
    word = chance.choice(words)
    return content[: word.start()] + chance.choice(SPELLINGS).encode("utf-8") + content[word.end() :]


def transcode(content, chance):
    return content.decode("utf-8", "replace").encode(chance.choice(("utf-16", "utf-32-le", "gb18030", "utf-16-be")))


def test_configs(attempt, seeds, tiny_tree, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").touch()
    tree = complete(tiny_tree)
    text = yaml.safe_dump(tree).encode("utf-8")
    for seed in seeds(800):
        chance = random.Random(seed)
        bad = bend(text, chance) if seed % 4 == 0 else yaml.safe_dump(mutate(tree, chance), allow_unicode=True).encode()
        (tmp_path / "c.yaml").write_bytes(bad)
        attempt(f"config {seed}", "data", "check", "--config", "c.yaml")


def limits_of(section):
    """The limits of all numbers of a section of the config."""
    for field in section.model_fields.values():
        for kind in {field.annotation, *get_args(field.annotation)}:
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from limits_of(kind)
        yield from (getattr(item, mark) for item in field.metadata for mark in LIMITS if hasattr(item, mark))


LIMITS = ("ge", "gt", "le", "lt")
NUMBERS = [limit for limit in set(limits_of(Config)) if not 20 < limit < 10_000]  # So many layers take minutes.
NUMBERS += [math.nextafter(limit, side) for limit in NUMBERS for side in (0, math.inf)] + [1e-30, 2**31 - 1]
NEEDED = (
    *("", "tokenizer.algorithm=bpe tokenizer.vocab_size=300", "tokenizer.algorithm=unigram tokenizer.vocab_size=300"),
    *("training.optimizer=muon training.learning_rate=1e30", "training.weight_decay=1e6", "decoding.sample=true"),
    *("init.run=RUN init.adapter_rank=2", "model.positions=learned"),
)
"""What makes some options count."""


def test_configs_that_train(attempt, seeds, trained, tiny_tree, tmp_path):
    tree = complete(tiny_tree)
    for seed in seeds(1500):
        chance = random.Random(seed)
        section = chance.choice(("model", "training", "decoding", "tokenizer", "init"))
        values = chance.choice((ODD_VALUES, NUMBERS))
        bad = tree | {section: mutate({section: tree[section]}, chance, values).get(section)}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(bad), encoding="utf-8")
        changes = [
            "training.max_steps=2",
            f"name=run{seed}",
            *chance.choice(NEEDED).replace("RUN", str(trained)).split(),
        ]
        settings = [part for change in changes for part in ("--set", change)]
        attempt(f"training {seed}", "train", "--config", "c.yaml", *settings)


def corpus_files(folder):
    """A small file of every format, and the source in a config that reads it."""
    pairs = [(f"one {number} twò.", f"ONE {number} TWÒ.") for number in range(20)]
    sides = dict(zip(("en", "xx"), zip(*pairs, strict=True), strict=True))
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{a}</seg></tuv><tuv xml:lang="xx"><seg>{b}</seg></tuv></tu>\n'
        for a, b in pairs
    )
    po = "\n".join(f'msgctxt "{n}"\nmsgid "{a}"\nmsgstr "{b}"\n' for n, (a, b) in enumerate(pairs))
    texts = {
        "a.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs),
        "a.csv": "en,xx\r\n" + "".join(f'"{a}",{b}\r\n' for a, b in pairs),
        "a.jsonl": "".join(json.dumps({"en": a, "n": [1], "xx": b}) + "\n" for a, b in pairs),
        "b.jsonl": "".join(json.dumps({"translation": {"en": a, "xx": b}}) + "\n" for a, b in pairs),
        "a.tmx": f'<?xml version="1.0" encoding="utf-8"?><tmx>{units}</tmx>',
        "a.po": f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n{po}',
        **{f"a.{side}": "".join(f"{line}\n" for line in lines) for side, lines in sides.items()},
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "b.tsv.gz").write_bytes(gzip.compress(texts["a.tsv"].encode("utf-8")))
    (folder / "b.po.zst").write_bytes(pyarrow.compress(texts["a.po"].encode("utf-8"), "zstd", asbytes=True))
    (folder / "hub").mkdir()
    for name in ("a.parquet", "hub/train.parquet"):
        parquet.write_table(pyarrow.table({side: list(lines) for side, lines in sides.items()}), folder / name)
    names = [path.name for path in sorted(folder.iterdir()) if path.suffix not in (".en", ".xx", "")]
    hub = {"dataset": "hub", "split": "train", "columns": ["en", "xx"]}
    return [
        *(({"file": name}, name) for name in names),
        ({"files": ["a.en", "a.xx"]}, "a.en"),
        (hub, "hub/train.parquet"),
    ]


def test_corpora(attempt, seeds, tiny_tree, tmp_path):
    kinds = corpus_files(tmp_path)
    for source, _ in kinds:
        tiny_tree["corpus"]["train"] = source
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
        assert attempt(str(source), "data", "check", "--config", "c.yaml")[0] in (0, 2)
    for seed in seeds(600):
        chance = random.Random(seed)
        source, name = chance.choice(kinds)
        content = (tmp_path / name).read_bytes()
        tiny_tree["corpus"]["train"] = source | ({"streaming": True} if seed % 5 == 0 else {})
        tiny_tree["corpus"]["valid"] = {"files": ["a.en", "a.xx"]}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
        (tmp_path / name).write_bytes(chance.choice((bend, bend, sprinkle, sprinkle, transcode))(content, chance))
        options = ("--set", "training.validate_every_steps=5")
        attempt(f"corpus {seed} {name}", "data", "check", "--config", "c.yaml", *options)
        (tmp_path / name).write_bytes(content)


USUAL = {
    "train": "--config tiny.yaml --set training.max_steps=1",
    "init": "--files text.en text.xx",
    "translate": "one. --run run",
    "score": "one. ONE. --run run",
    "evaluate": "--run run --source text.en --reference text.xx",
    "tune-decoding": "--run run --beam-sizes 1 --dry-run",
    "inspect": "--run run",
    "report": "--run run",
    "import": "run --output runs/new",
    "tokenize": "one. --run run",
    "export": "--run run --format bundle --output new",
    "average": "--run run",
    "data check": "--config tiny.yaml",
    "data show": "--config tiny.yaml",
}
"""A command line of each command that takes text. An option that is given again replaces the one here."""


def test_command_lines(attempt, seeds, trained, tiny_config, tmp_path):
    values = ["run", "tiny.yaml", "text.en", "out.txt", "none", ".", "", "~", "-1", "0", "1", "2", "9" * 14, "1e400"]
    values += ["nan", "cpu", "cuda:7", "a.png", "a.xyz", "training.max_steps=1", "=", "a=b=c", "x.y.z=[", "x" * 300]
    values += ["loop", "loop/below", "text.en/below", "none/below", "dangling"]
    for link, target in {"loop": "loop", "dangling": "nothing"}.items():
        (tmp_path / link).symlink_to(target)
    for name, text in {"text.en": "one.\n", "text.xx": "ONE.\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shutil.copytree(trained, tmp_path / "run")
    for seed in seeds(1500):
        chance = random.Random(seed)
        words = chance.choice([*COMMANDS, ("data",), ("dance",)])
        arguments = [*words, *(USUAL.get(" ".join(words), "").split() if seed % 4 else ())]
        options = [parameter for parameter in COMMANDS[words].params if parameter.opts] if words in COMMANDS else []
        for parameter in chance.choices(options, k=chance.randrange(3)) if options else ():
            number = max(0 if getattr(parameter, "is_flag", False) else 1, parameter.nargs * (parameter.nargs > 1))
            name = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
            arguments += [*name, *chance.choices((*values, *TEXTS), k=number)]
        arguments += chance.choices((*values, *TEXTS), k=chance.randrange(2))
        attempt(f"command line {seed}", *arguments)


def test_text_to_translate(attempt, seeds, trained, tmp_path):
    for seed in seeds(300):
        chance = random.Random(seed)
        lines = "\n".join(chance.choice(TEXTS) for _ in range(chance.randrange(6))).encode("utf-8")
        text = bytes(chance.randrange(256) for _ in range(200)) if seed % 10 == 0 else bend(lines, chance)
        (tmp_path / "in").write_bytes(text)
        options = chance.choice(((), ("--json",), ("--beam-size", "3", "--n-best", "2"), ("--length-penalty", "0")))
        attempt(f"text {seed}", "translate", "--run", trained, "--input", "in", *options)


def rewrite(path, chance):
    """Write a checkpoint again with another state, tensor or entry of its metadata, and the right checksum."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    name = chance.choice(sorted(tensors))
    match chance.randrange(5):
        case 0:
            del tensors[name]
        case 1:
            tensors[name] = torch.full((chance.choice((0, 1, 7)),), chance.choice((0.0, float("nan"), 1e30)))
        case 2:
            tensors[chance.choice(("model.x", "optimizer.0", "optimizer.999.exp_avg"))] = tensors[name].clone()
        case 3:
            key = chance.choice(sorted(set(metadata) - {"sha256"}))
            metadata[key] = chance.choice(("", "{}", "[]", "null", "3", "[" * 3000, '{"python": 1}'))
        case _:
            metadata["state"] = json.dumps(mutate({"": json.loads(metadata["state"])}, chance).get(""), skipkeys=True)
    files.save_file(tensors, path, metadata | {"sha256": "0" * 64})
    files._write_checksum(str(path))


def plant(path, outside, chance):
    """Put a link, a pipe, a folder or random bytes in the place of a file."""
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
            path.write_bytes(chance.randbytes(99))
        case _:
            targets = (outside / "file", outside, outside / "none", "/dev/zero", "/dev/full", ".", path.name)
            path.symlink_to(chance.choice(targets))


def attack(path, outside, chance):
    """Change a file of a run directory in a way that fits its format, or replace it."""
    if not path.is_file() or chance.randrange(3) == 0:
        plant(path, outside, chance)
    elif path.suffix == ".safetensors" and chance.randrange(3):
        rewrite(path, chance)
    elif path.suffix in (".json", ".yaml") and chance.randrange(3):
        tree = mutate(yaml.safe_load(path.read_bytes()), chance, ODD_VALUES if chance.randrange(2) else LARGE_VALUES)
        path.write_text(json.dumps(tree, skipkeys=True), encoding="utf-8")
    else:
        path.write_bytes(chance.choice((bend, respell))(path.read_bytes(), chance))


COMMANDS_ON_A_RUN = (
    "translate one. --run runs/tiny",
    "translate one. --run runs/tiny --attention a.png",
    "tokenize one. --run runs/tiny",
    "tokenize ONE.🙂ä --side target --run runs/tiny",
    "score one. ONE. --run runs/tiny --json",
    "evaluate --run runs/tiny --source outside/file --reference outside/test.txt --against kept",
    "inspect --run runs/tiny",
    "report --run runs/tiny --compare kept",
    "average --run runs/tiny --last 2",
    "average --run runs/tiny --run kept --output new",
    "tune-decoding --run runs/tiny --beam-sizes 1 --max-sentences 3",
    "train --config tiny.yaml --set training.max_steps=9",
    "train --config tiny.yaml --set training.max_steps=1 --set name=new --set init.run=RUNs/tiny",
    "report --run kept --compare runs/tiny",
)


def content_of(folder):
    """The files of a folder with their contents and times."""
    return {
        str(path.relative_to(folder)): path.is_dir() or (path.lstat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
    }


def test_untrusted_run_directories(attempt, seeds, tiny_tree, tmp_path):
    """No content of a run directory makes a command change files outside it, and an export replaces nothing."""
    outside, run = tmp_path / "outside", tmp_path / "runs" / "tiny"
    outside.mkdir()
    for name in ("file", "test.txt"):
        (outside / name).write_text("one two.\n" * 2, encoding="utf-8")
    tiny_tree["training"] |= {"validate_every_steps": 4, "keep_validated": 2, "max_epochs": None, "max_steps": 8}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    algorithms = ("word_level", "bpe", "unigram", "char")
    for algorithm in algorithms:
        options = {"tokenizer.algorithm": algorithm} | ({"tokenizer.vocab_size": 300} if algorithm[0] in "bu" else {})
        settings = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
        assert attempt("whole run", "train", "--config", "tiny.yaml", "--fresh", *settings)[0] == 0
        shutil.copytree(run, algorithm)
    shutil.copytree("word_level", "kept")
    before = content_of(outside)
    names = [str(path.relative_to("kept")) for path in Path("kept").rglob("*")]
    names += ["report.html", "pictures", "pictures/positions.png", "hypotheses/files.txt", ".lock", "bad_batch.jsonl"]
    names += [f"{name}.tmp" for name in names if "." in name] + ["checkpoints/step-3.safetensors", "x", "a/b"]
    names += ["tokenizer.source.json", "tokenizer.target.json"] * 9
    for seed in seeds(500):
        chance, case = random.Random(seed), f"run {seed}"
        for folder in ("runs/tiny", "runs/new", "new", "a"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(chance.choice(algorithms), run)
        for name in chance.choices(names, k=chance.choice((1, 1, 2, 3))):
            if (run / name).parent.is_dir() or not os.path.lexists((run / name).parent):
                attack(run / name, outside, chance)
        for command in chance.sample(COMMANDS_ON_A_RUN, 3):
            attempt(case, *command.split())
        output = Path(chance.choice(("new", "a/b", "outside", "outside/file/x", "runs/tiny/x", "kept", "x" * 256)))
        existed = os.path.lexists(output)
        status, _ = attempt(case, "export", "--run", run, "--output", output, "--format", "bundle")
        assert status or (not existed and (output / "model.json").is_file()), case
        assert not [*tmp_path.glob("*.unfinished-*")] and content_of(outside) == before, case


def test_standard_streams(attempt, seeds, trained, tiny_config, tmp_path):
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
    words = ["one.", "text.txt", "caf\udce9", "caf\udcc3\udca9", "perché", "\x1b[31m", "\x9b2J", "\r", ".", "日本"]
    for seed in seeds(400):
        chance = random.Random(seed)
        arguments = chance.choice(commands).replace("X", chance.choice(words)).split()
        streams = tuple(chance.choice(("there", "there", "full", "left")) for _ in range(3))
        encoding = chance.choice(("utf-8", "ascii", "cp1252", "utf-16"))
        attempt(f"streams {seed}", *arguments, streams=streams, encoding=encoding)


def change_model(path, chance):
    """Change a file of a published model: its values if it has text, its description or its bytes otherwise."""
    content = path.read_bytes()
    if path.suffix == ".json" and chance.randrange(4):
        tree = mutate(json.loads(content), chance, LARGE_VALUES if chance.randrange(3) == 0 else ODD_VALUES)
        path.write_text(json.dumps(tree, skipkeys=True), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_bytes(chance.choice((bend, respell))(content, chance))
    elif path.suffix == ".safetensors" and chance.randrange(2):
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.dumps(mutate(json.loads(content[8:end]), chance), skipkeys=True).encode("utf-8")
        path.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])
    elif path.suffix == ".bin" and chance.randrange(2):
        tensors = dict(torch.load(path, weights_only=True))
        name = chance.choice(sorted(tensors))
        odd = [3, [tensors[name]], tensors[name].half(), tensors[name] * float("nan")]
        odd += [torch.zeros(1).expand(10**5, 10**5), torch.empty((99_999,) * 3, device="meta")]
        tensors[chance.choice((name, name, 3, "x"))] = chance.choice(odd)
        torch.save(tensors, path, _use_new_zipfile_serialization=chance.randrange(3) > 0)
    else:
        place = chance.choice((0, max(0, len(content) - 6000)))  # Headers are at the beginning or the end.
        path.write_bytes(content[:place] + bend(content[place : place + 6000], chance) + content[place + 6000 :])


CHANGED = (".json", ".spm", ".safetensors", ".bin")
PUBLISHED = ("safetensors", "pickle", "two", "bundle")


@pytest.fixture(scope="module")
def published(trained, tmp_path_factory):
    """Folders of models that `mt import` reads, by their kinds."""
    marian_files = pytest.importorskip("marian_files")
    folder = tmp_path_factory.mktemp("published")
    made = {name: folder / f"{name}-en-de" for name in PUBLISHED}
    for name in ("safetensors", "two"):
        made[name].mkdir()
    original, _ = marian_files.write_marian(made["safetensors"], tags=(">>deu<<",))
    marian_files.write_two_vocabularies(made["two"])
    shutil.copytree(made["safetensors"], made["pickle"])
    (made["pickle"] / "model.safetensors").unlink()
    torch.save(original.state_dict(), made["pickle"] / "pytorch_model.bin")
    export_bundle(TrainedRun.load(trained), made["bundle"])
    return made


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_models(attempt, seeds, published, tmp_path, family):
    """An import makes a run that translates, or it leaves nothing."""
    for seed in seeds(50):
        chance = random.Random(seed)
        shutil.rmtree(tmp_path / "model-en-de", ignore_errors=True)
        shutil.copytree(published[family], tmp_path / "model-en-de")
        paths = sorted(path for path in (tmp_path / "model-en-de").iterdir() if path.suffix in CHANGED)
        for path in {chance.choice(paths) for _ in range(chance.choice((1, 1, 1, 2)))}:
            change_model(path, chance)
        case = f"{family} {seed}"
        status, _ = attempt(case, "import", "model-en-de", "--output", "runs/x", "--allow-pickle", is_strict=True)
        assert status == 0 or not (tmp_path / "runs").exists(), case
        if status == 0:
            attempt(case, "translate", "--run", "runs/x", *SHORT_TEXTS, is_strict=True)
            shutil.rmtree(tmp_path / "runs")
