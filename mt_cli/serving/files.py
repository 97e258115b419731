"""Files that clients send: translated in a folder that only this process uses, and kept for an hour to be fetched."""

from __future__ import annotations

import io
import os
import secrets
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

from mt_cli.documents.document import MAX_BYTES, Options, read_content
from mt_cli.documents.formats import READERS, read_document
from mt_cli.documents.office import MAX_PARTS
from mt_cli.documents.tables import ColumnError
from mt_cli.documents.translate import Job, translate_texts, translated_document
from mt_cli.errors import MtError
from mt_cli.runtime.console import listed
from mt_cli.serving.bodies import FileBody, Upload
from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import AUTO, Route
from mt_cli.serving.processes import Engines, Server, in_process
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import DETECTED_CHARACTERS, Service
from mt_cli.serving.texts import plain_text
from mt_cli.translation.drafts import SPANS_LOST
from mt_cli.translation.texts import TextTranslation

SUFFIXES = (".txt", *READERS)
"""Suffixes of files that can be translated."""
_ARCHIVES = (".docx", ".odt")
_ENTRY = b"PK\1\2"
"""First bytes of each entry of an archive's table of contents."""
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

    def path(self, suffix: str) -> Path:
        """Path for a new file, with a name that cannot be guessed."""
        return Path(self._folder.name) / (secrets.token_urlsafe(24) + suffix)

    def add(self, path: Path, name: str) -> str:
        """Keep a file of the folder; return the name to fetch it by. The oldest files make room for it."""
        self._remove_expired()
        num_bytes = path.stat().st_size
        while self._files and (
            len(self._files) >= _MOST_FILES
            or sum(file.num_bytes for file in self._files.values()) + num_bytes > _MOST_BYTES
        ):
            self._remove(next(iter(self._files)))
        self._files[path.name] = StoredFile(path, name, num_bytes, time.monotonic() + _SECONDS_KEPT)
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


def written(path: Path, content: bytes, notes: Sequence[str] = ()) -> Sequence[str]:
    """Write a file of the store and return the notes on it; raises RequestError (507) if that is not possible."""
    try:
        path.parent.mkdir(0o700, exist_ok=True)  # Systems remove temporary folders that nobody uses for days.
        path.write_bytes(content)
    except OSError:
        path.unlink(missing_ok=True)
        raise RequestError("the file cannot be stored; the disk of the server may be full", 507) from None
    return notes


def suffix_of(name: str) -> str:
    """Suffix of a file that can be translated; raises RequestError (415) for other files."""
    suffix = Path(name.replace("\\", "/")).suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"files {suffix or 'without a suffix'} are not translated; send {', '.join(SUFFIXES)}", 415)
    return suffix


def unpacked_size(file: Upload) -> int:
    """Number of bytes of a file; of an archive, as many as are unpacked at most."""
    if suffix_of(file.name) in _ARCHIVES:
        if file.content.count(_ENTRY) > MAX_PARTS:  # Its table of contents takes much memory.
            return MAX_BYTES
        with suppress(BadZipFile, ValueError, RuntimeError, OSError), ZipFile(io.BytesIO(file.content)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    return len(file.content)  # A damaged archive is refused when it is read.


class FileTranslation(NamedTuple):
    """Translation of a file."""

    path: Path
    name: str
    """Name of the translated file, such as `report.de.docx`."""
    route: Route
    notes: Sequence[str] = ()
    """Messages on texts that need a review."""


def translate_file(service: Service, store: FileStore, body: FileBody, ticket: Ticket) -> FileTranslation:
    """Translate a file in a process of its own.

    Raises RequestError for a damaged file, and for a table of which no column is chosen; its `columns` then have the
    names.
    """
    suffix = suffix_of(body.file.name)
    stem = Path(body.file.name.replace("\\", "/")).stem[:100] or "document"
    engines, routes = Engines(), list[Route]()

    def choose(text: str) -> Job | None:
        routes[:] = [service.choose(body.source, body.target, body.model or None, text)]
        return engines.sent(service.job(routes[0], ticket))

    is_detected = body.source in (None, "", AUTO)
    with service.documents.turn(unpacked_size(body.file), ticket) as max_bytes:
        path = store.path(suffix)
        output = store.path(suffix)
        try:
            written(path, body.file.content)
            arguments = path, output, f"{stem}{suffix}", body.column or None, is_detected
            answers: Mapping[str, Callable[..., Any]] = {"choose": choose, "compute": engines.compute}
            notes = in_process(translated_file, arguments, answers, ticket, max_bytes)
        except BaseException:
            output.unlink(missing_ok=True)
            raise
        finally:
            path.unlink(missing_ok=True)
    return FileTranslation(output, f"{stem}.{routes[0].direction.target}{suffix}", routes[0], notes)


def translated_file(
    server: Server, path: Path, output: Path, name: str, column: str | None, is_detected: bool
) -> Sequence[str]:
    """Write the translation of a file, in a process of its own; return notes on it."""
    try:
        if path.suffix == ".txt":
            text, encoding, mark = read_content(path)
            (item,) = translate_texts(server.job(server.ask("choose", text[:DETECTED_CHARACTERS])), [text])
            return written(output, mark + item.text().encode(encoding), _notes(item))
        options = Options(column=column)
        document = read_document(path, options) if is_detected else None
        job = server.job(server.ask("choose", plain_text(document)[:DETECTED_CHARACTERS] if document else ""))
        if job is None:
            return written(output, path.read_bytes())
        content = translated_document(read_document(path, replace(options, languages=job.languages)), str(path), job)
        return written(output, content, [note.replace(f"{path}, ", "") for note in job.notes.values()])
    except RequestError:
        raise
    except MtError as error:
        message = str(error).replace(str(path), name).replace("--column", "`column`")
        raise RequestError(message, columns=_columns(error)) from None


def _columns(error: MtError) -> Sequence[str]:
    """Columns to choose from, unless they are very many."""
    if isinstance(error, ColumnError) and sum(len(name) + 1 for name in error.names) <= _MOST_CHARACTERS_OF_NAMES:
        return error.names
    return ()


def _notes(item: TextTranslation) -> list[str]:
    """Notes on the sentences of a text that need a review."""
    places, line = defaultdict[str, list[str]](list), 1
    for row, draft in zip(item.source.sentences, item.drafts, strict=True):
        line += row.before.count("\n")
        if problem := draft.problem or (SPANS_LOST if item.lost.get(row.text) else None):
            places[problem].append(f"line {line:,}")
    return [f"review {listed(list(dict.fromkeys(lines)))}: {problem}" for problem, lines in places.items()]
