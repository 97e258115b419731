"""The `corpus` section: where parallel text comes from, how it is filtered, and in what proportions it is mixed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from mt_cli.config.checks import without_problems
from mt_cli.config.directions import targets_of, written_out


class Section(BaseModel):
    """A section of a config: immutable, complete, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _fits_a_machine(cls, value: object) -> object:
        if type(value) is int and abs(value) >= _TOO_LARGE:
            # Converting a very long number to text would take minutes.
            bits = value.bit_length()
            shown = str(value) if bits < 128 else f"a number of {bits:,} bits"
            raise ValueError(f"found {shown}; it should be less than {_TOO_LARGE:,}")
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise ValueError("found a NUL character, which is not allowed in names")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _words_of_yaml_1_1_are_booleans(cls, value: object, info: ValidationInfo) -> object:
        """The word in an option that is no text."""
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, str) and bool in (annotation, *get_args(annotation)):
            return _BOOLEANS.get(value.lower(), value)
        return value


_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
_TOO_LARGE = 2**31
_TMX = re.compile(r"\.tmx(\.gz|\.zst)?$")
_TwoTexts = Annotated[tuple[str, str], Field(strict=False)]


class FilterConfig(Section):
    """Filters of training pairs. `false` or `null` turns a filter off.

    A dropped pair is counted under the first filter that drops it, in this order. Pairs with a blank side are always
    dropped. Validation and test pairs are not filtered otherwise.
    """

    control_characters: bool = True
    """Drop pairs with NUL bytes or other control characters; tabs and line ends count as spaces."""
    garbled: bool = True
    """Drop pairs with replacement characters (U+FFFD), or with UTF-8 decoded as Latin-1 (`Ã©` for `é`)."""
    identical: bool = True
    """Drop pairs whose sides are the same text."""
    max_characters: int | None = Field(default=2000, ge=1)
    """Maximum length of a side in characters."""
    max_length_ratio: float | None = Field(default=4.0, gt=1, le=1_000_000_000)
    """Maximum ratio of the lengths of the longer and the shorter side in characters, after adding 10 to both."""
    min_script_share: float | None = Field(default=0.5, gt=0, le=1)
    """Minimum share of letters in the script of the language, on either side. Languages whose script `mt` does not
    know are not checked."""
    wrong_language: bool = True
    """Drop pairs with a side that has three common words of another language and none of its own. 20 languages are
    known."""
    other_orthography: bool = False
    """Drop stretches of 250 pairs or more in which a side has other letters than `valid` (or, if that is held
    out, `test`), as in an old dictionary."""
    duplicates: bool = True
    """Drop repeated pairs, in this corpus or in one earlier in the list."""
    max_targets_per_source: int | None = Field(default=None, ge=1)
    """Maximum number of pairs with the same source sentence."""
    overlap: bool = True
    """Drop pairs with a side that is a sentence of `valid`, `test` or `extra_tests`."""


class TextSource(Section):
    """Options of every kind of corpus source."""

    name: str | None = Field(default=None, min_length=1)
    """Name in reports; `null`: the name of the file, dataset or built-in corpus."""
    languages: _TwoTexts | None = None
    """Source and target language if they differ from those of the config, as in a multilingual model."""
    tag: str | None = Field(default=None, pattern=r"^\S+$", max_length=50)
    """Token prepended to each source sentence, such as `<bt>`; `to_target`: the target language, as `<2it>`. See also
    `mt translate --to` and `--tag`."""
    reverse: bool = False
    """Exchange the sides: the second text is the source. `languages` are those after the exchange."""
    weight: float | None = Field(default=None, ge=1e-9, le=1000)
    """Number of times each pair is seen per epoch (for a stream: its relative share); `null`: once, or by
    `temperature`."""
    filters: FilterConfig | None = None
    """Filters of this corpus, where they differ from `corpus.filters`."""
    streaming: bool = False
    """Read the corpus while training, without preparing it on disk: for very large corpora. Set it for all corpora of
    `train` or for none."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        columns = getattr(self, "columns", None)
        if columns is not None and columns[0] == columns[1]:
            raise ValueError(f"columns: both are {columns[0]!r}; name two columns")
        return self


class DatasetSource(TextSource):
    """Parallel text read with Hugging Face `datasets`."""

    dataset: str = Field(min_length=1)
    """Hub id, or a local folder with the same layout."""
    subset: str | None = None
    """Configuration of the dataset, such as `en-it`."""
    revision: str | None = Field(default=None, min_length=1)
    """Branch, tag or commit of a hub id; `null`: the newest commit of `main` when it is first downloaded."""
    data_files: str | Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Files of the split, as paths or patterns inside the dataset; `null`: those that the dataset names itself."""
    split: str = "train"
    """Split of the dataset, or, except in a stream, a slice such as `train[:1000]`."""
    columns: _TwoTexts | None = None
    """Source and target column, or keys of `translation`; `null`: the keys of `translation` or, without it, the columns
    that are named like the languages."""


