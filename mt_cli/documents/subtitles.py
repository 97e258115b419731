r"""Subtitles (`.srt`, `.vtt`): each cue is a unit, with a text for each speaker where lines begin with dashes.

A sentence that goes on in the next cues is one text, whose translation is divided between them. Numbers, times,
settings, notes and styles stay as they are. Tags such as `<i>` and `{\an8}` are part of the text. A
cue gets at most as many lines as it had. See the W3C recommendation "WebVTT", section 4. SubRip has no specification:
blank lines inside cues and missing ones between cues are read, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.document import (
    Document,
    DocumentError,
    Options,
    Unit,
    any_lines_with_places,
    error_at,
    read_content,
)
from mt_cli.documents.texts import SUBTITLE_TAG, balanced, joined
from mt_cli.runtime.console import display_width

_END = re.compile(r"\r\n|\n|\r")
_NUMBER = re.compile(r"\s*\d+\s*")
_CLOCK = r"-?\d{1,9}(?::\d{1,2}){1,3}(?:[.,]\d{1,9})?"
_TIMES = re.compile(rf"\s*{_CLOCK}\s*-->\s*{_CLOCK}(?:\s.*)?")
_NEARLY_TIMES = re.compile(r"\s*(?:\d[\d:.,; ]*-+>|\d\d:\d\d:)")
_DASH = re.compile(r"[-–—][ \t]+")
_TIGHT_DASH = re.compile(r"[-–](?![-–])")
_SPEECH_END = re.compile(r"[.!?…。！？؟♪:]['\"”’»)\]]*(?:</?[a-z]+>)*\Z")
_OPENING = re.compile(r"\s*(<(i|b|u|v|font)\b[^<>]*>)\s*")
_THUMBNAIL = re.compile(r"\S+#xywh=\S+")
"""Metadata of a video player: a part of a picture."""
_ESCAPED_AMPERSAND = re.compile(r"&amp;(?!#?\w+;)")
_BARE_AMPERSAND = re.compile(r"&(?!#?\w+;)")
_MOST_CUES = 4
"""Most cues whose text is one sentence; captions that a program wrote have no ends of sentences."""

_Speech = tuple[str, list[str]]
"""Dash and lines of a cue that one person speaks."""
_Line = tuple[int, str]
"""Start of a line, and its text without its end."""


def read_srt(path: Path, options: Options) -> Document:
    """Cues of SubRip; raises DocumentError if there is none, or for a line of times that is damaged."""
    content, encoding, mark = read_content(path)
    lines = list(any_lines_with_places(content))
    are_times = [bool(_TIMES.fullmatch(text)) for _, text in lines]
    for number, (place, text) in enumerate(lines):
        begins_block = number < 2 or not lines[number - 2][1].strip()
        if begins_block and not are_times[number] and _NEARLY_TIMES.match(text):
            raise error_at(path, content, place, f"not the times of a subtitle: {text.strip()[:60]!r}")
    if content.strip() and not any(are_times):
        raise DocumentError(f"{path}: has no subtitle with times, such as 00:00:01,000 --> 00:00:02,500")
    return _document(content, list(_cues_of_srt(lines, are_times)), encoding, mark, has_entities=False)


def read_vtt(path: Path, options: Options) -> Document:
    """Cues of WebVTT; raises DocumentError without the line `WEBVTT`, and ignores invalid blocks as players do."""
    content, encoding, mark = read_content(path)
    if not re.match(r"WEBVTT(?:[ \t\r\n]|\Z)", content):
        raise DocumentError(f"{path}, line 1: a file of WebVTT begins with WEBVTT")
    cues = list(_cues_of_vtt(list(any_lines_with_places(content))))
    return _document(content, cues, encoding, mark, has_entities=True)


def _document(
    content: str, cues: Sequence[Sequence[_Line]], encoding: str, mark: bytes, has_entities: bool
) -> Document:
    units = list[Unit]()
    for group in _sentences([*map(_without_tags_around, filter(_has_text, cues))]):
        parts = [_unit(content, cue.lines, has_entities) for cue in group]
        units.append(_joined_unit(content, parts) if len(parts) > 1 else parts[0])
    return Document(content, units, encoding, mark)


class _Cue(NamedTuple):
    lines: Sequence[_Line]
    tag: str = ""
    """Tag around its text or before it, such as `<i>` or `<v Anna>`, which is no part of the lines."""


def _without_tags_around(lines: Sequence[_Line]) -> _Cue:
    """Cue without a pair of tags around its text, and without the voice that it begins with."""
    (start, first), *others = lines
    opening = _OPENING.match(first)
    if opening is None:
        return _Cue(lines)
    texts = [first[opening.end() :], *(text for _, text in others)]
    closing, count = f"</{opening[2]}>", "\n".join(texts).count(f"<{opening[2]}")
    end = texts[-1].rstrip()
    if count or not (opening[2] == "v" or end.endswith(closing)):
        return _Cue(lines)
    texts[-1] = end.removesuffix(closing)
    if "\n".join(texts).count(closing) or not has_letters(texts[0]) or not has_letters(texts[-1]):
        return _Cue(lines)
    places = [start + opening.end(), *(place for place, _ in others)]
    return _Cue([*zip(places, texts, strict=True)], opening[1])


def _sentences(cues: Sequence[_Cue]) -> Iterator[list[_Cue]]:
    """Cues in groups: those of a group, at most `_MOST_CUES`, are one sentence."""
    group: list[_Cue] = []
    for cue in cues:
        if group and (len(group) == _MOST_CUES or not _goes_on(group[-1], cue)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _goes_on(cue: _Cue, following: _Cue) -> bool:
    last, first = SUBTITLE_TAG.sub("", cue.lines[-1][1]).rstrip(), following.lines[0][1].strip()
    lines = (text.strip() for _, text in (*cue.lines, *following.lines))
    has_dash = any(_DASH.match(line) or _TIGHT_DASH.match(line) for line in lines)
    goes_on = first[:1].islower() and (last[-1:].isalnum() or last.endswith(","))
    return goes_on and not has_dash and cue.tag == following.tag


def _joined_unit(content: str, parts: Sequence[Unit]) -> Unit:
    between = [content[before.end : after.start] for before, after in pairwise(parts)]
    shares = [max(1, display_width(part.texts[0])) for part in parts]

    def write(texts: Sequence[str]) -> str:
        """Content from the text of the first cue to that of the last one, in each as much as it had before."""
        lines = balanced(texts[0], shares)
        lines += [""] * (len(parts) - len(lines))
        written = (part.write([line]) for part, line in zip(parts, lines, strict=True))
        return "".join(text + space for text, space in zip(written, [*between, ""], strict=True))

    text = joined([part.texts[0] for part in parts])
    return Unit(parts[0].start, parts[-1].end, (text,), write, is_block=True)


def _cues_of_srt(lines: Sequence[_Line], are_times: Sequence[bool]) -> Iterator[list[_Line]]:
    """Lines of text of each cue, without blank ones; a cue with a blank line inside is two."""
    begin = are_times.index(True) if True in are_times else len(lines)

    def is_text(number: int) -> bool:
        text, is_before_times = lines[number][1], True in are_times[number + 1 : number + 2]
        return bool(text.strip()) and not are_times[number] and not (is_before_times and _NUMBER.fullmatch(text))

    for is_cue, numbers in groupby(range(begin, len(lines)), is_text):
        if is_cue:
            yield [lines[number] for number in numbers]


def _cues_of_vtt(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Lines of text of each cue; a cue has its times on the first or second line of a block."""
    cue: list[_Line] | None = None
    since_blank = 0
    for place, text in [*lines[1:], (0, "")]:
        is_arrow = "-->" in text
        if not text or is_arrow:
            if cue:
                yield cue
            is_cue = is_arrow and (since_blank < 2 or cue is not None) and _TIMES.fullmatch(text)
            cue = [] if is_cue else None
        elif cue is not None:
            cue.append((place, text))
        since_blank = since_blank + 1 if text else 0


