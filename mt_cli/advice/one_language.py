"""Text of one language for `mt init`: the side of each file, and what training does with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mt_cli.corpus.languages import language_in, primary
from mt_cli.corpus.lines import suffix_inside
from mt_cli.corpus.rows import Languages
from mt_cli.data.encode import SIDES
from mt_cli.errors import InputError
from mt_cli.training.plan import FIRST_ROUND, SHARE_OF_ROUNDS


def texts_by_side(files: Sequence[str], languages: Languages) -> dict[str, Any]:
    """Value of `corpus.monolingual` for files whose suffixes are languages; raises InputError for another suffix."""
    by_side: dict[str, list[str]] = {}
    for file in files:
        by_side.setdefault(_side_of(file, languages), []).append(file)
    return {side: {"file": paths[0] if len(paths) == 1 else paths} for side, paths in sorted(by_side.items())[::-1]}


def _side_of(file: str, languages: Languages) -> str:
    path = Path(file)
    suffix = suffix_inside(path)[1:]
    code = language_in(suffix) if suffix else None
    for side, language in zip(SIDES, languages, strict=True):
        if suffix == language or (code and primary(code) == primary(language)):
            return side
    first, second = languages
    raise InputError(f"--mono {file}: is it {first} or {second}? End its name in .{first} or .{second}")


def describe_texts(texts: Mapping[str, Any], languages: Languages) -> Iterator[str]:
    """Lines for people about the use of texts in training."""
    by_side = dict(zip(SIDES, languages, strict=True))
    for side, text in texts.items():
        paths = text["file"] if isinstance(text["file"], list) else [text["file"]]
        yield f"monolingual: {', '.join(paths)} in {by_side[side]}"
    yield (
        f"  the model also learns {languages[1]} to {languages[0]}; after {FIRST_ROUND:.0%} of the updates, when it "
        f"can, it translates lines and learns from the pairs, too, which takes up to {SHARE_OF_ROUNDS:.0%} more time"
    )
    yield (
        "note: this makes a short run worse, because fewer updates are left for each direction; use it where all "
        "updates can be made, and compare (docs/few_pairs.md, step 5)"
    )