class FilesSource(TextSource):
    """Two text files. Line N of one file is the translation of line N of the other."""

    files: _TwoTexts
    """Source file and target file; `.gz` and `.zst` are decompressed."""


class MarkedUpSource(TextSource):
    """Options of files whose format has markup."""

    skip_damaged: bool = False
    """Skip damaged files of a folder and damaged units of a `.tmx` file, and count them; `false`: they are an error."""
    inline_codes: Literal["drop", "keep"] = "drop"
    """Inline codes of `.tmx`: native markup and placeholders such as `%s`. `keep`: their content is text."""


class FileSource(MarkedUpSource):
    """One file with both sides."""

    file: str = Field(min_length=1)
    """A `.tsv`, `.csv`, `.jsonl`, `.parquet`, `.tmx` or `.po` file; except Parquet also with `.gz` or `.zst`."""
    columns: _TwoTexts | None = None
    """Source and target column of a table, or keys of `translation`; `null`: the keys of `translation` or the columns
    that are named like the languages, or the first two of a `.tsv` or `.csv` file without such a header. In a `.tmx`
    file, the codes of the two languages, if they differ from those of the config."""

    @without_problems
    def _options_fit_the_format(self) -> Iterator[str]:
        if not _TMX.search(self.file):
            if self.skip_damaged:
                yield "skip_damaged: only a .tmx file has units that can be skipped; a folder, files"
            if self.inline_codes != "drop":
                yield "inline_codes: only .tmx files have inline codes"


class FolderSource(MarkedUpSource):
    """All files of one format in a folder, such as the catalogues of a program or the memories of a project."""

    folder: str = Field(min_length=1)
    """Folder, which is searched with all folders in it."""
    pattern: str = Field(min_length=1)
    """Names of the files inside the folder, such as `**/*.po`; they are read in the order of their names."""
    columns: _TwoTexts | None = None
    """Source and target column, as for `file`."""


