"""Parallel text of any size: numbered captions if they are next to the project, otherwise the practice corpus."""

from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

CAPTIONS = Path(__file__).parents[3] / "shared" / "data" / "multi30k"


def caption_files(name: str) -> dict[str, list[str]]:
    """The captions `name`, English and German, as a corpus source."""
    return {"files": [str(CAPTIONS / f"{name}.{side}") for side in ("en", "de")]}


def some_pairs() -> list[tuple[str, str]]:
    """29,000 captions in English and German, or 48,000 sentences in English and Italian."""
    if not CAPTIONS.is_dir():
        from mt_cli.config.sources import BuiltinSource
        from mt_cli.corpus.reading import read_pairs

        return read_pairs([BuiltinSource(builtin="phrasebook-en-it", split="train")], ("en", "it"), "corpus")
    sides = ((CAPTIONS / f"train.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "de"))
    return list(zip(*sides, strict=True))


def numbered_pairs(number: int) -> Iterator[tuple[str, str]]:
    """`number` pairs, each with a number of eight digits at its end, so that no two are equal."""
    pairs = some_pairs()
    endless = (pair for _ in count() for pair in pairs)
    for index, (source, target) in enumerate(islice(endless, number)):
        yield f"{source} {index:08}", f"{target} {index:08}"


def write_validation_files(folder: Path) -> tuple[Path, Path]:
    """Write two files with a few pairs that are not among the numbered ones."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "valid.source", folder / "valid.target"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]} valid\n" for pair in some_pairs()[:200]), encoding="utf-8")
    return paths


def write_files(folder: Path, number: int) -> tuple[Path, Path]:
    """Write two line-aligned files with `number` pairs, unless they exist."""
    paths = folder / f"{number}.source", folder / f"{number}.target"
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        with open(paths[0], "w", encoding="utf-8") as source, open(paths[1], "w", encoding="utf-8") as target:
            for pair in numbered_pairs(number):
                source.write(pair[0] + "\n")
                target.write(pair[1] + "\n")
    return paths
