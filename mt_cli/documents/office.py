"""Documents of word processors (`.docx`, `.odt`): text of paragraphs, notes, comments, charts and pictures.

Each other part of the archive keeps its content, its place and its compression. Nothing marks a machine translation.
"""

from __future__ import annotations

import copy
import io
import re
import zlib
from functools import partial
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from mt_cli.documents.document import MAX_BYTES, Document, DocumentError, Options, Unit, check_marks
from mt_cli.documents.office_paragraphs import paragraphs_of
from mt_cli.documents.xml_places import XmlError, parse_xml
from mt_cli.runtime.files import read_regular, reading

_PARTS = re.compile(
    r"word/(?:(?:document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
    r"|(?:charts/chart|diagrams/(?:data|drawing))\d*\.xml)"
    r"|(?:Object \d+/)?content\.xml|styles\.xml"
)
_MAIN_PARTS = {"word/document.xml": "w:", "content.xml": "office:"}
"""Prefix of the first element of the part that each document has."""
MAX_PARTS = 10_000
MAX_ARCHIVE_BYTES = 2**28
"""Most bytes of an archive, which may have pictures, and of its content."""
_READ_AT_ONCE = 2**16
_UNREADABLE = (BadZipFile, RuntimeError, EOFError, ValueError, OSError, zlib.error)
"""Errors of `zipfile` for a damaged or encrypted archive, or one in an unknown compression."""
_SEPARATOR = "\0"
"""Stands between the parts in the content of a document; XML cannot hold it."""


def read_office(path: Path, options: Options) -> Document:
    """Paragraphs of a document as units; raises DocumentError if the archive or a part of it is damaged."""
    with reading(path, DocumentError):
        archive = read_regular(path, MAX_ARCHIVE_BYTES)
    contents = _translated_parts(path, archive)
    check_marks(path, "".join(contents.values()))
    units, place, num_kept = list[Unit](), 0, 0
    for name, content in contents.items():
        try:
            root = parse_xml(content)
            if not root.tag.startswith(_MAIN_PARTS.get(name, "")):
                raise XmlError(root.line, f"its first element is <{root.tag[:60]}>, not one of a .docx or .odt file")
            paragraphs = list(paragraphs_of(content, root))
        except XmlError as error:
            raise DocumentError(f"{path}, {name}, {error}") from None
        for paragraph in paragraphs:
            num_kept += paragraph is None
            if paragraph is not None and paragraph.texts:
                start, end = place + paragraph.start, place + paragraph.end
                units.append(Unit(start, end, paragraph.texts, paragraph.write, is_block=True))
        place += len(content) + len(_SEPARATOR)
    counts = {"paragraphs in fields": num_kept} if num_kept else {}
    wrap = partial(_packed, archive, list(contents))
    return Document(_SEPARATOR.join(contents.values()), units, counts=counts, has_lines=False, wrap=wrap)


def _translated_parts(path: Path, archive: bytes) -> dict[str, str]:
    try:
        with ZipFile(io.BytesIO(archive)) as file:
            entries = file.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > MAX_ARCHIVE_BYTES or len(entries) > MAX_PARTS:
                raise DocumentError(f"{path}: its {len(entries):,} parts have {size:,} bytes, which is too much")
            size_of_text = sum(entry.file_size for entry in entries if _PARTS.fullmatch(entry.filename))
            if size_of_text > MAX_BYTES:
                raise DocumentError(
                    f"{path}: its text has {size_of_text / 2**20:,.1f} MiB with its markup; divide it into documents "
                    f"of at most {MAX_BYTES // 2**20} MiB"
                )
            read = ((entry.filename, _content(file, entry)) for entry in entries)  # All, because others may be damaged.
            parts = {name: content for name, content in read if _PARTS.fullmatch(name)}
    except _UNREADABLE as error:
        raise DocumentError(f"{path}: not a readable archive: {str(error) or type(error).__name__}") from None
    contents = {}
    for name in parts:
        try:
            contents[name] = parts[name].decode("utf-8")
        except UnicodeDecodeError:
            raise DocumentError(f"{path}, {name}: not UTF-8, or encrypted") from None
    if not _MAIN_PARTS.keys() & contents.keys():
        raise DocumentError(f"{path}: has neither word/document.xml nor content.xml, so it is no .docx or .odt file")
    return contents


def _content(archive: ZipFile, entry: ZipInfo) -> bytes:
    """Content of a part, of which no more is unpacked than its declared size; `ZipFile.read` unpacks all at once."""
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise BadZipFile(f"{entry.filename:.60} is compressed in a way that word processors do not write")
    with archive.open(entry) as part:
        return b"".join(iter(lambda: part.read(_READ_AT_ONCE), b""))


def _packed(archive: bytes, names: list[str], content: bytes) -> bytes:
    """Archive with new content for some parts; the same bytes if nothing is new."""
    parts = dict(zip(names, content.split(_SEPARATOR.encode()), strict=True))
    packed, is_new = io.BytesIO(), False
    with ZipFile(io.BytesIO(archive)) as old, ZipFile(packed, "w") as new:
        new.comment = old.comment
        for entry in old.infolist():
            data = _content(old, entry)
            part = parts.get(entry.filename, data)
            is_new |= part != data
            new.writestr(copy.copy(entry), part, entry.compress_type)
    return packed.getvalue() if is_new else archive