def _has_text(lines: Sequence[_Line]) -> bool:
    text = joined([text for _, text in lines])
    return has_letters(SUBTITLE_TAG.sub("", text)) and not _THUMBNAIL.fullmatch(text)


def _unit(content: str, lines: Sequence[_Line], has_entities: bool) -> Unit:
    """Unit of a cue, from the first character of its lines that is no space to the last one."""
    start = lines[0][0] + len(lines[0][1]) - len(lines[0][1].lstrip())
    end = lines[-1][0] + len(lines[-1][1].rstrip())
    speeches = _speeches([text.strip() for _, text in lines])
    texts = tuple(joined(of_speech) for _, of_speech in speeches)
    if has_entities:  # `&` is written where it is clear; other entities stay, because `<` would be a tag.
        texts = tuple(_ESCAPED_AMPERSAND.sub("&", text) for text in texts)
    write = partial(_written, part=content[start:end], speeches=speeches, has_entities=has_entities)
    return Unit(start, end, texts, write, is_block=True)


def _speeches(lines: Sequence[str]) -> list[_Speech]:
    """Lines of a cue by speaker. A dash begins a speech if one begins the cue or follows the end of a sentence.

    Dashes without spaces, as in a formula or a word that continues, count only if there are several.
    """
    tight = [bool(_TIGHT_DASH.match(line)) for line in lines]
    pattern = _TIGHT_DASH if tight[0] and sum(tight) > 1 and not any(map(_DASH.match, lines)) else _DASH
    speeches: list[_Speech] = []
    for line in lines:
        dash = pattern.match(line)
        if dash and speeches and not speeches[0][0] and not _SPEECH_END.search(speeches[-1][1][-1]):
            dash = None
        if dash or not speeches:
            speeches.append((dash[0] if dash else "", []))
        speeches[-1][1].append(line[dash.end() :] if dash else line)
    return speeches


def _written(texts: Sequence[str], part: str, speeches: Sequence[_Speech], has_entities: bool) -> str:
    lines = []
    for (dash, before), text in zip(speeches, texts, strict=True):
        escaped = _BARE_AMPERSAND.sub("&amp;", text).replace("-->", "--&gt;") if has_entities else text
        first, *rest = balanced(escaped, [1] * len(before))
        lines += [dash + first, *rest]
    end = _END.search(part)
    return (end[0] if end else "\n").join(line for line in lines if line)
