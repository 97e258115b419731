"""Files that clients send: translated in a folder that only this process uses, and kept for an hour to be fetched."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

from mt_cli.documents.document import Document, Options, read_content
from mt_cli.documents.formats import READERS, read_document
from mt_cli.documents.html import html_document
from mt_cli.documents.tables import ColumnError
from mt_cli.documents.translate import Job, translated_document, translated_documents
from mt_cli.errors import InputError, MtError
from mt_cli.runtime.console import listed
from mt_cli.serving.bodies import FileBody, Upload
from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import AUTO, Route
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import Service
from mt_cli.serving.translations import TextTranslation, translate_texts
from mt_cli.translation.drafts import SPANS_LOST
from mt_cli.translation.inline_tags import LIKE_TAG

SUFFIXES = (".txt", *READERS)
"""Suffixes of files that can be translated."""
_ARCHIVES = (".docx", ".odt")
_SECONDS_KEPT = 3600.0
_MOST_FILES = 200
_MOST_BYTES = 2**29
_MOST_CHARACTERS_OF_NAMES = 10_000


@dataclass(frozen=True)
class StoredFile:
    """A translated file."""

    path: Path
    name: str
    """Name for the client."""
    num_bytes: int
    expires_at: float


def remove_temporary_folders() -> None:
    """Remove the folders of this process, for an end that waits for nothing."""
    for path in Path(tempfile.gettempdir()).glob(f"mt-serve-{os.getpid()}-*"):
        shutil.rmtree(path, ignore_errors=True)


class FileStore:
    """Translated files, by names that cannot be guessed, in a temporary folder of this process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"mt-serve-{os.getpid()}-")
        self._files: dict[str, StoredFile] = {}

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def write(self, content: bytes, suffix: str) -> Path:
        """Write a file under a name that cannot be guessed; raises RequestError (507) if that is not possible."""
        path = Path(self._folder.name) / (secrets.token_urlsafe(24) + suffix)
        try:
            path.parent.mkdir(0o700, exist_ok=True)  # Systems remove temporary folders that nobody uses for days.
            path.write_bytes(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise RequestError("the file cannot be stored; the disk of the server may be full", 507) from None
        return path

    def add(self, content: bytes, name: str) -> str:
        """Store a file; return the name to fetch it by. The oldest files make room for it."""
        self._remove_expired()
        while self._files and (
            len(self._files) >= _MOST_FILES
            or sum(file.num_bytes for file in self._files.values()) + len(content) > _MOST_BYTES
        ):
            self._remove(next(iter(self._files)))
        path = self.write(content, Path(name).suffix.lower())
        self._files[path.name] = StoredFile(path, name, len(content), time.monotonic() + _SECONDS_KEPT)
        return path.name

    def get(self, token: str) -> StoredFile:
        """A stored file; raises RequestError (404) if there is none with this name."""
        self._remove_expired()
        if token not in self._files or not self._files[token].path.exists():
            raise RequestError("there is no such file, or its hour has passed", 404)
        return self._files[token]

    def _remove_expired(self) -> None:
        now = time.monotonic()
        for token in [token for token, file in self._files.items() if file.expires_at < now]:
            self._remove(token)

    def _remove(self, token: str) -> None:
        self._files.pop(token).path.unlink(missing_ok=True)


def suffix_of(name: str) -> str:
    """Suffix of a file that can be translated; raises RequestError (415) for other files."""
    suffix = Path(name.replace("\\", "/")).suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"files {suffix or 'without a suffix'} are not translated; send {', '.join(SUFFIXES)}", 415)
    return suffix


def unpacked_size(file: Upload) -> int:
    """Number of bytes of a file; of an archive, as many as are unpacked at most."""
    if suffix_of(file.name) in _ARCHIVES:
        with suppress(BadZipFile, ValueError, RuntimeError, OSError), ZipFile(io.BytesIO(file.content)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    return len(file.content)  # A damaged archive is refused when it is read.


class FileTranslation(NamedTuple):
    """Translation of a file."""

    content: bytes
    name: str
    """Name of the translated file, such as `report.de.docx`."""
    route: Route
    notes: Sequence[str] = ()
    """Messages on texts that need a review."""


def translate_file(service: Service, store: FileStore, body: FileBody, ticket: Ticket) -> FileTranslation:
    """Translate a file.

    Raises RequestError for a damaged file, and for a table of which no column is chosen; its `columns` then have the
    names.
    """
    suffix = suffix_of(body.file.name)
    stem = Path(body.file.name.replace("\\", "/")).stem[:100] or "document"
    with service.documents.turn(unpacked_size(body.file), ticket):
        path = store.write(body.file.content, suffix)
        try:
            content, route, notes = _translated(service, body, path, ticket)
        except RequestError:
            raise
        except MtError as error:
            message = str(error).replace(str(path), f"{stem}{suffix}").replace("--column", "`column`")
            raise RequestError(message, columns=_columns(error)) from None
        finally:
            path.unlink(missing_ok=True)
    return FileTranslation(content, f"{stem}.{route.direction.target}{suffix}", route, notes)


def _columns(error: MtError) -> Sequence[str]:
    """Columns to choose from, unless they are very many."""
    if isinstance(error, ColumnError) and sum(len(name) + 1 for name in error.names) <= _MOST_CHARACTERS_OF_NAMES:
        return error.names
    return ()


def _translated(service: Service, body: FileBody, path: Path, ticket: Ticket) -> tuple[bytes, Route, Sequence[str]]:
    """Content of the translated file, its route, and notes on it."""

    def choose(text: str) -> tuple[Route, Job | None]:
        route = service.choose(body.source, body.target, body.model or None, text)
        return route, service.job(route, ticket)

    if path.suffix == ".txt":
        text, encoding, mark = read_content(path)
        route, job = choose(text)
        (item,) = translate_texts(job, [text], route.direction, ticket)
        return mark + item.text().encode(encoding), route, _notes(item)
    options = Options(column=body.column or None)
    is_detected = body.source in (None, "", AUTO)
    route, job = choose(plain_text(read_document(path, options)) if is_detected else "")
    ticket.check()
    if job is None:
        return body.file.content, route, ()
    languages = route.choices[0].direction.source, route.choices[-1].direction.target
    document = read_document(path, replace(options, languages=languages))
    content = translated_document(document, str(path), job)
    return content, route, [note.replace(f"{path}, ", "") for note in job.notes.values()]


def _notes(item: TextTranslation) -> list[str]:
    """Notes on the sentences of a text that need a review."""
    places, line = defaultdict[str, list[str]](list), 1
    for row, draft in zip(item.source.sentences, item.drafts, strict=True):
        line += row.before.count("\n")
        if problem := draft.problem or (SPANS_LOST if item.lost.get(row.text) else None):
            places[problem].append(f"line {line:,}")
    return [f"review {listed(list(dict.fromkeys(lines)))}: {problem}" for problem, lines in places.items()]


def plain_text(document: Document) -> str:
    """Texts of a document without tags."""
    return LIKE_TAG.sub(" ", "\n".join(text for unit in document.units for text in unit.texts))


def read_pages(texts: Sequence[str]) -> list[Document]:
    """Pages of HTML, or parts of pages; raises RequestError if a tag is cut off."""
    try:
        return [html_document(text) for text in texts]
    except InputError as error:
        raise RequestError(str(error)) from None


def translate_pages(job: Job | None, documents: Sequence[Document]) -> list[str]:
    """Translations of pages, all in one search."""
    if job is None:
        return [document.content for document in documents]
    return [content.decode("utf-8") for content in translated_documents(documents, "html", job)]
