"""Text to text with a trained run: the Python API.

from mt_cli import Translator
Translator.load("runs/quickstart").translate(["The old doctor sleeps."])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mt_cli.config.loading import changed_section
from mt_cli.config.sections import DecodingConfig
from mt_cli.config.tags import NO_TAGS, Tagging
from mt_cli.corpus.cache import fingerprint
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.languages import primary
from mt_cli.corpus.protected_text import UNPROTECTED, Protection
from mt_cli.corpus.rows import chosen_tag, tagged_text
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.decoding.engine import Engine
from mt_cli.errors import InputError
from mt_cli.runtime.console import say
from mt_cli.runtime.group import ALONE, Group
from mt_cli.tokenizer.special_tokens import EOS
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair
from mt_cli.translation.drafts import translations_with_marks
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks, may_have_marks
from mt_cli.translation.lines import Alignment, LineSplitter, Translation
from mt_cli.translation.quality import QualityModel
from mt_cli.translation.segments import SegmentEngine, with_terms
from mt_cli.translation.token_details import PairScore, details_of


@dataclass(frozen=True)
class Translator:
    """A model with its tokenizers and its search options. Several threads may use one at once."""

    engine: Engine
    tokenizers: TokenizerPair
    decoding: DecodingConfig
    max_tokens: int
    """Number of tokens of the longest training source."""
    tagging: Tagging = NO_TAGS
    languages: tuple[str, str] = ("", "")
    most_tokens: int | None = None
    """`corpus.max_tokens`, the limit of positions and exports; None means `max_tokens`."""
    protection: Protection = UNPROTECTED
    weights_digest: Callable[[], str] = lambda: ""
    """Digest of the weights in the dtype in which the engine computes; slow for large models."""
    sentences_seen: SentencesSeen | None = None
    """Fractions of training sources with several sentences, which decide how lines are split; None if unknown."""
    is_on_gpu: bool = False
    quality: QualityModel | None = None
    """Estimate of the quality of translations with details."""

    @classmethod
    def load(
        cls,
        run: str | Path | Sequence[str | Path],
        device: str = "auto",
        precision: str = "auto",
        checkpoint: str | None = None,
        num_threads: int | None = None,
        group: Group = ALONE,
        engine: str = "mt",
    ) -> Translator:
        """Load a checkpoint of a run directory; see `TrainedRun.load`.

        Several runs are an ensemble with the search options of the first. InputError is raised if their languages,
        vocabularies or tags differ. `precision` is `fp32`, `bf16`, `fp16`, or `auto`: bf16 if the hardware is fast at
        it. `num_threads` applies to the whole process. Each process of a `group` uses a GPU of its own. With the engine
        `ctranslate2`, `run` is a folder that `mt export` wrote.
        """
        paths = [run] if isinstance(run, str | Path) else list(run)
        if engine == "mt":
            from mt_cli.translation.from_runs import load_runs  # Imports PyTorch.

            return load_runs(paths, device, precision, checkpoint, num_threads, group)
        if engine == "ctranslate2":
            from mt_cli.translation.exported import load_exported

            return load_exported(paths, device, precision, checkpoint, num_threads)
        raise InputError(f"engine {engine}: use mt or ctranslate2")

    def with_engine(self, engine: Engine) -> Translator:
        """Copy that computes with another engine; it has no digest, and can be pickled if the engine can."""
        return replace(self, engine=engine, weights_digest=str)

    def with_doubt(self, doubt: str) -> Translator:
        """Copy whose estimates do not hold for the reason `doubt`, unless it is empty."""
        if not doubt or self.quality is None:
            return self
        return replace(self, quality=self.quality.model_copy(update={"doubt": doubt}))

    @property
    def digest(self) -> str:
        """Digest of everything that translations depend on, except the text and the options of the search."""
        limits = self.max_tokens, self.most_tokens, self.sentences_seen
        settings = *limits, self.tagging, self.languages, self.protection
        return fingerprint(
            self.weights_digest(), [tokenizer.to_json() for tokenizer in self.tokenizers], repr(settings)
        )

    @property
    def source_tokenizer(self) -> Tokenizer:
        return self.tokenizers[0]

    @property
    def target_tokenizer(self) -> Tokenizer:
        return self.tokenizers[1]

    @property
    def _segments(self) -> SegmentEngine:
        return SegmentEngine(self.engine, self.tokenizers, self.tags)

    @property
    def takes_terms(self) -> bool:
        """True if the model has learned to follow a glossary or, with protected spans, to copy its terms."""
        return self.source_tokenizer.has_term_marks or bool(self.source_tokenizer.reserved_ids)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags that a sentence may begin with."""
        return self.tagging.tags

    def target_tag(self, to: str | None) -> str | None:
        """Tag for a target language, or the tag itself; without a language, the default of the model.

        Prints a note if the model has several target languages and none is chosen. Raises InputError if the model does
        not translate into the language and has no such tag.
        """
        tagging, targets, (source, target) = self.tagging, self.tagging.targets, self.languages
        if to is None:
            if len(targets) > 1:
                default = f"this is {tagging.target_of(tagging.default)}, and " if tagging.default else ""
                say(f"note: no target language is chosen; {default}--to chooses one of {', '.join(targets)}")
            return tagging.default
        if to in tagging.tags:
            return to
        if target_tag := tagging.into(to):
            return target_tag
        if primary(to) == primary(target) and not (targets and tagging.is_required):
            return tagging.default
        languages = f"into {', '.join(targets)}" if targets else f"from {source} to {target} only"
        tags = f"; its tags are {', '.join(tagging.tags)}" if tagging.tags else ""
        raise InputError(f"--to {to}: this model translates {languages}{tags}")

    def translate(
        self,
        sentences: Iterable[str],
        tag: str | None = None,
        prefix: str = "",
        terms: Glossary | None = None,
        **decoding: Any,
    ) -> list[str]:
        """Translate each sentence; an empty sentence stays empty.

        `decoding` changes options of the section `decoding`, such as `beam_size=1`; None keeps an option. `tag` is put
        before sentences that do not begin with a tag; None means the default tag of the model, if it has one. Every
        translation begins with `prefix`, and has the `terms` of its sentence in the form that it needs, if the model
        finds one; a model that was trained with `corpus.protect` alone writes them as they are.
        """
        return [item.text for item in self.translate_fully(sentences, tag=tag, prefix=prefix, terms=terms, **decoding)]

    def translate_fully(
        self,
        sentences: Iterable[str],
        num_best: int = 1,
        tag: str | None = None,
        prefix: str = "",
        split_sentences: bool | None = None,
        with_details: bool = False,
        keeps_marks: bool = True,
        terms: Glossary | None = None,
        **decoding: Any,
    ) -> list[Translation]:
        """Translate each sentence into up to `num_best` hypotheses with scores.

        With `split_sentences`, each sentence of a line is translated separately; None means that lines are split into
        parts such as the model has learned from. With `keeps_marks`, placeholders and tags that the model does not
        protect, or loses, are placed by alignment, unless there is a prefix. Raises InputError if the model was not
        trained with the tag or with terms, or an option is invalid.
        """
        texts = _listed(sentences)
        chosen_tag(self.tagging, tag)
        if keeps_marks and not prefix and any(map(may_have_marks, texts)):
            marks = InlineMarks(PLACEHOLDERS, self.protection, self.tags)
            options = {"split_sentences": split_sentences, "with_details": with_details, "terms": terms}
            return translations_with_marks(texts, self, marks, {"num_best": num_best, "tag": tag} | options | decoding)
        settings = changed_section(self.decoding, decoding)
        lines = LineSplitter(self, settings.capitals == "lower").split(texts, tag, split_sentences)
        if terms:
            lines = with_terms(lines, terms, self)
        lines = self._segments.search(lines, settings, num_best, prefix)
        return self.add_details(lines) if with_details else lines

    def score(self, sources: Iterable[str], targets: Iterable[str], tag: str | None = None) -> list[PairScore]:
        """Compute the probability of each target as a translation of its source; `tag` is as in `translate`."""
        sides = [[" ".join(text.split()) for text in _listed(texts)] for texts in (sources, targets)]
        sources, targets = self.protection.protect_columns(sides)
        tagged = [tagged_text(text, self.tagging, tag) for text in sources]
        source_ids, target_ids = self.source_tokenizer.encode(tagged), self.target_tokenizer.encode(targets)
        decoded = self._segments.force_decode(list(zip(tagged, source_ids, target_ids, strict=True)))
        tokens = ([*self.target_tokenizer.tokens(ids), EOS] for ids in target_ids)
        return [PairScore(row, forced.log_probs) for row, forced in zip(tokens, decoded, strict=True)]

    def word_alignments(self, lines: Sequence[Translation]) -> list[Alignment]:
        """Aligned words of each line and its best translation, as in `Details.word_alignment`, with any engine."""
        decoded = self._segments.force_decode_best(lines, with_scores=False)
        return [details_of(line, decoded, self.tokenizers, self.tags).word_alignment for line in lines]

    def add_details(self, lines: Sequence[Translation]) -> list[Translation]:
        """Copies of translations with the details of the best one."""
        decoded = self._segments.force_decode_best(lines, with_attention=True)
        detailed = [replace(line, details=details_of(line, decoded, self.tokenizers, self.tags)) for line in lines]
        if self.quality is None:
            return detailed
        return [replace(line, estimate=self.quality.estimate(line)) for line in detailed]


def _listed(texts: Iterable[str]) -> list[str]:
    """The texts as a list; raises InputError for a single str, whose characters would be the texts."""
    if isinstance(texts, str):
        raise InputError(f"found {texts!r:.60}; give a list of sentences")
    return list(texts)
