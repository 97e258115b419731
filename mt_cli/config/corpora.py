"""The `corpus` section: where parallel text comes from, what is left out of it, and in what proportions it is mixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)


class Section(BaseModel):
    """A part of a config: immutable, complete, without unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _fits_a_machine(cls, value: object) -> object:
        if type(value) is int and abs(value) >= _TOO_LARGE:
            raise ValueError(f"found {_shortened(value)}; it should be less than {_TOO_LARGE:,}")
        texts = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(text, str) and "\0" in text for text in texts):
            raise ValueError("found a NUL character, which no name has")
        return value


_TOO_LARGE = 2**31


def _shortened(number: int) -> str:
    """A number as far as people read it; turning a really long one into text would take minutes."""
    return str(number) if number.bit_length() < 128 else f"a number of {number.bit_length():,} bits"


class FilterConfig(Section):
    """What is left out of training pairs; `false` or `null` turns a filter off.

    A dropped pair is counted under the first filter that caught it, in the order in which they stand here. Pairs with
    a blank side are always left out. Validation and test pairs are never filtered otherwise.
    """

    control_characters: bool = True
    """NUL bytes and other control characters; tabs and line ends count as spaces."""
    garbled: bool = True
    """Replacement characters (U+FFFD), and UTF-8 that was once read as Latin-1 (`Ã©` for `é`)."""
    identical: bool = True
    """Pairs whose sides are the same text."""
    max_characters: int | None = Field(default=2000, ge=1)
    """Pairs with a longer side."""
    max_length_ratio: float | None = Field(default=4.0, gt=1)
    """Pairs with one side this many times as long as the other, in characters, 10 being added to both."""
    min_script_share: float | None = Field(default=0.5, gt=0, le=1)
    """Pairs with a smaller share of letters in the language's script, on either side; languages whose script is not
    known to `mt` are not checked."""
    wrong_language: bool = True
    """Pairs with a side that has three common words of another language and none of its own; 20 languages are known."""
    duplicates: bool = True
    """Pairs that stood in the corpus, or in one before it in the list, already."""
    max_targets_per_source: int | None = Field(default=None, ge=1)
    """Pairs whose source has had this many other targets already."""
    overlap: bool = True
    """Pairs with a side that is a sentence of `valid`, `test` or `extra_tests`."""


class TextSource(Section):
    """What all kinds of corpora have in common."""

    name: str | None = Field(default=None, min_length=1)
    """What reports call it; None: the name of its file, dataset or generator."""
    languages: Annotated[tuple[str, str], Field(strict=False)] | None = None
    """Source and target language where they are not those of the config, as in a multilingual model."""
    tag: str | None = Field(default=None, pattern=r"^\S+$", max_length=50)
    """A token put before each source sentence, such as `<2it>` or `<bt>`; `mt translate --tag` puts it too."""
    weight: float | None = Field(default=None, gt=0, le=1000)
    """How often each pair is seen per epoch (of a stream: its relative share); None: once, or by `temperature`."""
    filters: FilterConfig | None = None
    """Filters of this corpus alone, as far as they differ from `corpus.filters`."""
    streaming: bool = False
    """Read on the go, never as a whole: for corpora that are too large to prepare. All of `train`, or none of it."""


class DatasetSource(TextSource):
    """Parallel text read with Hugging Face `datasets`."""

    dataset: str = Field(min_length=1)
    """Hub id, or a local folder with the same layout."""
    subset: str | None = None
    """Configuration of the dataset, such as `en-it`."""
    split: str = "train"
    """Split of the dataset; slices such as `train[:1000]` work too, except in a stream."""
    columns: Annotated[tuple[str, str], Field(strict=False)] | None = None
    """Source and target column; None: a `translation` column, else the columns named like the languages."""


class FilesSource(TextSource):
    """Two text files, line N of one being the translation of line N of the other."""

    files: Annotated[tuple[str, str], Field(strict=False)]
    """Source file and target file; `.gz` and `.zst` are unpacked."""


class FileSource(TextSource):
    """One file that holds both sides."""

    file: str = Field(min_length=1)
    """A `.tsv`, `.csv`, `.jsonl`, `.parquet`, `.tmx` or `.po` file; but for Parquet also `.gz` and `.zst`."""
    columns: Annotated[tuple[str, str], Field(strict=False)] | None = None
    """Source and target column of a table; None: `translation`, the columns named like the languages, or in a `.tsv` or
    `.csv` without such a heading the first two."""


class BuiltinSource(TextSource):
    """A corpus generated by the program itself, without a download."""

    builtin: Literal["phrasebook-en-it", "reverse-words"]
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus."""


class HeldOut(Section):
    """A seeded share of `train` that is not trained on, nor any pair that has a sentence of it."""

    fraction: float = Field(gt=0, lt=1)
    """Share of the pairs, between 0 and 1."""


Source = DatasetSource | FilesSource | FileSource | BuiltinSource

KINDS: Mapping[str, type[Section]] = {
    "<dataset>": DatasetSource,
    "<files>": FilesSource,
    "<file>": FileSource,
    "<builtin>": BuiltinSource,
    "<fraction>": HeldOut,
}
"""The kinds of corpora; the key that names one stands between the angles."""


def _kind_of_source(value: Any) -> str | None:
    """The union member that a source's own key names; pydantic calls it with trees and with models."""
    for kind in KINDS:
        key = kind.strip("<>")
        if (isinstance(value, Mapping) and key in value) or hasattr(value, key):
            return kind
    return None


