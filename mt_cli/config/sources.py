"""Kinds of corpus source, each with the key that selects it, and the filters of their pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag

from mt_cli.config.base import Section, TwoColumns, TwoTexts, without_problems

FormatName = Literal["tsv", "plain_tsv", "csv", "json"]


class FilterConfig(Section):
    """Filters of training pairs; a dropped pair is counted under the first filter, in this order, that drops it."""

    garbled: bool = True
    """Drop pairs with control characters, replacement characters (U+FFFD), or UTF-8 decoded as Latin-1 (`Ã©` for `é`).
    Tabs and line ends count as spaces."""
    identical: bool = True
    """Drop pairs whose sides are the same text, unless it has no letters."""
    max_characters: int | None = Field(default=2000, ge=1)
    """Maximum length of a side in characters."""
    max_length_ratio: float | None = Field(default=4.0, gt=1, le=1_000_000_000)
    """Maximum ratio of the lengths of both sides in characters, after adding 10 to both."""
    wrong_language: bool = True
    """Drop pairs with a side of which most letters are not in the script of its language, or that has three common
    words of another language and none of its own."""
    markers: bool = True
    """Drop pairs with a side that stands for ten or more different and far longer texts, such as `<range>` or `...` for
    verses that a translation joins or lacks."""
    duplicates: bool = True
    """Drop pairs that repeat a pair of this corpus or of a corpus earlier in the list, in the same direction and with
    the same tag."""
    overlap: bool = True
    """Drop pairs with a side that is a sentence of `valid`, `test` or `extra_tests` in the same language."""
    keep_likely: float | None = Field(default=None, gt=0, lt=1)
    """Share of the other pairs that training uses in its second half: the most likely ones in both directions, which
    the run must learn (`corpus.both_directions`)."""


class TextSource(Section):
    """Options of every kind of corpus source."""

    name: str | None = Field(default=None, min_length=1)
    """Name in reports; `null`: the name of the file, dataset or built-in corpus."""
    languages: TwoTexts | None = None
    """Source and target language if they differ from those of the config, in a model of several directions."""
    tag: str | None = Field(default=None, pattern=r"^\S+$", max_length=50)
    """Token before each source sentence, such as `<bt>`, or `to_target` or `direction`, as for `corpus.tag`."""
    reverse: bool = False
    """Exchange the sides, as for catalogues into the source language. `languages` names them after the exchange."""
    weight: float | None = Field(default=None, ge=1e-9, le=1000)
    """Times that a pair is seen per epoch (of a stream: relative share); `null`: once, or by `temperature`."""
    filters: FilterConfig | None = None
    """Filters of this corpus, where they differ from `corpus.filters`."""
    streaming: bool = False
    """Read the corpus while training, without preparing it on disk: all of `train` or none."""


class DatasetSource(TextSource):
    """Parallel text in a repository of the Hugging Face hub, or in a local folder with the same layout."""

    dataset: str = Field(min_length=1)
    """Hub id, or a local folder."""
    subset: str | None = None
    """Configuration of the dataset, such as `en-it`."""
    revision: str | None = Field(default=None, min_length=1)
    """Branch, tag or commit; `null`: the newest commit of `main`, which the run records."""
    data_files: str | Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Files of the split, or patterns; `null`: those that the dataset declares."""
    split: str = "train"
    """Split of the dataset."""
    columns: TwoTexts | None = None
    """Source and target column, or keys of `translation`; `null`: by the languages."""


class FilesSource(TextSource):
    """Two text files. Line N of one file is the translation of line N of the other."""

    files: TwoTexts
    """Source file and target file; `.gz`, `.zst`, `.bz2` and `.xz` are decompressed."""


class FileSource(TextSource):
    """One file with both sides."""

    file: str = Field(min_length=1)
    """File of one of [these formats](data.md#formats)."""
    columns: TwoColumns | None = None
    """Names, numbers from 1 or language codes of both sides; `null`: by the languages, or the first two."""
    format: FormatName | None = None
    """Format of a [table](data.md#tables); `null`: by the suffix."""


