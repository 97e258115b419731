"""HTML (`.html`, `.htm`, `.xhtml`): text of blocks, with its inline tags, and text in attributes.

Scripts, styles, code, and what is marked with `translate="no"` or the class `notranslate` stay as they are. A line
break (`br`) ends a text. Of a ruby annotation, the base is translated, and its readings go. `lang` of the page becomes
the target language. Other elements and attributes stay: HTML has no mark for a machine translation.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.document import Document, Options, Unit, read_content
from mt_cli.documents.html_places import Event, events_of
from mt_cli.documents.xml_places import allowed, declared_encoding
from mt_cli.translation.inline_marks import FORMULAS, PLACEHOLDERS
from mt_cli.translation.inline_tags import Piece, Tag, TaggedText

_INLINE_NAMES = (
    "a abbr acronym b bdi bdo big br cite data del dfn em font i img input ins mark nobr q rb rp rt ruby s small span "
    "strike strong sub sup time tt u var wbr"
)
_INLINE = frozenset(_INLINE_NAMES.split())
_KEPT_INLINE_NAMES = "code kbd samp svg math object picture audio video canvas iframe map meter progress"
_KEPT_INLINE = frozenset(_KEPT_INLINE_NAMES.split())
"""Elements within text that stay as they are."""
_KEPT_NAMES = "script style pre textarea template xmp listing plaintext noembed noframes"
_KEPT = _KEPT_INLINE | frozenset(_KEPT_NAMES.split())
_TRANSLATED = ("alt", "title", "placeholder", "aria-label", "aria-description")
_META = re.compile(r"description|(?:og|twitter):(?:title|description|site_name|image:alt)", re.IGNORECASE)
_READINGS, _RUBY = frozenset(("rt", "rp", "rtc")), frozenset(("ruby", "rb"))
_BLOCKS = (
    "address article aside blockquote details div dl fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header "
    "hgroup hr main menu nav ol p pre search section table ul"
)
_CLOSED_BY = {
    names: frozenset(following.split())
    for names, following in {
        "li": "li",
        "dt": "dt dd",
        "dd": "dt dd",
        "tr": "tr tbody tfoot",
        "td": "td th tr tbody tfoot",
        "th": "td th tr tbody tfoot",
        "thead": "tbody tfoot",
        "tbody": "tbody tfoot",
        "tfoot": "tbody",
        "option": "option optgroup",
        "optgroup": "optgroup",
        "p": _BLOCKS,
    }.items()
}
"""Elements whose end tag may be missing, and those that end them: HTML, section 13.1.2.4."""
_CHARSET = re.compile(rb"<meta\b[^<>]*?\bcharset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_WEB_NAMES = {"iso-8859-1": "cp1252", "latin1": "cp1252", "us-ascii": "cp1252", "utf-16": "utf-8", "gb2312": "gbk"}
"""Encodings that HTML reads in place of those with these names."""


def read_html(path: Path, options: Options) -> Document:
    """Texts of a page as units; raises DocumentError if it is cut off or not in its encoding."""
    content, encoding, mark = read_content(path, _declared)
    is_xml = path.suffix.lower() == ".xhtml"
    document = html_document(content, encoding, "&#160;" if is_xml else "&nbsp;", str(path), options.languages)
    return replace(document, mark=mark)


def html_document(
    content: str,
    encoding: str = "utf-8",
    space: str = "&nbsp;",
    name: str = "html",
    languages: tuple[str, str] = ("", ""),
) -> Document:
    """Texts of a page, or of a part of one, as units; raises DocumentError, with the name, if it is cut off.

    `space` is written for a no-break space, and the target language as that of the page.
    """
    events = events_of(content, name)
    escape = partial(_escaped, encoding=encoding, space=space)
    units = [unit for run in _runs(content, events) for unit in _units(content, run, escape)]
    page = next((event.attributes for event in events if event.name == "html" and event.kind == "start"), {})
    edits = [(*page[name], languages[1]) for name in ("lang", "xml:lang") if languages[1] and name in page]
    return Document(content, units, encoding, marks=(FORMULAS, *PLACEHOLDERS), edits=edits)


def _declared(beginning: bytes) -> str | None:
    match = _CHARSET.search(beginning)
    name = declared_encoding(beginning) or (match[1].decode("ascii") if match else None)
    return None if name is None else _WEB_NAMES.get(name.lower(), name)


def _escaped(text: str, encoding: str, space: str) -> str:
    text = html.escape(allowed(text), quote=False).replace("\xa0", space)
    return text.encode(encoding, "xmlcharrefreplace").decode(encoding)


def _runs(content: str, events: Sequence[Event]) -> Iterator[list[Event]]:
    """Runs of text and inline tags between tags of blocks. The tag of a block is a run of its own."""
    run: list[Event] = []
    index = 0
    while index < len(events):
        event = events[index]
        index += 1
        if event.kind in ("text", "other") or (event.kind == "end" and event.name in _INLINE):
            run.append(event)
            continue
        is_marked = event.kind != "end" and _is_marked(content, event)
        is_kept = is_marked or (event.kind != "end" and event.name in _KEPT)
        attributes = {} if is_marked else event.attributes
        end = _end_of(events, index - 1) if is_kept or event.name == "title" else index
        if event.name == "br":
            yield run
            run = []
        elif event.name in (_INLINE | _KEPT_INLINE):
            run.append(Event("other", "", event.start, events[end - 1].end, attributes) if is_kept else event)
        else:
            yield run
            if not is_marked:
                yield [event]
            run = []
            if event.name == "title" and not is_kept and end - 1 > index:
                run = [Event("text", "", event.end, events[end - 1].start, {})]
                index = end - 1
        if is_kept:
            index = end
    yield run


def _is_marked(content: str, event: Event) -> bool:
    values = {name: content[start:end].lower() for name, (start, end) in event.attributes.items()}
    return values.get("translate") == "no" or "notranslate" in values.get("class", "").split()


def _end_of(events: Sequence[Event], first: int) -> int:
    """Index after the end tag of an element; after its start tag if it has none, or the last if that is missing.

    An element whose end tag may be missing ends before the next one of its kind, and before the end of its parent.
    """
    followers = _CLOSED_BY.get(events[first].name, frozenset())
    is_open, num_open = list[str](), Counter[str]()
    for index in range(first, len(events)):
        event = events[index]
        if event.kind == "start":
            if is_open and event.name in followers and all(name in _INLINE for name in is_open[1:]):
                return index
            is_open.append(event.name)
            num_open[event.name] += 1
        elif event.kind == "end" and num_open[event.name]:
            while (name := is_open.pop()) != event.name:
                num_open[name] -= 1
            num_open[name] -= 1
        elif event.kind == "end" and followers:
            return index
        if not is_open:
            return index + 1
    return len(events)


def _units(content: str, run: Sequence[Event], escape: Callable[[str], str]) -> Iterator[Unit]:
    """Unit of a run with its attributes, or units of the attributes alone if it has no text."""
    places = [(event, *place) for event in run for place in _values(content, event)]
    values = [html.unescape(content[start:end]) for _, start, end in places]
    write_values = [partial(_value, content=content, start=start, end=end, escape=escape) for _, start, end in places]
    has_text = any(event.kind == "text" for event in run)
    pieces = list(_pieces(content, run)) if has_text else []
    if not has_letters("".join(piece for piece in pieces if isinstance(piece, str))):
        for (_, start, end), value, write_value in zip(places, values, write_values, strict=True):
            yield Unit(start, end, (value,), write_value, is_block=True)
        return
    tagged = TaggedText.of(pieces)

    def write(texts: Sequence[str]) -> str:
        raws: dict[int, str] = {}
        for (tag, start, end), write_value, text in reversed(list(zip(places, write_values, texts[1:], strict=True))):
            raw = raws.get(tag.start, content[tag.start : tag.end])
            raws[tag.start] = raw[: start - tag.start] + write_value([text]) + raw[end - tag.start :]
        return tagged.written(texts[0], escape, raws)[0]

    yield Unit(run[0].start, run[-1].end, (tagged.text, *values), write, is_block=True)


def _value(texts: Sequence[str], content: str, start: int, end: int, escape: Callable[[str], str]) -> str:
    """Value of an attribute; one that stays is written as it was."""
    if texts[0] == html.unescape(content[start:end]):
        return content[start:end]
    escaped = escape(texts[0]).replace('"', "&quot;").replace("'", "&#39;")
    return escaped if content[start - 1] in "\"'" else f'"{escaped}"'


def _values(content: str, event: Event) -> Iterator[tuple[int, int]]:
    names: Sequence[str] = _TRANSLATED
    kinds = {name: content[slice(*place)] for name, place in event.attributes.items()}
    if event.name == "meta":
        is_text = any(_META.fullmatch(kinds.get(name, "")) for name in ("name", "property"))
        names = ("content",) if is_text else ()
    elif event.name == "input" and kinds.get("type", "").lower() in ("submit", "button", "reset"):
        names = (*_TRANSLATED, "value")
    elif event.name in ("optgroup", "option"):
        names = (*_TRANSLATED, "label")
    for start, end in sorted(event.attributes[name] for name in names if name in event.attributes):
        if has_letters(html.unescape(content[start:end])):
            yield start, end


def _pieces(content: str, run: Sequence[Event]) -> Iterator[Piece]:
    start: int | None = None
    is_reading = False
    for event in run:
        if event.kind == "text" and not is_reading:
            start = event.start if start is None else start
            continue
        if start is not None:
            yield html.unescape(content[start : event.start])
            start = None
        if event.name in _RUBY | _READINGS:
            is_reading = event.kind == "start" and event.name in _READINGS
        if is_reading or event.name in _RUBY | _READINGS:
            continue
        kind = event.kind if event.kind in ("start", "end") else ""
        yield Tag(content[event.start : event.end], event.name, kind, event.start)
    if start is not None:
        yield html.unescape(content[start : run[-1].end])
