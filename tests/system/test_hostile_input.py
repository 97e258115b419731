"""A fuzzer: `mt` ends cleanly for any config, corpus, text, run directory, published model and command line.

It ends with exit status 0, 1 or 2 and one message, without a traceback, and changes no file outside; limits on its
memory and time end it otherwise. Every case is made from a seed. A failure names it: `corpus 17` is repeated by

    pytest -m slow tests/system/test_hostile_input.py -k corpus --fuzz-seed 17 --fuzz-cases 1

`--fuzz-minutes 30` runs every family for half an hour, with seeds from `--fuzz-seed` on.
"""

import copy
import gzip
import itertools
import json
import random
import re
import shutil
import time

import pytest
import yaml
from command_lines import COMMANDS
from hostile_files import KINDS, content_of, make_outside, plant, rewrite_checkpoint

pytestmark = [pytest.mark.slow(minutes=5), pytest.mark.filterwarnings("ignore")]

VALUES = [
    *(None, True, 0, -1, 1, 3, 7, 2**24, 2**31 - 1, 2**63, -(2**70), 10**400, 0.5, 1e-320, 1e308, float("nan")),
    *("", " ", "\0", "no", "auto", "../x", "/", "x" * 5000, "x" * 10**6, "▁" * 600, "\ud7ff", "½", "1e3", "~", "[EOS]"),
    *("loop", "loop/below", "c.yaml/below", [], [[]], [None], [1, 2], ["a", "b"], [0] * 99_999, {}, {"": None}, {1: 2}),
    *({"file": ".."}, {"files": ["/dev/null", "loop"]}, {"dataset": "."}, {"fraction": 2}, {"files": 3}, ">>a<<"),
]
TEXTS = ["", "one two.", "\t", "a\tb", '"', "ä", "日本語", "\u2028", "🙂" * 9, "x" * 3000, "a " * 300, "\x1b[31m"]
SPELLINGS = [  # Text that is dangerous in YAML and JSON.
    *('"\\UFFFFFFFF"', "!!timestamp abc", "!!int ''", "!!binary x", ".inf", "1:1" + ":1" * 999, "[" * 3000),
    *("{a: " * 3000, "9" * 5000, "&a [*a]", "<<: {a: 1}", "!!python/name:os.system", "? [a]", "- " * 2000),
]
TOKENS = [  # Pieces of formats in the wrong place.
    *("<tu>", "</seg>", "&#0;", "<![CDATA[", "<!--", "%x;", '<!DOCTYPE tmx [<!ENTITY a "b">]>', "{", "]", "NaN", "\\"),
    *('"', '""', ",", "\t", ";", "\r", "\n", "sep=;\n", "\ufeff", "\0", "\\ud800", "#, fuzzy\n", 'msgid ""\n', "#~ "),
]


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


@pytest.fixture
def attempt(fork_server):
    """Runs a command in a folder, which may fail with a message; returns the exit status."""
    problems = []

    def run(case, folder, arguments, **options):
        limits, environment = (60, 4 * 2**30), {"HF_HUB_OFFLINE": "1"}
        fork_server.start(folder, arguments, limits=limits, environment=environment, **options)
        [status] = fork_server.wait()
        err = (folder / "stream.2").read_bytes().decode("utf-8")
        is_silent = not status or arguments[0] == "doctor" or options.get("streams", ["there"])[-1] != "there"
        steers = any(not character.isprintable() and character != "\n" for character in err)
        is_clean = "Traceback" not in err and "Exception ignored" not in err and not steers
        if status not in (0, 1, 2) or not is_clean or not (is_silent or "mt: " in err):
            problems.append(f"{case}: {arguments[:6]}: status {status}: {err[-1500:]!r}")
        return status

    yield run
    assert not problems, "\n".join(problems)


def paths_in(tree, path=()):
    """The path of every value in a tree."""
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from paths_in(child, (*path, key))


def mutate(tree, chance):
    """A copy of a tree with a few values replaced, removed or added."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not (paths := list(paths_in(tree))):
            break
        *path, last = chance.choice(paths)
        parent = tree
        for key in path:
            parent = parent[key]
        value = copy.deepcopy(chance.choice(VALUES))
        match chance.randrange(4):
            case 0 if isinstance(parent, dict):
                del parent[last]
            case 1 if isinstance(parent, dict):
                parent[chance.choice(("", "d_modle", "training", 3, "x" * 200, "weight", "tag"))] = value
            case _:
                parent[last] = value
    return tree


def bend(content, chance):
    """The bytes with a few of them changed, removed or added."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        place = chance.randrange(len(content) + 1)
        head, tail = content[:place], content[place:]
        word = re.search(rb"[\w.]+", tail[:200])
        match chance.randrange(6):
            case 0:
                content = head
            case 1:
                content = head + chance.randbytes(chance.randrange(1, 9)) + tail[chance.randrange(99) :]
            case 2:
                content = head + chance.choice((*TEXTS, *TOKENS)).encode("utf-8") + tail
            case 3 if word:
                content = head + tail[: word.start()] + chance.choice(SPELLINGS).encode("utf-8") + tail[word.end() :]
            case 4 if len(content) < 10_000:
                content = content.decode("utf-8", "replace").encode(chance.choice(("utf-16", "gb18030", "utf-32-le")))
            case _:
                content = head + bytes(byte ^ 1 << chance.randrange(8) for byte in tail[:1]) + tail[1:]
    return content


