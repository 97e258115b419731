"""Translation of documents and of folders of documents of any format, with a summary."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.glossary import TermUse
from mt_cli.documents.accelerators import accelerators_in
from mt_cli.documents.document import MAX_BYTES, Document, DocumentError, Options
from mt_cli.documents.formats import is_document, read_document
from mt_cli.documents.language import is_language
from mt_cli.documents.tables import ColumnError
from mt_cli.documents.texts import lines_of, with_lines
from mt_cli.errors import InputError, MtError, reason
from mt_cli.runtime.console import Progress, listed, say
from mt_cli.runtime.files import append_row, read_regular, reading, real_path, write_bytes, write_output, writing
from mt_cli.translation.drafts import SPANS_LOST, SPANS_REORDERED, TERMS_MISSING, Draft, drafts_with_marks, lost_spans
from mt_cli.translation.inline_marks import INTERFACE, PLACEHOLDERS, InlineMarks
from mt_cli.translation.pipeline import Pipeline
from mt_cli.translation.quality import units_to_review
from mt_cli.translation.stream import blocks, describe_terms, notices_on
from mt_cli.translation.texts import TextTranslation, translations_of
from mt_cli.translation.translator import Translator

RECORD = ".mt-translated.jsonl"
"""File of an output folder that names the documents that are done."""
_STRICT = (SPANS_LOST, SPANS_REORDERED, TERMS_MISSING)
LOWEST = "their expected chrF is the lowest"
EMPTY = "the translation is empty, so the text stays as it is"


_ROWS = TypeAdapter(list[tuple[str, str, str]])
"""Name of a document, key of input and options, and digest of the output."""


@dataclass(frozen=True)
class Job:
    """Translation of documents by one model."""

    translator: Translator
    search: Mapping[str, Any]
    """Options of `Translator.translate_fully`."""
    options: Options
    translates_all: bool = False
    """True if texts that a document has translations of are translated anew."""
    key: str = ""
    """Value that changes when the model or the options do."""
    then: Job | None = None
    """Translation of the translations, by the model of a second direction."""
    counts: Counter[str] = field(default_factory=Counter)
    """Numbers for the summary."""
    term_uses: Counter[TermUse] = field(default_factory=Counter)
    """What the translations have of the terms of the glossary, with numbers."""
    places_for_review: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Places of texts that need a review, by problem."""
    review: float | None = None
    """Share of the texts of each document that need a review because their expected chrF is lowest."""
    doubt_of: Callable[[Sequence[str]], str] | None = None
    """Reason why the estimates of such texts do not hold, such as another language; empty if they do."""

    def with_engines(self, engine_of: Callable[[Any], Any]) -> Job:
        """Copy with other engines, given those of both models."""
        translator = self.translator.with_engine(engine_of(self.translator.engine))
        return replace(self, translator=translator, then=self.then and self.then.with_engines(engine_of))

    @property
    def languages(self) -> tuple[str, str]:
        return self.options.languages[0], (self.then.languages if self.then else self.options.languages)[1]

    @property
    def notes(self) -> Mapping[str, str]:
        missing = dict.fromkeys(f"`{use.source}`" for use in self.term_uses if use.status == "missing")
        names = {TERMS_MISSING: f" ({listed([*missing])})"} if missing else {}
        return {
            problem: f"review {listed(places)}: {problem}{names.get(problem, '')}"
            for problem, places in self.places_for_review.items()
        }


def translate_documents(path: Path, output: Path, job: Job, is_strict: bool) -> None:
    """Translate a document, or all documents of a folder into another one; print a summary.

    A folder is finished by the same command if it was interrupted. Raises InputError if an output exists and is not
    of this command, DocumentError for a damaged document, and MtError with `is_strict` if a protected span is lost or
    in a wrong order, or a term of the glossary is missing.
    """
    if path.is_dir():
        _translate_folder(path, output, job)
    else:
        write_output(output, translated(path, job))
    say(_summary(job.counts))
    if "terms" in job.search:
        say(f"terms of the glossary: {describe_terms(Counter(use.status for use in job.term_uses.elements()))}")
    errors = [note for problem, note in job.notes.items() if is_strict and problem in _STRICT]
    for message in job.notes.values():
        if message not in errors[:1]:
            say(f"note: {message}")
    if errors:
        raise MtError(errors[0])


