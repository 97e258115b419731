"""Files that clients send: translated in a folder that only this process uses, and kept for an hour to be fetched."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from mt_cli.documents.document import Options, read_content
from mt_cli.documents.formats import READERS
from mt_cli.documents.html import html_document
from mt_cli.documents.tables import ColumnError
from mt_cli.documents.translate import Job, translated, translated_document
from mt_cli.errors import InputError, MtError
from mt_cli.serving.errors import RequestError
from mt_cli.serving.models import Choice
from mt_cli.serving.translations import translate_texts
from mt_cli.translation.translator import Translator

SUFFIXES = (".txt", *READERS)
"""Suffixes of files that can be translated."""
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


def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix=f"mt-serve-{os.getpid()}-")


def remove_temporary_folders() -> None:
    """Remove all folders of this process, for an end that waits for nothing."""
    for path in Path(tempfile.gettempdir()).glob(f"mt-serve-{os.getpid()}-*"):
        shutil.rmtree(path, ignore_errors=True)


class FileStore:
    """Translated files, by names that cannot be guessed, in a temporary folder of this process."""

    def __init__(self) -> None:
        self._folder = _temporary_folder()
        self._files: dict[str, StoredFile] = {}

    def close(self) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def add(self, content: bytes, name: str) -> str:
        """Store a file; return the name to fetch it by. The oldest files make room for it."""
        self._remove_expired()
        while self._files and (
            len(self._files) >= _MOST_FILES
            or sum(file.num_bytes for file in self._files.values()) + len(content) > _MOST_BYTES
        ):
            self._remove(next(iter(self._files)))
        token = secrets.token_urlsafe(24) + Path(name).suffix.lower()
        path = Path(self._folder.name) / token
        with _storing():
            path.parent.mkdir(0o700, exist_ok=True)  # Systems remove temporary folders that nobody uses for days.
            try:
                path.write_bytes(content)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        self._files[token] = StoredFile(path, name, len(content), time.monotonic() + _SECONDS_KEPT)
        return token

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


@contextmanager
def _storing() -> Iterator[None]:
    """Context manager that raises RequestError (507) where a file cannot be written."""
    try:
        yield
    except OSError:
        raise RequestError("the file cannot be stored; the disk of the server may be full", 507) from None


def suffix_of(name: str) -> str:
    """Suffix of a file that can be translated; raises RequestError (415) for other files."""
    suffix = Path(name.replace("\\", "/")).suffix.lower()
    if suffix not in SUFFIXES:
        raise RequestError(f"files {suffix or 'without a suffix'} are not translated; send {', '.join(SUFFIXES)}", 415)
    return suffix


class FileTranslation(NamedTuple):
    """Translation of a file."""

    content: bytes
    name: str
    """Name of the translated file, such as `report.de.docx`."""
    notes: Sequence[str] = ()
    """Messages on texts that need a review."""


def translate_file(
    translator: Translator,
    choice: Choice,
    content: bytes,
    name: str,
    column: str | None,
    search: Mapping[str, Any],
) -> FileTranslation:
    """Translate a file.

    `column` is that of a table. Raises RequestError for a damaged file, and for a table of which no column is chosen;
    its `columns` then have the names.
    """
    suffix = suffix_of(name)
    stem = Path(name.replace("\\", "/")).stem[:100] or "document"
    with _storing():
        temporary = _temporary_folder()
    with temporary as folder:
        path = Path(folder) / f"document{suffix}"
        with _storing():
            path.write_bytes(content)
        try:
            result, notes = _translated(translator, choice, path, column, search)
        except MtError as error:
            message = str(error).replace(str(path), f"{stem}{suffix}").replace("--column", "`column`")
            raise RequestError(message, columns=_columns(error)) from None
    return FileTranslation(result, f"{stem}.{choice.direction.target}{suffix}", notes)


def _columns(error: MtError) -> Sequence[str]:
    """Columns to choose from, unless they are very many."""
    if isinstance(error, ColumnError) and sum(len(name) + 1 for name in error.names) <= _MOST_CHARACTERS_OF_NAMES:
        return error.names
    return ()


def _translated(
    translator: Translator, choice: Choice, path: Path, column: str | None, search: Mapping[str, Any]
) -> tuple[bytes, list[str]]:
    """Content of the translated file, and notes on it."""
    if path.suffix == ".txt":
        text, encoding, mark = read_content(path)
        (item,) = translate_texts(translator, choice, [text], search)
        return mark + item.text().encode(encoding), []
    job = _job(translator, choice, search, column)
    return translated(path, job), [note.replace(f"{path}, ", "") for note in job.notes.values()]


def translate_html(translator: Translator, choice: Choice, text: str, search: Mapping[str, Any]) -> str:
    """Translation of HTML, a page or a part of one, with its tags; raises RequestError if a tag is cut off."""
    try:
        document = html_document(text)
        return translated_document(document, "html", _job(translator, choice, search)).decode("utf-8")
    except InputError as error:
        raise RequestError(str(error)) from None


def _job(translator: Translator, choice: Choice, search: Mapping[str, Any], column: str | None = None) -> Job:
    return Job(translator, search, Options(choice.direction, column))