class BuiltinSource(TextSource):
    """A corpus that is part of `mt` and needs no download."""

    builtin: Literal["phrasebook-en-it", "reverse-words"]
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus."""


class HeldOut(Section):
    """A seeded share of `train` that is held out. Other pairs that share a sentence with it are dropped."""

    fraction: float = Field(gt=0, lt=1)
    """Share of the pairs, between 0 and 1."""
    seed: int | None = Field(default=None, ge=0, lt=2**31)
    """Seed of the choice; `null`: `training.seed`. Give one to train several seeds with the same validation pairs."""


Source = (
    Annotated[DatasetSource, Tag("<dataset>")]
    | Annotated[FilesSource, Tag("<files>")]
    | Annotated[FileSource, Tag("<file>")]
    | Annotated[FolderSource, Tag("<folder>")]
    | Annotated[BuiltinSource, Tag("<builtin>")]
)
"""The kinds of corpus source, each with the key that selects it; `corpus/sources.py` has an entry for each."""
_Share = Annotated[HeldOut, Tag("<fraction>")]

KINDS: Mapping[str, type[Section]] = {mark.tag: kind for kind, mark in map(get_args, (*get_args(Source), _Share))}
"""The kinds of corpora by tag: the key that selects a kind, in angle brackets."""


def _kind_of(value: Any) -> str | None:
    """The tag of a tree or, in serialisation, of a model."""
    keys = value if isinstance(value, Mapping) else getattr(type(value), "__annotations__", ())
    return next((tag for tag in KINDS if tag.strip("<>") in keys), None)


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _one_or_more(kind: Any) -> BeforeValidator:
    schema = kind | Annotated[tuple[kind, ...], Field(min_length=1)]
    return BeforeValidator(_as_list, json_schema_input_type=schema)


_selected_by_key = Discriminator(
    _kind_of,
    custom_error_type="source",
    custom_error_message="a corpus is a mapping with one of the keys "
    + ", ".join(tag.strip("<>") for tag, kind in KINDS.items() if kind is not HeldOut),
)
_Source = Annotated[Source, _selected_by_key]
_SourceOrShare = Annotated[Source | _Share, _selected_by_key]
_not_empty = Field(strict=False, min_length=1)
_Sources = Annotated[tuple[_Source, ...], _not_empty, _one_or_more(_Source)]
_SourcesOrShare = Annotated[tuple[_SourceOrShare, ...], _not_empty, _one_or_more(_SourceOrShare)]


_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"


def _with_common_filters(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tree of `corpus` in which the filters of a source are completed by those of the corpus."""
    common = tree.get("filters")
    if not isinstance(common, Mapping) or "train" not in tree:
        return tree
    train = [
        {**source, "filters": {**common, **source["filters"]}}
        if isinstance(source, Mapping) and isinstance(source.get("filters"), Mapping)
        else source
        for source in _as_list(tree["train"])
    ]
    return {**tree, "train": train}