def _translate_folder(path: Path, output: Path, job: Job) -> None:
    """Translate the documents of a folder that are not done."""
    files = [file for file in path.rglob("*") if file.is_file() and file.name != RECORD]
    names = sorted(file.relative_to(path) for file in files if is_document(file))
    job.counts["other files"] = len(files) - len(names)
    if not names:
        raise InputError(f"{path}: has no documents whose text can be translated")
    if real_path(output).is_relative_to(real_path(path)):
        raise InputError(f"{output}: is inside of the folder that is read; write into another one")
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file; documents of a folder are written into a folder")
    with writing(output):
        output.mkdir(exist_ok=True)
    record = output / RECORD
    done = _read_record(record) if record.exists() else {}
    for number, name in enumerate(names, start=1):
        source, target = path / name, output / name
        key = hashlib.sha256(job.key.encode() + source.read_bytes()).hexdigest()
        before = digest_of_file(target) if target.exists() else ""
        shown = str(name).encode("utf-8", "backslashreplace").decode("utf-8")  # A name need not be UTF-8.
        key_of_output = done.get(shown, {})
        if key_of_output.get(before) == key:
            job.counts["done before"] += 1
            continue
        if before and before not in key_of_output:
            raise InputError(f"{target}: was not written by this command, or has changed since; choose a new folder")
        try:
            document = read_document(source, job.options)
        except ColumnError:
            if job.options.column is not None:
                raise
            say(f"note: {shown}: a table with several columns, skipped; --column chooses one")
            continue
        say(f"{shown} ({number:,} of {len(names):,})")
        content = translated_document(document, str(source), job)
        row = (shown, key, hashlib.sha256(content).hexdigest())
        # Before the output is written, so none is unknown.
        append_row(record, json.dumps(row, ensure_ascii=False).encode())
        with writing(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
        write_output(target, content)


def _read_record(path: Path) -> dict[str, dict[str, str]]:
    """For each document, the key of each of its outputs by digest; a last line that was cut off is removed.

    Raises InputError for another damage.
    """
    with reading(path):
        content = read_regular(path, MAX_BYTES)
    lines = content[: content.rfind(b"\n") + 1]
    if len(lines) < len(content):
        write_bytes(path, lines)
    try:
        rows = _ROWS.validate_json(b"[%s]" % b",".join(lines.splitlines()))
    except ValueError as error:
        raise InputError(f"{path}: cannot be used: {reason(error)}") from None
    keys = defaultdict[str, dict[str, str]](dict)
    for name, key, digest in rows:
        keys[name][digest] = key
    return keys


def translated(path: Path, job: Job) -> bytes:
    """Bytes of a translated document; raises DocumentError if it is damaged or its encoding lacks a character."""
    return translated_document(read_document(path, job.options), str(path), job)


def translated_document(document: Document, name: str, job: Job) -> bytes:
    """Bytes of a translated document; raises DocumentError, with the name, if its encoding lacks a character."""
    return translated_documents([document], name, job)[0].content


class TranslatedDocument(NamedTuple):
    """Bytes of a translated document."""

    content: bytes
    lines: Sequence[str] = ()
    drafts: Mapping[str, Draft] = MappingProxyType({})
    marks: InlineMarks = InlineMarks()

    def text(self) -> str:
        return self.content.decode()

    def alternatives(self, number: int) -> list[str]:
        return []

    @property
    def lost_spans(self) -> list[str]:
        """Marks and protected spans that the translations lack."""
        return [span for line in self.lines for span in lost_spans(line, self.drafts[line], self.marks)]


def translated_documents(documents: Sequence[Document], name: str, job: Job) -> list[TranslatedDocument]:
    """Translations of documents of one format, whose texts are translated together."""
    if not documents:
        return []
    lines, is_block = list[dict[int, list[str]]](), dict[str, bool]()
    for document in documents:
        lines.append({})
        for index, unit in enumerate(document.units):
            if job.translates_all or not unit.is_translated:
                texts = (lines_of(text, unit.is_block, INTERFACE in document.marks) for text in unit.texts)
                lines[-1][index] = [*chain(*texts)]
                is_block.update(dict.fromkeys(lines[-1][index], unit.is_block))
    marks = InlineMarks(documents[0].marks)
    labels = (text for document in documents for unit in document.units for text in unit.texts)
    accelerators = accelerators_in(is_block, labels, marks) if INTERFACE in marks.kinds else {}
    plain = {line: accelerators[line].plain if line in accelerators else line for line in is_block}
    copied = {line for line, label in plain.items() if not is_language(label, marks)}
    searched = {plain[line]: is_of_block for line, is_of_block in is_block.items() if line not in copied}
    if job.doubt_of is not None:
        job = replace(job, translator=job.translator.with_doubt(job.doubt_of([*searched])))
    of_labels = _translations(searched, documents[0].marks, job)
    drafts = {line: Draft(line) if line in copied else of_labels[label] for line, label in plain.items()}
    for line in accelerators.keys() - copied:
        drafts[line] = drafts[line]._replace(text=accelerators[line].put_back(drafts[line].text, marks))
    return [_written(*row, name, drafts, copied, job) for row in zip(documents, lines, strict=True)]


def _written(
    document: Document,
    lines: Mapping[int, Sequence[str]],
    name: str,
    translations: Mapping[str, Draft],
    copied: Collection[str],
    job: Job,
) -> TranslatedDocument:
    """A document with the drafts of its chosen units, by the lines of each; `copied` are no language."""
    written = [index for index in lines if any(line not in copied for line in lines[index])]
    texts, places = dict[int, list[str]](), [*document.places()]
    for_review, final = set[int](), set[int]()
    if job.review is not None and (quality := job.translator.quality):
        estimates = {
            index: [item.estimate for line in lines[index] if (item := translations[line].item) and item.estimate]
            for index in written
        }
        for_review, final = units_to_review(estimates, quality, job.review, name)
    if for_review:
        job.places_for_review[LOWEST] += (f"{name}, {places[index]}" for index in sorted(for_review))
    for index in written:
        unit = document.units[index]
        problems = dict.fromkeys(translations[line].problem for line in lines[index])
        items = [item for line in lines[index] if (item := translations[line].item)]
        job.term_uses.update(use for item in items for use in item.term_uses)
        notices = [notice for item in items for notice in notices_on(item)]
        notices += ["words that are not in the vocabulary"] * any(item.unknown_words for item in items)
        for problem in (*filter(None, problems), *notices):
            place = f"{name}, {places[index]}"
            if place not in job.places_for_review[problem][-1:]:  # Several texts may be on one line.
                job.places_for_review[problem].append(place)
        if notices:  # Without a review, they are drafts in formats that have them.
            final.discard(index)
        if any(problems):
            for_review.add(index)
        if EMPTY not in problems:
            translated_lines = {line: translations[line].text for line in lines[index]}
            has_forms = INTERFACE in document.marks
            texts[index] = [with_lines(text, unit.is_block, translated_lines, has_forms) for text in unit.texts]
    job.counts.update(document.counts)
    job.counts.update(
        {"documents": 1, "texts": len(document.units), "translated": len(texts)}
        | {"had a translation": len(document.units) - len(lines), "copied": len(lines) - len(written)}
        | {"not translated": len(written) - len(texts), "to review": len(for_review)}
    )
    try:
        content = document.written(texts, for_review, final)
    except DocumentError as error:
        raise DocumentError(f"{name}: {error}") from None
    marks = InlineMarks(document.marks, job.translator.protection)
    return TranslatedDocument(content, [*chain(*lines.values())], translations, marks)


def _translations(is_block: Mapping[str, bool], kinds: Sequence[str], job: Job) -> dict[str, Draft]:
    """Translation of each line; sentences of paragraphs, whose values are True, are translated one by one."""
    drafts: dict[str, Draft] = {}
    pipeline = Pipeline()
    queued_job = job.with_engines(pipeline.queued)

    def work(block: list[str]) -> dict[str, Draft]:
        return dict(zip(block, drafts_of(block, kinds, queued_job, is_block[block[0]]), strict=True))

    def keep(of_block: Mapping[str, Draft]) -> None:
        drafts.update(of_block)
        bar.advance(len(of_block))

    lines = ([line for line, is_of_block in is_block.items() if is_of_block is splits] for splits in (False, True))
    with Progress("translate", len(is_block), "text", is_quiet=True) as bar:
        pipeline.run(chain.from_iterable(map(blocks, lines)), work, keep)
    return drafts


def translate_texts(job: Job | None, texts: Iterable[str]) -> list[TextTranslation]:
    """Translations of plain texts, sentence by sentence; without a job, they stay as they are."""
    if job is None:
        return translations_of(texts, ("", ""), lambda sentences: [Draft(sentence) for sentence in sentences])
    draft = partial(drafts_of, kinds=PLACEHOLDERS, job=job)
    return translations_of(texts, job.languages, draft, job.translator.protection)


def drafts_of(lines: Sequence[str], kinds: Sequence[str], job: Job, split_sentences: bool = False) -> list[Draft]:
    """Translations of lines with marks of these kinds, by the model of a job and, if it has one, by the second model.

    With `split_sentences`, the sentences of each line are translated one by one, unless the job says otherwise.
    """
    chosen = job.search.get("split_sentences")
    search = {**job.search, "split_sentences": split_sentences or None if chosen is None else chosen}
    drafts = drafts_with_marks(lines, job.translator, InlineMarks(kinds, job.translator.protection), search)
    marks = InlineMarks(kinds)
    for row, line in enumerate(lines):
        if not _has_words(drafts[row].text, marks) and _has_words(line, marks):
            drafts[row] = drafts[row]._replace(text=line, problem=EMPTY, others=())
    if job.then is None:
        return drafts
    nexts = drafts_of([draft.text for draft in drafts], kinds, job.then, split_sentences)
    return [Draft(after.text, draft.problem or after.problem) for draft, after in zip(drafts, nexts, strict=True)]


def _has_words(text: str, marks: InlineMarks) -> bool:
    """True if a text has letters or digits outside of its marks."""
    if text.replace(" ", "").isalnum():  # Most texts of few words; the marks of a text take longer to find.
        return True
    return any(map(str.isalnum, "".join(piece for piece in marks.without_any(text) if isinstance(piece, str))))


def _summary(counts: Counter[str]) -> str:
    names = ("documents", "done before", "texts", "other files")
    documents, before, texts, others = (counts.pop(name, 0) for name in names)
    were = "file of another format was" if others == 1 else "files of other formats were"
    unread = f"; {others:,} {were} not read" if others else ""
    if before and not documents:
        return f"all {before:,} documents were done before{unread}"
    rows = [("text" if texts == 1 else "texts", texts), *counts.items()]
    shown = [f"{number:,} {name}" for name, number in rows if number]
    earlier = f" ({before:,} more were done before)" if before else ""
    return f"{documents:,} document{'s' * (documents != 1)}{earlier}: {', '.join(shown) or 'no text'}{unread}"