def change_checkpoint(tensors, metadata, chance):
    """Change the state, a tensor or a value of the metadata."""
    name, key = chance.choice(sorted(tensors)), chance.choice(sorted({*metadata} - {"sha256"}))
    match chance.randrange(4):
        case 0:
            tensors[name] = tensors.pop(name).flatten()[: chance.randrange(9)] * chance.choice((1, float("nan"), 1e30))
        case 1:
            metadata[key] = chance.choice(("", "{}", "[]", "null", "3", "[" * 3000, '{"python": 1}'))
        case _:
            metadata["state"] = json.dumps(mutate(json.loads(metadata["state"]), chance), skipkeys=True)


def damage(path, chance):
    """Change a file in a way that fits its format, or its bytes."""
    data, fits = path.read_bytes(), chance.randrange(3) > 0
    if fits and path.suffix in (".json", ".yaml"):
        tree = mutate(yaml.safe_load(data) if path.suffix == ".yaml" else json.loads(data), chance)
        path.write_text(json.dumps(tree, skipkeys=True), encoding="utf-8")
    elif fits and path.parent.name == "checkpoints":
        rewrite_checkpoint(path, lambda tensors, metadata: change_checkpoint(tensors, metadata, chance))
    elif fits and path.suffix == ".safetensors":
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(mutate(json.loads(data[8:end]), chance), skipkeys=True).encode("utf-8")
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])
    else:
        place = chance.choice((0, max(0, len(data) - 6000)))  # Headers are at the beginning or the end.
        path.write_bytes(data[:place] + bend(data[place : place + 6000], chance) + data[place + 6000 :])


def write_corpus(folder):
    """Write a small file of every format; return the sources of a config that reads them."""
    import pyarrow
    from pyarrow import parquet

    pairs = [(f"one {number} twò.", f"ONE {number} TWÒ.") for number in range(20)]
    units = ((f'<tuv xml:lang="en"><seg>{a}</seg></tuv>', f'<tuv xml:lang="xx"><seg>{b}</seg></tuv>') for a, b in pairs)
    texts = {
        "a.tsv": "".join(f"{a}\t{b}\n" for a, b in pairs),
        "a.csv": "en,xx\r\n" + "".join(f'"{a}",{b}\r\n' for a, b in pairs),
        "a.jsonl": "".join(json.dumps({"en": a, "n": [1], "xx": b}) + "\n" for a, b in pairs),
        "a.tmx": "<tmx>" + "".join(f"<tu>{a}{b}</tu>\n" for a, b in units) + "</tmx>",
        "a.po": "\n".join(f'msgctxt "{n}"\nmsgid "{a}"\nmsgstr "{b}"\n' for n, (a, b) in enumerate(pairs)),
        "a.en": "".join(f"{a}\n" for a, _ in pairs),
        "a.xx": "".join(f"{b}\n" for _, b in pairs),
    }
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "b.tsv.gz").write_bytes(gzip.compress(texts["a.tsv"].encode("utf-8")))
    table = pyarrow.table({"en": [a for a, _ in pairs], "xx": [b for _, b in pairs]})
    parquet.write_table(table, folder / "a.parquet")
    names = sorted(path.name for path in folder.iterdir() if path.suffix not in (".en", ".xx"))
    return [*({"file": f"corpus/{name}"} for name in names), {"files": ["corpus/a.en", "corpus/a.xx"]}]


ON_A_RUN = (
    *("tokenize one. --run runs/tiny", "score one. ONE. --run runs/tiny --json", "inspect --run runs/tiny"),
    *("report --run runs/tiny --against kept", "report --run kept --against runs/tiny", "doctor"),
    "evaluate --run runs/tiny --source outside/file --reference outside/file --against kept",
    *("average --run runs/tiny --run kept --output new", "export --run runs/tiny --output new --format bundle"),
    "tune-decoding --run runs/tiny --beam-sizes 1 --max-sentences 3",
    "train --config runs/tiny/config.yaml --set training.max_steps=999",
    "train --config c.yaml --set training.max_steps=1 --set name=new --set init.run=runs/tiny",
)
NLLB = "--languages eng_Latn,ayr_Latn"
FAMILIES = {  # The usual number of cases, the files that are damaged, and the commands; of many, three are tried.
    "config": (500, "c.yaml", ("data check --config c.yaml", "train --config c.yaml --set training.max_steps=2")),
    "corpus": (500, "corpus/*", ("data check --config c.yaml",)),
    "text": (200, "in", ("translate --run kept --input in", "translate --run kept --input in --json --n-best 2")),
    "words": (300, "runs/tiny/**/*", ("translate one. --run runs/tiny", *ON_A_RUN)),
    "subwords": (300, "runs/tiny/**/*", ("translate one. --run runs/tiny", *ON_A_RUN)),
    "marian": (60, "model-en-de/*", ("import model-en-de --output x", "translate one. ä --run x")),
    "bundle": (60, "model-en-de/*", ("import model-en-de --output x", "translate one. ä --run x")),
    "nllb": (60, "model-en-de/*", (f"import model-en-de --output x {NLLB}", "translate one. ä --run x")),
}


