"""Translation of many lines: in blocks, in order, by one or several processes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mt_cli.machine.group import Group
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.translator import Translator

_FIRST_BLOCK, _LARGEST_BLOCK = 32, 2048


def blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group lines into blocks that are translated together; the first blocks are small, so that results appear soon."""
    iterator, size = iter(lines), _FIRST_BLOCK
    while block := list(islice(iterator, size)):
        yield block
        size = min(2 * size, _LARGEST_BLOCK)


def translated(translator: Translator, lines: list[str], search: dict[str, Any], group: Group) -> list[Translation]:
    """Translate lines, shared among the processes of a group; only the main process gets the translations."""
    translations = group.map_shares(lambda share: translator.translate_fully(share, **search), lines)
    return group.on_main(lambda: translations) or []


def format_json(item: Translation) -> str:
    """One line of JSON with a translation and its details."""
    assert item.details is not None
    row = {
        "source": item.source,
        "translation": item.text,
        "score": round(item.score, 4),
        "hypotheses": [{"text": text, "score": round(score, 4)} for text, score in item.hypotheses],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": [round(score, 4) for score in item.details.token_scores],
        "alignment": item.details.alignment,
        "word_alignment": item.details.word_alignment,
    }
    return json.dumps(row, ensure_ascii=False)


def format_texts(num_best: int, item: Translation) -> str:
    """One line per hypothesis; missing hypotheses are empty lines, so that output lines match input lines."""
    texts = [text for text, _ in item.hypotheses[:num_best]]
    return "\n".join(texts + [""] * (num_best - len(texts)))


def format_alignment(item: Translation) -> str:
    """Word alignment of a translation as one line, such as `0-0 1-2`."""
    assert item.details is not None
    return " ".join(f"{source}-{target}" for source, target in item.details.word_alignment)
