"""The section `corpus`: languages, corpora and their sources, and the proportions in which they are mixed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import regex
from pydantic import Field, model_validator

from mt_cli.config.base import Changeable, Section, without_problems
from mt_cli.config.sources import (
    FilterConfig,
    HeldOut,
    MonolingualConfig,
    Source,
    Sources,
    SourcesOrShare,
    TextSource,
)
from mt_cli.config.tags import Tagging, synthetic_tag_of, tag_of, targets_of, written_out

_REVERSE_WEIGHT = 0.5
_Pattern = Annotated[str, Field(pattern="^/.+/$")]
_ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"


def _texts_and_sides(sources: Sequence[Source]) -> list[tuple[dict[str, Any], bool]]:
    """What identifies the text of each source, and True if its sides are exchanged."""
    return [(source.model_dump(exclude={*TextSource.model_fields}), source.reverse) for source in sources]


class AugmentConfig(Section):
    """Shares of training pairs that are changed in each epoch to resemble what people type."""

    upper_case: float = Field(default=0.0, ge=0, le=1)
    """Both sides in CAPITAL LETTERS."""
    title_case: float = Field(default=0.0, ge=0, le=1)
    """Both sides With Each Word Capitalised."""
    no_final_punctuation: float = Field(default=0.0, ge=0, le=1)
    """Both sides without the full stop or other marks that end them."""
    typos: float = Field(default=0.0, ge=0, le=1)
    """A typing error in a word of the source, and in a tenth of its other words."""

    @without_problems
    def _cases_exclude_each_other(self) -> Iterator[str]:
        if self.upper_case + self.title_case > 1:
            yield "upper_case, title_case: a pair gets at most one of them; use shares with a sum of at most 1"

    @property
    def changes_case(self) -> bool:
        return self.upper_case + self.title_case > 0


def patterns_of(protect: Sequence[str]) -> list[str]:
    """Regular expressions, which are between slashes, among the values of `corpus.protect`."""
    return [value[1:-1] for value in protect if value.startswith("/")]


class CorpusConfig(Section):
    """Training, validation and test corpora. Each is one source or a list of sources."""

    source: str = Field(min_length=1, pattern=_ONE_LINE)
    """Source language, as named in the data (`en`)."""
    target: str = Field(min_length=1, pattern=_ONE_LINE)
    """Target language."""
    train: Sources
    """Training pairs, also of the tokenizers."""
    valid: SourcesOrShare
    """Validation pairs, which select the best checkpoint; `{fraction: 0.1}` holds out a share of `train`."""
    test: Sources | None = None
    """Test pairs, scored once at the end."""
    extra_tests: dict[str, Sources] = Field(default={})
    """More test sets by name, also scored at the end."""
    filters: FilterConfig = FilterConfig()
    """Filters of `train` ([list](data.md#filters))."""
    accept_processed: Changeable[bool] = False
    """Train on text with [marks of other programs](data.md#processed-and-damaged-text)."""
    tag: Literal["to_target", "direction"] | None = None
    """Give corpora a tag: `to_target` (`<2it>`, after an own one: `<bt><2it>`), or, to those without one, `direction`
    (`<en>it>`, for M2M100 and NLLB)."""
    both_directions: bool = False
    """Use each corpus once more, with its sides exchanged, for one model of both directions."""
    monolingual: MonolingualConfig | None = None
    """[Text of one language](few_pairs.md#5-add-text-in-one-language), from which training makes more pairs."""
    temperature: float | None = Field(default=None, ge=1, le=1_000_000)
    """Sample the corpora or directions of `train` by their sizes to the power of 1/temperature; 1: by size."""
    protect: tuple[Literal["markup", "urls", "emails", "dollars", "braces", "printf", "numbers"] | _Pattern, ...] = (
        Field(default=(), strict=False)
    )
    """Kinds of [spans](data.md#protected-spans) that translations keep as they are, or patterns: `/[A-Z]+-[0-9]+/`."""
    terms: bool = False
    """Train a model to use [glossaries](terms.md); with `tokenizer.shared`."""
    augment: AugmentConfig = AugmentConfig()
    """[Changes of pairs](data.md#capitals-typing-errors-and-missing-full-stops) that teach a model what people type."""
    max_tokens: int = Field(default=256, ge=1)
    """Maximum length of a side in tokens; longer pairs, which need memory, are dropped."""

    @without_problems
    def _evaluation_sets_are_whole(self) -> Iterator[str]:
        if len(self.valid) > 1 and any(isinstance(source, HeldOut) for source in self.valid):
            yield "valid: a held-out fraction cannot be in a list with other corpora"
        for name in self.extra_tests:
            if name in ("train", "valid", "test"):
                yield f"extra_tests: {name}: the name is taken, choose another"
            if not re.fullmatch(r"[^./\\][^/\\]*", name):
                yield f"extra_tests: {name!r}: use a name without slashes that does not begin with a dot"
        groups = {"valid": self.valid, "test": self.test or (), **self.extra_tests}
        options = [(name, key) for key in ("weight", "filters", "streaming") for name in groups]
        for name, key in options:
            if any(isinstance(source, TextSource) and getattr(source, key) for source in groups[name]):
                yield f"{name}: only corpora of train have `{key}`; valid and test are used whole"

    @model_validator(mode="after")
    def _short_forms_are_written_out(self) -> CorpusConfig:
        if any(source.filters for source in self.train):
            return written_out(self.model_copy(update={"train": tuple(map(self._with_filters, self.train))}))
        return written_out(self)

    def _with_filters(self, source: Source) -> Source:
        """Source whose filters, if it has some, are completed with the common ones."""
        if source.filters is None:
            return source
        common, own = (filters.model_dump(exclude_unset=True) for filters in (self.filters, source.filters))
        return source.model_copy(update={"filters": FilterConfig(**common | own)})

    @without_problems
    def _patterns_are_valid(self) -> Iterator[str]:
        for pattern in patterns_of(self.protect):
            try:
                regex.compile(pattern)
            except regex.error as error:
                yield f"protect: {f'/{pattern}/'!r:.80}: not a regular expression: {error}"

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
        exchanged = zip(self.train, self.exchanged, strict=True)
        chosen = [other for source, other in exchanged if self.filters_of(source).keep_likely]
        if chosen and self.is_streaming:
            yield "filters.keep_likely: the pairs of streams are not scored; leave it out, or `streaming`"
        elif None in chosen:
            yield "filters.keep_likely: it needs both directions; set `corpus.both_directions: true` and `corpus.tag`"

    @without_problems
    def _texts_fit(self) -> Iterator[str]:
        if self.monolingual is None:
            return
        if self.is_streaming:
            yield "monolingual: not with `streaming: true`; prepare the corpora of train on disk"
        directions = {self.languages, self.languages[::-1]}
        if not directions.issuperset(self.languages_of("train")):
            yield f"monolingual: all corpora of train must be in {self.source} and {self.target}"
        tags = [(source.tag or "", tag_of((source.languages or self.languages)[1])) for source in self.train]
        is_tagged = all(tag.endswith(of_target) for tag, of_target in tags)
        needs_reverse = bool(self.monolingual.sides_of_rounds)
        if not is_tagged or (needs_reverse and self.languages[::-1] not in self.languages_of("train")):
            yield "monolingual: it adds the reverse direction and tags by itself; remove `tag`"

    @property
    def weights(self) -> list[float]:
        """Times per epoch of each source of `train`; a reverse direction that only translates texts counts half."""
        is_one_way = self.monolingual is not None
        directions = zip(self.train, self.languages_of("train"), strict=True)
        return [
            (source.weight or 1.0) * (_REVERSE_WEIGHT if is_one_way and languages != self.languages else 1.0)
            for source, languages in directions
        ]

    @property
    def synthetic_directions(self) -> dict[str, tuple[str, str]]:
        """Source and target language of the pairs that training makes from texts of one language, by side."""
        sides = self.monolingual.texts if self.monolingual else ()
        return {side: self.languages if side == "target" else self.languages[::-1] for side in sides}

    @property
    def groups(self) -> dict[str, tuple[Source, ...]]:
        """Sources of each corpus; a held-out share has none."""
        valid = tuple(source for source in self.valid if not isinstance(source, HeldOut))
        groups = {"train": self.train, "valid": valid, "test": self.test or (), **self.extra_tests}
        return {name: sources for name, sources in groups.items() if sources}

    def with_groups(self, groups: Mapping[str, tuple[Source, ...]], **changes: Any) -> CorpusConfig:
        """Copy with these sources, in place of those of `groups`, and other changes."""
        extra = {name: sources for name, sources in groups.items() if name in self.extra_tests}
        own = {name: sources for name, sources in groups.items() if name not in extra}
        return self.model_copy(update={**own, "extra_tests": extra, **changes})

    @property
    def compared(self) -> str | None:
        """Corpus with which the spelling of `train` is compared; None if no other text is named."""
        return next((name for name in ("valid", "test") if name in self.groups), None)

    @property
    def languages(self) -> tuple[str, str]:
        return self.source, self.target

    def languages_of(self, name: str) -> list[tuple[str, str]]:
        """Source and target language of each source of a corpus; for a held-out share, of each source of `train`."""
        return [source.languages or self.languages for source in self.groups.get(name, self.train)]

    def once(self, name: str) -> list[int]:
        """Indices of the sources of a corpus, except sources that repeat an earlier one with its sides exchanged."""
        sources = self.groups.get(name, self.train)  # A held-out share is in the sources of `train`.
        seen = _texts_and_sides(sources)
        return [number for number, (text, is_reverse) in enumerate(seen) if (text, not is_reverse) not in seen[:number]]

    @property
    def exchanged(self) -> list[int | None]:
        """For each source of `train`, the index of the source that is the same text with its sides exchanged."""
        texts = _texts_and_sides(self.train)
        return [
            texts.index((text, not is_reverse)) if (text, not is_reverse) in texts else None
            for text, is_reverse in texts
        ]

    @property
    def held_out(self) -> float | None:
        """Fraction of `train` that is held out for `valid`; None if `valid` is text."""
        share = self.valid[0]
        return share.fraction if isinstance(share, HeldOut) else None

    def natural(self) -> list[bool]:
        """For each source of `train`, True if people wrote it as sentences, so that pairs of it may be held out.

        A tag that names no language marks text of another origin, such as back-translation, and a weight above one
        marks what must be learned, such as a glossary, unless every source has them.
        """
        tagged = [source.tag is not None and not targets_of([source.tag]) for source in self.train]
        weights = [source.weight or 1.0 for source in self.train]
        is_heavy = [weight > max(1.0, min(weights)) for weight in weights]
        natural = [not one and not other for one, other in zip(tagged, is_heavy, strict=True)]
        if self.monolingual is not None:  # Validation is in the direction that is asked for.
            directions = self.languages_of("train")
            natural = [one and pair == self.languages for one, pair in zip(natural, directions, strict=True)]
        return natural if any(natural) else [True] * len(natural)

    @property
    def has_protection(self) -> bool:
        """True if spans are protected, so that the vocabulary has reserved entries."""
        return bool(self.protect)

    @property
    def is_streaming(self) -> bool:
        return self.train[0].streaming

    def filters_of(self, source: TextSource) -> FilterConfig:
        return source.filters or self.filters

    @property
    def has_target_tags(self) -> bool:
        """True if each corpus of `train` has a tag in the form of `to_target`, possibly with another language."""
        return all(
            source.tag in [tag_of(language) for language in targets_of([source.tag or ""])] for source in self.train
        )

    @property
    def tagging(self) -> Tagging:
        """Tags of all corpora, and the default tag of a sentence without one.

        The default is the tag of the first of `test`, `valid` and `train` that has corpora from `source` to `target`.
        If none has, the first with corpora into `target` decides. There is no default if that set has several tags and
        none of them is for `target`, or if sentences of an evaluation set have no tag.
        """
        if not self.tags:
            return Tagging()
        is_required = all(source.tag for source in self.train)
        tags = self._tags_by_group(lambda languages: languages == self.languages)
        tags = tags or self._tags_by_group(lambda languages: languages[1] == self.target)
        deciding = next((tags[name] for name in ("test", "valid", "train") if name in tags), {None})
        by_target = tag_of(self.target)
        default = by_target if by_target in deciding else next(iter(deciding)) if len(deciding) == 1 else None
        if None in deciding.union(*(tags[name] for name in tags if name != "train")):
            default = None
        is_one_way = self.monolingual is not None and default == by_target
        return Tagging(self.tags, default, is_required, self._languages_of_tags(), is_one_way)

    def _languages_of_tags(self) -> dict[str, str]:
        """Target languages of tags, if there are several and `train` has exactly one tag for each."""
        pairs = dict.fromkeys((source.tag, (source.languages or self.languages)[1]) for source in self.train)
        tags, targets = (len({pair[side] for pair in pairs}) for side in (0, 1))
        is_one_to_one = tags == targets == len(pairs) > 1
        return {tag: target for tag, target in pairs if tag} if is_one_to_one else {}

    def _tags_by_group(self, is_chosen: Callable[[tuple[str, str]], bool]) -> dict[str, set[str | None]]:
        """Tags of the corpora whose languages are chosen, by group; groups without such a corpus are left out."""
        return {
            name: tags
            for name, group in self.groups.items()
            if (tags := {source.tag for source in group if is_chosen(source.languages or self.languages)})
        }

    @property
    def tags(self) -> tuple[str, ...]:
        sources = (source for group in self.groups.values() for source in group)
        synthetic = (synthetic_tag_of(target) for _, target in self.synthetic_directions.values())
        return tuple(dict.fromkeys([*(source.tag for source in sources if source.tag), *synthetic]))
