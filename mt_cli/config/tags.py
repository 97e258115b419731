"""Tags that ask for a target language, and corpora of several directions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

TO_TARGET, DIRECTION = "to_target", "direction"
"""Values of `tag` that stand for a tag with the target language, or with both languages."""
_TARGET = re.compile(r"<2(.+)>|>>(.+)<<|<[^<>\s]+>([^<>\s]+)>")
"""A tag with a target language, written by `mt` or by Marian models of OPUS-MT, or a tag with both languages."""
_DIRECTION = re.compile(r"<([^<>\s]+)>([^<>\s]+)>")
_GROUPS = ("train", "valid", "test")


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


def written_out(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Expand `both_directions` and `tag` in a tree of the section `corpus` into one source per direction, with its tag.

    With `both_directions`, each list of sources is followed by the same sources with `reverse`. The own tag of a source
    goes before that of its direction, as one tag: `<bt><2en>`. Values of a wrong type stay as they are, for validation
    to explain. With `monolingual`, `train` also has the reverse direction. Raises ValueError if a direction would have
    no tag of its own.
    """
    has_both, tag = tree.get("both_directions") is True, tree.get("tag")
    default = tree.get("source"), tree.get("target")
    has_texts = isinstance(tree.get("monolingual"), Mapping) and not _has_target_tags(tree)
    tag = TO_TARGET if has_texts and tag is None else tag
    tags = [tag, *(source.get("tag") for _, sources in _lists_of(tree) for source in sources)]
    if not has_both and TO_TARGET not in tags and DIRECTION not in tags:
        return tree
    changes: dict[str, Any] = {"both_directions": False, "tag": None if tag in (TO_TARGET, DIRECTION) else tag}
    extra_tests: dict[str, Any] = {}
    for name, sources in _lists_of(tree):
        written = [_with_tag(source, tag, default) for source in sources]
        if has_both or (has_texts and name == "train" and _needs_reverse(tree["monolingual"])):
            reverse = [_with_tag(_reversed(source, default), tag, default) for source in sources]
            if any(one.get("tag") in (None, two.get("tag")) for one, two in zip(reverse, written, strict=True)):
                raise ValueError(
                    "both_directions: set `tag: to_target` beside it, which tells the model the target language (`tag: "
                    "direction` for M2M100 and NLLB, whose corpora have no other tags)"
                )
            written += reverse
        (changes if name in _GROUPS else extra_tests)[name] = written
    return {**tree, **changes} | ({"extra_tests": {**tree["extra_tests"], **extra_tests}} if extra_tests else {})


def _has_target_tags(tree: Mapping[str, Any]) -> bool:
    """True if a corpus has a tag with one of the languages, as in a tree that was written out before."""
    own = tuple(tag_of(str(tree.get(side))) for side in ("source", "target"))
    return any(str(source.get("tag")).endswith(own) for _, sources in _lists_of(tree) for source in sources)


def _needs_reverse(texts: Mapping[str, Any]) -> bool:
    """True unless another model translates the only text, which is in the target language."""
    text = texts.get("target")
    return bool(texts.get("source")) or not (isinstance(text, Mapping) and text.get("translate_with"))


def _lists_of(tree: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """Sources of each corpus; a held-out share has none."""
    extra_tests = tree.get("extra_tests")
    groups: dict[str, Any] = {name: tree.get(name) for name in _GROUPS}
    groups |= extra_tests if isinstance(extra_tests, Mapping) else {}
    for name, value in groups.items():
        sources = list(value) if isinstance(value, list | tuple) else [value]
        if all(isinstance(source, Mapping) and "fraction" not in source for source in sources):
            yield name, sources


def _reversed(source: Mapping[str, Any], default: tuple[Any, Any]) -> Mapping[str, Any]:
    first, second = _languages_of(source, default)
    changes: dict[str, Any] = {"languages": [second, first], "reverse": not source.get("reverse", False)}
    if source.get("name"):
        changes["name"] = f"{source['name']} reversed"
    if targets_of([str(source.get("tag"))]):  # The tag of a language is not that of the other one.
        changes["tag"] = DIRECTION if direction_of(source["tag"]) else TO_TARGET
    return {**source, **changes}


def _with_tag(source: Mapping[str, Any], tag: Any, default: tuple[Any, Any]) -> Mapping[str, Any]:
    own, languages = source.get("tag"), _languages_of(source, default)
    if own in (None, TO_TARGET, DIRECTION):
        if (tag := own or tag) not in (TO_TARGET, DIRECTION):
            return source
        return {**source, "tag": tag_of(languages[1]) if tag == TO_TARGET else tag_of_direction(*languages)}
    if tag != TO_TARGET or targets_of([str(own)]):
        return source
    return {**source, "tag": f"{own}{tag_of(languages[1])}"}


def _languages_of(source: Mapping[str, Any], default: tuple[Any, Any]) -> tuple[Any, Any]:
    pair = source.get("languages")
    return (pair[0], pair[1]) if isinstance(pair, list | tuple) and len(pair) == 2 else default
