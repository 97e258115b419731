"""Tags that ask for a target language, and corpora of several directions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mt_cli.config.corpora import CorpusConfig
    from mt_cli.config.sources import Source

TO_TARGET, DIRECTION = "to_target", "direction"
"""Values of `tag` that stand for a tag with the target language, or with both languages."""
_TARGET = re.compile(r"<2(.+)>|>>(.+)<<|<[^<>\s]+>([^<>\s]+)>")
"""A tag with a target language, written by `mt` or by Marian models of OPUS-MT, or a tag with both languages."""
_DIRECTION = re.compile(r"<([^<>\s]+)>([^<>\s]+)>")


def tag_of(language: str) -> str:
    """Tag that asks for a translation into a language: `<2gn>` (Johnson et al. 2017)."""
    return f"<2{language}>"


def tag_of_direction(source: str, target: str) -> str:
    """Tag with both languages, for models such as M2M100 and NLLB: `<eng_Latn>fao_Latn>`."""
    return f"<{source}>{target}>"


def direction_of(tag: str) -> tuple[str, str] | None:
    """Source and target language in a tag with both; None for other tags."""
    match = _DIRECTION.fullmatch(tag)
    return (match[1], match[2]) if match else None


def synthetic_tag_of(language: str) -> str:
    """Tag of a translated text whose target is an original one (Caswell et al. 2019, "Tagged Back-Translation")."""
    return f"<bt>{tag_of(language)}"


def targets_of(tags: Sequence[str]) -> list[str]:
    """Target languages that tags of a model ask for."""
    return [match[1] or match[2] or match[3] for tag in tags if (match := _TARGET.fullmatch(tag))]


@dataclass(frozen=True)
class Tagging:
    """Tags of a model, and the default tag of sentences without one."""

    tags: tuple[str, ...] = ()
    default: str | None = None
    """Tag of sentences if the user chooses none."""
    is_required: bool = False
    """True if every training sentence had a tag."""
    languages: Mapping[str, str] = field(default_factory=dict)
    """Target languages of tags that do not name a language."""
    is_one_way: bool = False
    """True if other directions than the default one only serve its training."""

    @property
    def targets(self) -> list[str]:
        """Target languages to choose from."""
        if self.is_one_way and self.default and (target := self.target_of(self.default)):
            return [target]
        return list(dict.fromkeys(filter(None, map(self.target_of, self.tags))))

    def into(self, language: str) -> str | None:
        """Tag that asks for a translation into a language; None if there is none."""
        return next((tag for tag in self.tags if self.target_of(tag) == language), None)

    def target_of(self, tag: str) -> str | None:
        """Target language that a tag asks for; None if it asks for none."""
        return self.languages.get(tag) or next(iter(targets_of([tag])), None)

    def direction(self, tag: str | None, languages: tuple[str, str]) -> tuple[str, str]:
        """Source and target language of texts with a tag, by the languages of the model."""
        if tag and (pair := direction_of(tag)):
            return pair
        target = (self.target_of(tag) if tag else None) or languages[1]
        return (languages[0] if target != languages[0] else languages[1]), target

    def describe(self) -> str:
        """Tags, sorted, and the default, as the end of a message."""
        default = f" ({self.default} before a sentence without one)" if self.default else ""
        return f"{'the tags ' if self.tags else ''}{', '.join(sorted(self.tags)) or 'no tags'}{default}"

    @property
    def of_corpora(self) -> Tagging:
        """Tagging of sentences of corpora, which have their tags already."""
        return Tagging(self.tags)


NO_TAGS = Tagging()


def written_out(corpus: CorpusConfig) -> CorpusConfig:
    """Expand `both_directions` and `tag` into one source per direction, with its tag.

    With `both_directions`, each list of sources is followed by the same sources with `reverse`. The own tag of a source
    goes before that of its direction, as one tag: `<bt><2en>`. With `monolingual`, `train` also has the reverse
    direction, unless another model translates the only text, which is in the target language. Raises ValueError if a
    direction would have no tag of its own, or if both directions are asked for beside `monolingual`.
    """
    if corpus.both_directions and corpus.monolingual:
        raise ValueError("monolingual: it adds the reverse direction, for its texts alone; remove `both_directions`")
    groups = corpus.groups
    tags = [source.tag or "" for sources in groups.values() for source in sources]
    # With the tag of a language, the sources were written out before.
    is_written = any(tag.endswith(tuple(map(tag_of, corpus.languages))) for tag in tags)
    texts = None if is_written else corpus.monolingual
    tag = TO_TARGET if texts and corpus.tag is None else corpus.tag
    if not corpus.both_directions and not {TO_TARGET, DIRECTION} & {tag, *tags}:
        return corpus
    for name, sources in groups.items():
        written = tuple(_with_tag(source, tag, corpus.languages) for source in sources)
        if corpus.both_directions or (texts and name == "train" and (texts.source or texts.sides_of_rounds)):
            reverse = tuple(_with_tag(_reversed(source, corpus.languages), tag, corpus.languages) for source in sources)
            if any(one.tag in (None, two.tag) for one, two in zip(reverse, written, strict=True)):
                raise ValueError("both_directions: set `tag: to_target` beside it (`direction` for M2M100 and NLLB)")
            written += reverse
        groups[name] = written
    return corpus.with_groups(groups, both_directions=False, tag=None)


def _reversed(source: Source, default: tuple[str, str]) -> Source:
    changes: dict[str, Any] = {"languages": (source.languages or default)[::-1], "reverse": not source.reverse}
    if source.name:
        changes["name"] = f"{source.name} reversed"
    if source.tag and targets_of([source.tag]):  # The tag of a language is not that of the other one.
        changes["tag"] = DIRECTION if direction_of(source.tag) else TO_TARGET
    return source.model_copy(update=changes)


def _with_tag(source: Source, tag: str | None, default: tuple[str, str]) -> Source:
    own, languages = source.tag, source.languages or default
    written = own
    if own in (None, TO_TARGET, DIRECTION):
        tag = own or tag
        written = tag_of_direction(*languages) if tag == DIRECTION else tag_of(languages[1]) if tag else None
    elif tag == TO_TARGET and not targets_of([own]):
        written = f"{own}{tag_of(languages[1])}"
    return source if written == own else source.model_copy(update={"tag": written})