class CorpusConfig(Section):
    """Training, validation and test corpora. Each is one source or a list of sources."""

    source: str = Field(min_length=1, pattern=_ONE_LINE)
    """Source language, as named in the data (`en`)."""
    target: str = Field(min_length=1, pattern=_ONE_LINE)
    """Target language."""
    train: _Sources
    """Training pairs. The tokenizers are trained on them alone."""
    valid: _SourcesOrShare
    """Validation pairs, which select the best checkpoint; `{fraction: 0.1}` holds out a seeded share of `train`."""
    test: _Sources | None = None
    """Test pairs, scored once at the end."""
    extra_tests: dict[str, _Sources] = {}
    """More test sets by name, also scored at the end."""
    filters: FilterConfig = FilterConfig()
    """Filters of `train`."""
    tag: Literal["to_target"] | None = None
    """`to_target`: each corpus without a `tag` has one of its target language, such as `<2it>`."""
    both_directions: bool = False
    """Train, validate and test in both directions: each corpus is used once more with `reverse`."""
    temperature: float | None = Field(default=None, ge=1, le=1_000_000)
    """Sample the corpora of `train` in proportion to their sizes to the power of 1/temperature; if there are several
    directions, the directions. 1 keeps the proportions; larger values make them more equal."""
    max_tokens: int = Field(default=256, ge=1)
    """Maximum length of a side in tokens. Longer pairs are dropped and counted."""
    shuffle_buffer: int = Field(default=100_000, ge=1)
    """Number of pairs of a stream that are held in memory and shuffled."""

    @model_validator(mode="before")
    @classmethod
    def _short_forms_are_written_out(cls, tree: Any) -> Any:
        return _with_common_filters(written_out(tree)) if isinstance(tree, Mapping) else tree

    @field_validator("valid")
    @classmethod
    def _share_is_alone(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(value) > 1 and any(isinstance(source, HeldOut) for source in value):
            raise ValueError("a held-out fraction cannot be in a list with other corpora")
        return value

    @field_validator("valid", "test", "extra_tests")
    @classmethod
    def _only_training_corpora_are_mixed(cls, value: Any) -> Any:
        groups = value.values() if isinstance(value, dict) else [value or ()]
        for source in (source for group in groups for source in group if isinstance(source, TextSource)):
            for key in ("weight", "filters", "streaming"):
                if getattr(source, key):
                    raise ValueError(f"only corpora of train have `{key}`; valid and test are used whole")
        return value

    @field_validator("extra_tests")
    @classmethod
    def _split_names_are_free(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := {"train", "valid", "test"} & value.keys():
            raise ValueError(f"{', '.join(sorted(taken))}: the name is taken, choose another")
        if odd := [name for name in value if not name or "/" in name or "\\" in name or name.startswith(".")]:
            raise ValueError(f"{odd[0]!r}: use a name without slashes that does not begin with a dot")
        return value

    @without_problems
    def _mixture_is_clear(self) -> Iterator[str]:
        if self.temperature is not None and any(source.weight is not None for source in self.train):
            yield "temperature: it sets the weights of all corpora; remove `weight` or `temperature`"
        if len({source.streaming for source in self.train}) > 1:
            yield "train: set `streaming: true` for all of its corpora or for none"
        if self.is_streaming and self.temperature is not None:
            yield "temperature: the sizes of streams are not known; give each a `weight`"
        if self.is_streaming and isinstance(self.valid[0], HeldOut):
            yield "valid: no share of a stream can be held out; name a separate corpus"
        is_compared = any(self.filters_of(source).other_orthography for source in self.train)
        if is_compared and (self.is_streaming or self.compared is None):
            yield "filters.other_orthography: it needs a `valid` or `test` of other text, and no streams"
        names = [source.name for source in self.train if source.name]
        if len(set(names)) < len(names):
            yield "train: two corpora have the same name"

    @property
    def groups(self) -> dict[str, tuple[Source, ...]]:
        """The sources of each corpus that has sources of its own."""
        valid = tuple(source for source in self.valid if not isinstance(source, HeldOut))
        groups = {"train": self.train, "valid": valid, "test": self.test or (), **self.extra_tests}
        return {name: sources for name, sources in groups.items() if sources}

    @property
    def compared(self) -> str | None:
        """The corpus with which the orthography of `train` is compared; None if no other text is named."""
        return next((name for name in ("valid", "test") if name in self.groups), None)

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language."""
        return self.source, self.target

    def languages_of(self, name: str) -> list[tuple[str, str]]:
        """Source and target language of each source of a corpus; of a held-out share, those of `train`."""
        return [source.languages or self.languages for source in self.groups.get(name, self.train)]

    def once(self, name: str) -> list[int]:
        """The numbers of the sources of a corpus, without those that are an earlier one with its sides exchanged."""
        sources = self.groups.get(name, self.train)  # A held-out share is in the sources of `train`.
        seen = [(source.model_dump(exclude={*TextSource.model_fields}), source.reverse) for source in sources]
        return [number for number, (text, is_reverse) in enumerate(seen) if (text, not is_reverse) not in seen[:number]]

    @property
    def has_reverse(self) -> bool:
        """Whether the sides of a corpus are exchanged, so that a sentence may be a source here and a target there."""
        return any(source.reverse for sources in self.groups.values() for source in sources)

    def held_out(self, training_seed: int) -> tuple[float, int] | None:
        """The share of `train` that is held out for `valid`, and the seed of the choice; None if `valid` is text."""
        share = self.valid[0]
        if not isinstance(share, HeldOut):
            return None
        return share.fraction, training_seed if share.seed is None else share.seed

    @property
    def is_streaming(self) -> bool:
        """Whether the training corpora are streams."""
        return self.train[0].streaming

    def filters_of(self, source: TextSource) -> FilterConfig:
        """The filters of a training corpus."""
        return source.filters or self.filters

    @property
    def has_target_tags(self) -> bool:
        """Whether each corpus of `train` has a tag that names a target language."""
        return all(targets_of([source.tag or ""]) for source in self.train)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all corpora, each once, in order."""
        sources = (source for group in self.groups.values() for source in group)
        return tuple(dict.fromkeys(source.tag for source in sources if source.tag))