def _chosen_by_key(*keys: str) -> Discriminator:
    return Discriminator(
        _kind_of_source,
        custom_error_type="source",
        custom_error_message=f"a corpus is a mapping with one of the keys {', '.join(keys)}",
    )


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


_Source = Annotated[
    Annotated[DatasetSource, Tag("<dataset>")]
    | Annotated[FilesSource, Tag("<files>")]
    | Annotated[FileSource, Tag("<file>")]
    | Annotated[BuiltinSource, Tag("<builtin>")],
    _chosen_by_key("dataset", "files", "file", "builtin"),
]
_SourceOrShare = Annotated[
    Annotated[HeldOut, Tag("<fraction>")] | Annotated[_Source, Tag("<source>")],
    Discriminator(lambda value: "<fraction>" if _kind_of_source(value) == "<fraction>" else "<source>"),
]
_Sources = Annotated[
    tuple[_Source, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=_Source | tuple[_Source, ...]),
]
_SourcesOrShare = Annotated[
    tuple[_SourceOrShare, ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=_SourceOrShare | tuple[_SourceOrShare, ...]),
]


class CorpusConfig(Section):
    """What is trained on, chosen by and tested on. Each corpus is one source or a list of them."""

    source: str = Field(min_length=1)
    """Language translated from, as the data names it (`en`)."""
    target: str = Field(min_length=1)
    """Language translated into."""
    train: _Sources
    """Pairs to learn from; the tokenizers are trained on them alone."""
    valid: _SourcesOrShare
    """Pairs that choose the best checkpoint; `{fraction: 0.1}` holds out a seeded share of `train`."""
    test: _Sources | None = None
    """Pairs that are scored once, at the end."""
    extra_tests: dict[str, _Sources] = {}
    """Further named test sets, scored at the end as well."""
    filters: FilterConfig = FilterConfig()
    """What is left out of `train`."""
    temperature: float | None = Field(default=None, ge=1)
    """Mix the corpora of `train` in shares proportional to their sizes to the power of 1/temperature; 1 leaves the
    shares as they are, larger values make them more equal."""
    max_tokens: int = Field(default=256, ge=1)
    """Pairs with a side of more tokens are left out, and counted."""
    shuffle_buffer: int = Field(default=100_000, ge=1)
    """Pairs of a stream that are held, and shuffled, at a time."""

    @model_validator(mode="before")
    @classmethod
    def _filters_of_a_source_complete_those_of_the_corpus(cls, tree: Any) -> Any:
        common = tree.get("filters") if isinstance(tree, Mapping) else None
        if not isinstance(common, Mapping) or "train" not in tree:
            return tree
        train = [
            {**source, "filters": {**common, **source["filters"]}}
            if isinstance(source, Mapping) and isinstance(source.get("filters"), Mapping)
            else source
            for source in _as_list(tree["train"])
        ]
        return {**tree, "train": train}

    @field_validator("source", "target", mode="before")
    @classmethod
    def _language_is_text(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(
                f"YAML reads this word without quotes as {str(value).lower()}; "
                f'write it in quotes: "{"yes" if value else "no"}"'
            )
        return value

    @field_validator("valid")
    @classmethod
    def _share_stands_alone(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(value) > 1 and any(isinstance(source, HeldOut) for source in value):
            raise ValueError("a held-out fraction cannot stand in a list with other corpora")
        return value

    @field_validator("valid", "test", "extra_tests")
    @classmethod
    def _only_training_corpora_are_mixed(cls, value: Any) -> Any:
        groups = value.values() if isinstance(value, dict) else [value or ()]
        for source in (source for group in groups for source in group if isinstance(source, TextSource)):
            for key in ("weight", "filters", "streaming"):
                if getattr(source, key):
                    raise ValueError(f"only corpora of train have `{key}`; valid and test are taken whole")
        return value

    @field_validator("extra_tests")
    @classmethod
    def _split_names_are_free(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := {"train", "valid", "test"} & value.keys():
            raise ValueError(f"{', '.join(sorted(taken))}: the name is taken, choose another")
        if odd := [name for name in value if not name or "/" in name or "\\" in name or name.startswith(".")]:
            raise ValueError(f"{odd[0]!r}: a name without slashes, please, which does not begin with a dot")
        return value

    @model_validator(mode="after")
    def _mixture_is_clear(self) -> CorpusConfig:
        if self.temperature is not None and any(source.weight is not None for source in self.train):
            raise ValueError("temperature: it sets the weights of all corpora; leave out `weight` or `temperature`")
        if len({source.streaming for source in self.train}) > 1:
            raise ValueError("train: set `streaming: true` for all of its corpora or for none")
        if self.is_streaming and self.temperature is not None:
            raise ValueError("temperature: the sizes of streams are not known; give each a `weight`")
        if self.is_streaming and isinstance(self.valid[0], HeldOut):
            raise ValueError("valid: a stream cannot be parted beforehand; name a corpus of its own")
        names = [source.name for source in self.train if source.name]
        if len(set(names)) < len(names):
            raise ValueError("train: two corpora have the same name")
        return self

    @property
    def is_streaming(self) -> bool:
        """Whether the training corpora are read on the go."""
        return self.train[0].streaming

    def filters_of(self, source: TextSource) -> FilterConfig:
        """A training corpus' own filters, which are complete, or else those of all."""
        return source.filters or self.filters

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of all corpora, each once, in order."""
        groups = (self.train, self.valid, self.test or (), *self.extra_tests.values())
        sources = (source for group in groups for source in group if isinstance(source, TextSource))
        return tuple(dict.fromkeys(source.tag for source in sources if source.tag))
