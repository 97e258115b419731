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
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from zipfile import BadZipFile, ZipFile

from starlette.datastructures import UploadFile

from mt_cli.decoding.engine import Engine
from mt_cli.documents.document import MAX_BYTES, Options, read_content
from mt_cli.documents.formats import READERS, read_document
from mt_cli.documents.office import MAX_PARTS
from mt_cli.documents.tables import ColumnError
from mt_cli.documents.translate import Job, translate_texts, translated_document
from mt_cli.errors import MtError
from mt_cli.runtime.console import listed
from mt_cli.runtime.files import size_of
from mt_cli.serving.bodies import DISK_FULL, FileBody
from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import AUTO, Route
from mt_cli.serving.processes import Server, in_process, sent
from mt_cli.serving.scheduling import Ticket
from mt_cli.serving.service import DETECTED_CHARACTERS, Service, plain_text
from mt_cli.translation.drafts import SPANS_LOST
from mt_cli.translation.texts import TextTranslation

SUFFIXES = (".txt", *READERS)
_ARCHIVES = (".docx", ".odt")
_ENTRY = b"PK\1\2"
"""First bytes of each entry of an archive's table of contents."""
_SECONDS_KEPT = 3600.0
_MOST_BYTES = 2**29


def remove_temporary_folders() -> None:
    for path in Path(tempfile.gettempdir()).glob(f"mt-serve-{os.getpid()}-*"):
        shutil.rmtree(path, ignore_errors=True)


class FileStore:
    """Translated files, by names that cannot be guessed, in a temporary folder of this process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=f"mt-serve-{os.getpid()}-")
        self._files: dict[str, tuple[Path, str, float]] = {}
        """Path of each file, its name for the client, and the time at which it is removed."""

    def close(self) -> None:
        self._folder.cleanup()

    def path(self, suffix: str) -> Path:
        """Path for a new file, with a name that cannot be guessed."""
        return Path(self._folder.name) / (secrets.token_urlsafe(24) + suffix)

    def add(self, path: Path, name: str) -> str:
        """Keep a file of the folder; return the name to fetch it by. The oldest files make room for it."""
        self._remove_expired()
        self._files[path.name] = path, name, time.monotonic() + _SECONDS_KEPT
        while len(self._files) > 1 and size_of(path for path, *_ in self._files.values()) > _MOST_BYTES:
            self._remove(next(iter(self._files)))
        return path.name

    def get(self, token: str) -> tuple[Path, str]:
        """A file and its name for the client; raises RequestError (404) if there is none."""
        self._remove_expired()
        path, name, _ = self._files.get(token, (None, "", 0.0))
        if path is None or not path.exists():
            raise RequestError("there is no such file, or its hour has passed", 404)
        return path, name

    def _remove_expired(self) -> None:
        now = time.monotonic()
        for token in [token for token, (_, _, expires_at) in self._files.items() if expires_at < now]:
            self._remove(token)

    def _remove(self, token: str) -> None:
        self._files.pop(token)[0].unlink(missing_ok=True)


def written(path: Path, content: BinaryIO, notes: Sequence[str] = ()) -> Sequence[str]:
    """Write a file of the store and return the notes on it; raises RequestError (507) if that is not possible."""
    try:
        path.parent.mkdir(0o700, exist_ok=True)  # Systems remove temporary folders that nobody uses for days.
        content.seek(0)
        with path.open("wb") as file:
            shutil.copyfileobj(content, file)
    except OSError:
        path.unlink(missing_ok=True)
        raise RequestError(DISK_FULL, 507) from None
    return notes


def suffix_of(name: str) -> str:
    """Suffix of a file that can be translated; raises RequestError (415) for other files."""
    suffix = Path(name.replace("\\", "/")).suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"files {suffix or 'without a suffix'} are not translated; send {', '.join(SUFFIXES)}", 415)
    return suffix


def unpacked_size(file: UploadFile) -> int:
    """Number of bytes of a file; of an archive, as many as are unpacked at most."""
    if suffix_of(file.filename or "") in _ARCHIVES:
        if file.file.read().count(_ENTRY) > MAX_PARTS:  # Its table of contents takes much memory.
            return MAX_BYTES
        with suppress(BadZipFile, ValueError, RuntimeError, OSError), ZipFile(file.file) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    return file.size or 0  # A damaged archive is refused when it is read.


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
    name = body.file.filename or ""
    suffix, stem = suffix_of(name), Path(name.replace("\\", "/")).stem[:100] or "document"
    engines, routes = list[Engine](), list[Route]()

    def choose(text: str) -> Job | None:
        routes[:] = [service.choose(body.source, body.target, body.model or None, text)]
        return sent(service.job(routes[0], ticket), engines)

    def compute(number: int, method: str, *arguments: Any) -> Any:
        return getattr(engines[number], method)(*arguments)

    is_detected = body.source in (None, "", AUTO)
    path, output = store.path(suffix), store.path(suffix)
    arguments = path, output, f"{stem}{suffix}", body.column or None, is_detected
    answers: Mapping[str, Callable[..., Any]] = {"choose": choose, "compute": compute}
    size = unpacked_size(body.file)
    written(path, body.file.file)
    try:
        with service.documents.turn(size, ticket) as max_bytes:
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
            return written(output, io.BytesIO(mark + item.text().encode(encoding)), _notes(item))
        options = Options(column=column)
        document = read_document(path, options) if is_detected else None
        job = server.job(server.ask("choose", plain_text(document)[:DETECTED_CHARACTERS] if document else ""))
        if job is None:
            return written(output, path.open("rb"))
        content = translated_document(read_document(path, replace(options, languages=job.languages)), str(path), job)
        return written(output, io.BytesIO(content), [note.replace(f"{path}, ", "") for note in job.notes.values()])
    except RequestError:
        raise
    except MtError as error:
        message = str(error).replace(str(path), name).replace("--column", "`column`")
        raise RequestError(message, columns=error.names if isinstance(error, ColumnError) else ()) from None


def _notes(item: TextTranslation) -> list[str]:
    places, line = defaultdict[str, list[str]](list), 1
    for row, draft in zip(item.source.sentences, item.drafts, strict=True):
        line += row.before.count("\n")
        if problem := draft.problem or (SPANS_LOST if item.lost.get(row.text) else None):
            places[problem].append(f"line {line:,}")
    return [f"review {listed(list(dict.fromkeys(lines)))}: {problem}" for problem, lines in places.items()]