class FolderSource(TextSource):
    """All files of one format in a folder, such as the catalogues of a program or the memories of a project."""

    folder: str = Field(min_length=1)
    """Folder whose `.po`, `.tmx` or `.xlf` files are read, in the order of their names; or a pattern of files:
    `po/**/it.po`."""
    columns: TwoColumns | None = None
    """Source and target column, as for `file`."""
    format: FormatName | None = None
    """Format of the files, as for `file`."""
    skip_damaged: bool = False
    """Skip damaged files, and count them; `false`: they are an error."""

    @property
    def root(self) -> Path:
        """Folder, or the part of a pattern without wildcards; a folder may be called `po [it]`."""
        path = Path()
        for part in Path(self.folder).parts:
            if set("*?[").intersection(part) and not (path / part).is_dir():
                break
            path /= part
        return path


class BuiltinSource(TextSource):
    """A corpus that is part of `mt` and needs no download."""

    builtin: Literal["phrasebook-en-it", "reverse-words"]
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus."""


class MonolingualText(Section):
    """Text of one language, with a sentence per line."""

    file: str | Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
    """Text file, or a list of them; `.gz`, `.zst`, `.bz2` and `.xz` are decompressed."""
    translate_with: str | None = Field(default=None, min_length=1)
    """Run or folder of another engine that translates the text once; `null`: the model in training, in rounds."""

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,) if isinstance(self.file, str) else self.file


class MonolingualConfig(Section):
    """Text of one language, whose lines become targets of training pairs with translations as sources."""

    target: MonolingualText | None = None
    """Text in the target language."""
    source: MonolingualText | None = None
    """Text in the source language, for better translations of the text in the target language."""

    @without_problems
    def _has_a_text(self) -> Iterator[str]:
        if self.target is None and self.source is None:
            yield "target: missing; name a text, such as {file: mono.txt}"

    @property
    def texts(self) -> dict[str, MonolingualText]:
        """Texts by side, the target first."""
        return {side: text for side in ("target", "source") if (text := getattr(self, side)) is not None}

    @property
    def sides_of_rounds(self) -> list[str]:
        """Sides of the texts that the model in training translates."""
        return [side for side, text in self.texts.items() if text.translate_with is None]


class HeldOut(Section):
    """A share of `train`, held out by the text of each pair; pairs with a held-out sentence are dropped.

    Pairs of sources with a tag that names no language (`<bt>`) or a weight above 1 (a glossary) are not held out.
    """

    fraction: float = Field(gt=0, lt=1)
    """Share of the other pairs, reached approximately; `training.seed` does not change the choice."""


Source = (
    Annotated[DatasetSource, Tag("<dataset>")]
    | Annotated[FilesSource, Tag("<files>")]
    | Annotated[FileSource, Tag("<file>")]
    | Annotated[FolderSource, Tag("<folder>")]
    | Annotated[BuiltinSource, Tag("<builtin>")]
)
"""Kinds of corpus source, each with the key that selects it; `corpus/source_rows.py` has an entry for each."""
_Share = Annotated[HeldOut, Tag("<fraction>")]

KINDS: Mapping[str, type[Section]] = {mark.tag: kind for kind, mark in map(get_args, (*get_args(Source), _Share))}
"""Kinds of corpora by tag, which is the key that selects a kind, in angle brackets."""


def _kind_of(value: Any) -> str | None:
    """Tag of a tree or, in serialisation, of a model."""
    keys = value if isinstance(value, Mapping) else getattr(type(value), "__annotations__", ())
    return next((tag for tag in KINDS if tag.strip("<>") in keys), None)


def _one_or_more(kind: Any) -> BeforeValidator:
    schema = kind | Annotated[tuple[kind, ...], Field(min_length=1)]
    return BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else [value], json_schema_input_type=schema
    )


_selected_by_key = Discriminator(
    _kind_of,
    custom_error_type="source",
    custom_error_message="a corpus is a mapping with one of the keys "
    + ", ".join(tag.strip("<>") for tag, kind in KINDS.items() if kind is not HeldOut),
)
_Source = Annotated[Source, _selected_by_key]
_SourceOrShare = Annotated[Source | _Share, _selected_by_key]
_not_empty = Field(strict=False, min_length=1)
Sources = Annotated[tuple[_Source, ...], _not_empty, _one_or_more(_Source)]
SourcesOrShare = Annotated[tuple[_SourceOrShare, ...], _not_empty, _one_or_more(_SourceOrShare)]