@pytest.fixture
def good(trained, tiny_tree, request):
    """A function that writes the files of a family."""
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.config.loading import parse_config
    from mt_cli.exchange.bundle import export_bundle

    def write(family, folder):
        (make_outside(folder / "outside") / "file").write_text("one two.\n" * 2)
        (folder / "in").write_text("\n".join(TEXTS), encoding="utf-8")
        (folder / "loop").symlink_to("loop")
        shutil.copytree(trained, folder / "kept")
        if family in ("words", "subwords"):
            run = trained if family == "words" else request.getfixturevalue("trained_subwords")
            shutil.copytree(run, folder / "runs" / "tiny")
        if family == "corpus":
            tiny_tree["corpus"]["train"] = write_corpus(folder / "corpus")
        (folder / "c.yaml").write_text(parse_config(tiny_tree, "test").to_yaml(), encoding="utf-8")
        if family == "bundle":
            export_bundle(TrainedRun.load(trained), folder / "model-en-de")
        elif family in ("marian", "nllb"):
            from m2m100_files import write_nllb  # They wait for `transformers`.
            from marian_files import write_marian

            (folder / "model-en-de").mkdir()
            (write_nllb if family == "nllb" else write_marian)(folder / "model-en-de")

    return write


@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_files_end_a_command_cleanly(attempt, seeds, good, tmp_path, family):
    number, pattern, commands = FAMILIES[family]
    good(family, tmp_path / "good")
    is_run, is_model = pattern.startswith("runs"), pattern.startswith("model")
    for seed in seeds(number):
        chance, folder, case = random.Random(seed), tmp_path / "case", f"{family} {seed}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "good", folder, symlinks=True)
        before = content_of(folder / "outside")
        paths = sorted(path for path in folder.glob(pattern) if path.is_file())
        for path in chance.sample(paths, min(len(paths), chance.choice((1, 1, 2)))):
            if is_run and chance.randrange(3) == 0:
                path = chance.choice((path, path.with_name(f"{path.name}.tmp"), folder / "runs/tiny/report.html"))
                plant(path, chance.choice(KINDS), folder / "outside")
            elif path.is_file() and not path.is_symlink():
                damage(path, chance)
        for command in chance.sample(commands, 3) if is_run else commands:
            status = attempt(case, folder, command.split())
            if status and is_model:
                assert command.startswith("translate") or not (folder / "x").exists(), case
                break
        assert content_of(folder / "outside") == before and not (folder / "was_run").exists(), case
        assert not [*folder.glob("*.unfinished-*")], case


def test_any_command_line_ends_cleanly(attempt, seeds, good, tmp_path):
    """Any options and values, with standard streams that are full or have no reader."""
    good("words", tmp_path)
    values = ["kept", "c.yaml", "in", "none", ".", "~", "-1", "0", "1", "9" * 14, "1e400", "nan", "cpu", "cuda:7"]
    values += ["a.png", "a.xyz", "training.max_steps=1", "=", "x.y.z=[", "x" * 300, "loop", "in/below", "caf\udce9"]
    usual = {("train",): "--config c.yaml --set training.max_steps=1", ("data", "check"): "--config c.yaml"}
    for seed in seeds(1000):
        chance = random.Random(seed)
        words = chance.choice([*COMMANDS, ("dance",)])
        arguments = [*words, *usual.get(words, chance.choice(("--run kept", "one. --run kept", ""))).split()]
        options = [parameter for parameter in COMMANDS[words].params if parameter.opts] if words in COMMANDS else []
        for parameter in chance.sample(options, min(len(options), chance.randrange(3))):
            name = [parameter.opts[0]] if parameter.opts[0].startswith("-") else []
            arguments += [*name, *([] if getattr(parameter, "is_flag", False) else [chance.choice(values + TEXTS)])]
        arguments += chance.choices((*values, *TEXTS), k=chance.randrange(2))
        streams = [chance.choice(("there", "there", "full", "left")) for _ in range(3)]
        attempt(f"command line {seed}", tmp_path, arguments, streams=streams)
