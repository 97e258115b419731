"""Text to text with a trained run: the Python API.

from mt_cli import Translator
Translator.load("runs/quickstart").translate(["The old doctor sleeps."])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt_cli.checkpoint.trained import load_together
from mt_cli.config.directions import NO_TAGS, Tagging
from mt_cli.config.loading import changed_section
from mt_cli.config.sections import DecodingConfig
from mt_cli.corpus.rows import untagged
from mt_cli.decoding.engine import Engine, Reading, TransformerEngine
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import InputError
from mt_cli.machine.devices import pick_device, pick_precision, use_threads
from mt_cli.machine.group import ALONE, Group
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special import EOS, UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.translation.details import details_of
from mt_cli.translation.exported import load_exported
from mt_cli.translation.lines import LineSplitter, Segment, TextHypothesis, Translation

_MOST_HYPOTHESES = 1000
_SEGMENTS_READ_AT_ONCE = 512


@dataclass(frozen=True)
class PairScore:
    """How likely a given translation is."""

    tokens: list[str]
    """Includes [EOS]."""
    token_scores: list[float]
    """Log-probability of each token, in nats."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the translation given its source, in nats."""
        return sum(self.token_scores)


class Translator:
    """A model with its tokenizers and its search options. Several threads may use one at once."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        max_tokens: int,
        tagging: Tagging = NO_TAGS,
        languages: tuple[str, str] = ("", ""),
        most_tokens: int | None = None,
    ) -> None:
        """`most_tokens` is `corpus.max_tokens`, for which positions and exports are made; None: `max_tokens`."""
        self.engine = engine
        self.source_tokenizer, self.target_tokenizer = tokenizers
        self.decoding, self.max_tokens, self.tagging = decoding, max_tokens, tagging
        self.languages, self.most_tokens = languages, most_tokens or max_tokens

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
        """A translator with a checkpoint of a run directory, as `TrainedRun.load` finds and checks it.

        Several runs with equal languages, vocabularies and tags are an ensemble with the search options of the first.
        InputError is raised if they differ. `precision` is `fp32`, `bf16`, `fp16`, or `auto`: bf16 if the
        hardware is fast at it. `num_threads` is set for the whole process, as `use_threads` does. Each process of a
        `group` has a GPU of its own. With the
        engine `ctranslate2`, `run` is a folder that `mt export` wrote.
        """
        use_threads(num_threads)
        paths = [run] if isinstance(run, str | Path) else list(run)
        if engine == "ctranslate2":
            served, tokenizers, found = load_exported(paths, device, precision, checkpoint)
            both = found.source_language, found.target_language
            return cls(served, tokenizers, found.decoding, found.max_tokens, found.tagging, both, found.most_tokens)
        if engine != "mt":
            raise InputError(f"engine {engine}: use mt or ctranslate2")
        first, *_ = trained = load_together(paths, "an ensemble", checkpoint)
        torch_device, corpus = pick_device(device, group), first.config.corpus
        model = Ensemble([each.model for each in trained]) if len(trained) > 1 else first.model
        transformer = TransformerEngine(model.to(torch_device, pick_precision(precision, torch_device)).eval())
        max_tokens = min(each.max_tokens for each in trained)
        most = min(each.config.corpus.max_tokens for each in trained)
        decoding, tagging = first.config.decoding, corpus.tagging
        return cls(transformer, first.tokenizers, decoding, max_tokens, tagging, corpus.languages, most)

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags that a sentence may begin with."""
        return self.tagging.tags

    @property
    def of_corpora(self) -> Translator:
        """The same translator for sentences of corpora, which have their tags already."""
        other = copy(self)
        other.tagging = self.tagging.of_corpora
        return other

    def with_decoding(self, decoding: DecodingConfig) -> Translator:
        """The same translator with other options of the search."""
        other = copy(self)
        other.decoding = decoding
        return other

    def with_callback(self, on_done: Callable[[int], object]) -> Translator:
        """The same translator, which calls a function with the number of segments after each batch of a search.

        Engines other than our own call nothing.
        """
        other = copy(self)
        if isinstance(self.engine, TransformerEngine):
            other.engine = TransformerEngine(self.engine.model, on_done)
        return other

    @property
    def model(self) -> Transformer:
        """The model of a `TransformerEngine`; an ensemble and other engines have none."""
        assert isinstance(self.engine, TransformerEngine), "this engine does not show its model"
        assert isinstance(self.engine.model, Transformer), "an ensemble has several"
        return self.engine.model

    def translate(
        self, sentences: Iterable[str], tag: str | None = None, prefix: str = "", **decoding: Any
    ) -> list[str]:
        """The translation of each sentence; an empty sentence stays empty.

        `decoding` changes options of that section of the config, such as `beam_size=1`; None keeps the option. A
        `length_penalty` is that of all tags. `tag` is put before sentences that do not begin with a tag; None is the
        tag of the direction that the config names, if it has one. Every translation begins with `prefix`.
        """
        return [item.text for item in self.translate_fully(sentences, tag=tag, prefix=prefix, **decoding)]

    def translate_fully(
        self,
        sentences: Iterable[str],
        num_best: int = 1,
        tag: str | None = None,
        prefix: str = "",
        split_sentences: bool = False,
        with_details: bool = False,
        **decoding: Any,
    ) -> list[Translation]:
        """The translation of each sentence with scores and up to `num_best` hypotheses.

        With `split_sentences`, each sentence of a line is translated separately. Raises InputError if the model was not
        trained with the tag, an option is invalid, or a sentence is not a str.
        """
        texts = _checked(sentences)
        if type(num_best) is not int or not 1 <= num_best <= _MOST_HYPOTHESES:
            raise InputError(f"num_best {num_best!r}: use 1 to {_MOST_HYPOTHESES:,}")
        if decoding.get("length_penalty") is not None:
            decoding = {"length_penalties": {}} | decoding
        self.tagging.chosen(tag)
        settings = changed_section(self.decoding, decoding)
        if unknown := settings.length_penalties.keys() - set(self.tags):
            known = ", ".join(self.tags) or "none"
            raise InputError(f"decoding.length_penalties: {min(unknown)!r} is no tag of this model; it knows {known}")
        splitter = LineSplitter(self.source_tokenizer, self.max_tokens, self.tagging, self.languages, self.most_tokens)
        lines = self._search([splitter.split(text, tag, split_sentences) for text in texts], settings, num_best, prefix)
        return self._with_details(lines) if with_details else lines

    def score(self, sources: Iterable[str], targets: Iterable[str], tag: str | None = None) -> list[PairScore]:
        """How likely each target is as the translation of its source; `tag` as in `translate`.

        Raises InputError if a side has more tokens than the model has positions, the numbers of sources and targets
        differ, or one of them is not a str.
        """
        sides = [[" ".join(text.split()) for text in _checked(texts)] for texts in (sources, targets)]
        if len(sides[0]) != len(sides[1]):
            raise InputError(f"found {len(sides[0]):,} sources and {len(sides[1]):,} targets; give one for each")
        tagged = [self.tagging.tagged(text, tag) for text in sides[0]]
        source_ids, target_ids = self.source_tokenizer.encode(tagged), self.target_tokenizer.encode(sides[1])
        readings = self.engine.read(list(zip(source_ids, target_ids, strict=True)))
        return [
            PairScore([*self.target_tokenizer.tokens(ids), EOS], reading.log_probs)
            for ids, reading in zip(target_ids, readings, strict=True)
        ]

    def attention(self, sentence: str, translation: str, tag: str | None = None) -> tuple[list[str], list[str], Tensor]:
        """Source tokens, target tokens, and the TxS mean over layers and heads of the cross-attention between them.

        `tag` is as in `translate`.
        Raises InputError if a side is longer than the model was trained for.
        """
        tagged = self.tagging.tagged(sentence, tag)
        (source,), (target,) = self.source_tokenizer.encode([tagged]), self.target_tokenizer.encode([translation])
        if max(len(source), len(target)) > self.most_tokens:
            raise InputError(f"attention can be drawn for sentences of up to {self.most_tokens} tokens")
        return next(self.attentions([(source, target)]))

    def attentions(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> Iterator[tuple[list[str], list[str], Tensor]]:
        """The result of `attention` for each pair of source and target ids."""
        for (source, target), reading in zip(pairs, self._read(pairs), strict=True):
            tokens = self.source_tokenizer.tokens(source), self.target_tokenizer.tokens(target)
            yield [*tokens[0], EOS], [*tokens[1], EOS], _attention_in(reading)

    def _read(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[Reading]:
        """Readings of the pairs; only some hundred at a time are in memory."""
        for start in range(0, len(pairs), _SEGMENTS_READ_AT_ONCE):
            yield from self.engine.read(pairs[start : start + _SEGMENTS_READ_AT_ONCE])

    def _with_details(self, lines: Sequence[Translation]) -> list[Translation]:
        segments = [segment for line in lines for segment in line.searched]
        readings = self._read([(each.ids, each.hypotheses[0].hypothesis.ids) for each in segments])
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return [replace(line, details=details_of(line, readings, tokenizers, self.tags)) for line in lines]

    def _search(
        self, lines: Sequence[Translation], decoding: DecodingConfig, num_best: int, prefix: str
    ) -> list[Translation]:
        """The lines with hypotheses for each segment."""
        segments = [segment for line in lines for segment in line.searched]
        prefixes = [prefix * (segment is line.searched[0]) for line in lines for segment in line.searched]
        prefix_ids = self.target_tokenizer.encode(prefixes) if prefix else []
        found = self._hypotheses(segments, decoding, num_best, prefix_ids)
        results = zip(segments, prefixes, found, strict=True)
        rows = [(segment, start, hypothesis) for segment, start, each in results for hypothesis in each]
        texts = self._texts(rows, decoding.unk == "copy")
        hypotheses = ([TextHypothesis(next(texts), hypothesis) for hypothesis in each] for each in found)
        translated = [line.with_hypotheses(hypotheses) for line in lines]
        return translated if prefix else [line.with_true_digits() for line in translated]

    def _hypotheses(
        self, segments: Sequence[Segment], decoding: DecodingConfig, num_best: int, prefix_ids: Sequence[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each segment; there is a search for each length penalty."""
        tags = (segment.text.partition(" ")[0] for segment in segments)
        penalties = [decoding.length_penalties.get(tag, decoding.length_penalty) for tag in tags]
        found: dict[int, list[Hypothesis]] = {}
        for penalty in dict.fromkeys(penalties):
            rows = [row for row, own in enumerate(penalties) if own == penalty]
            ids, prefixes = [segments[row].ids for row in rows], [prefix_ids[row] for row in rows if prefix_ids]
            settings = decoding.model_copy(update={"length_penalty": penalty})
            found.update(zip(rows, self.engine.search(ids, settings, num_best, prefixes), strict=True))
        return [found[row] for row in range(len(segments))]

    def _texts(self, rows: Sequence[tuple[Segment, str, Hypothesis]], is_copied: bool) -> Iterator[str]:
        """The text of each hypothesis for a segment and a prefix.

        Unknown words of the prefix are kept. With `is_copied`, any other unknown word becomes the source word that it
        attends to most, among the unknown ones if there are any: names are unknown on both sides, and attention often
        points to the word next to them. After Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine
        Translation", section 3.3.
        """
        copied = [(segment.ids, each) for segment, _, each in rows if is_copied and UNK_ID in each.ids]
        readings = self._read([(ids, each.ids) for ids, each in copied if each.attention is None])
        decoded = self.target_tokenizer.decode([hypothesis.ids for _, _, hypothesis in rows])
        for text, (segment, prefix, hypothesis) in zip(decoded, rows, strict=True):
            spans = self.target_tokenizer.spans(prefix) if prefix else []
            unknown = [place for place, index in enumerate(hypothesis.ids) if index == UNK_ID]
            if not unknown or not (is_copied or unknown[0] < len(spans)):
                yield _as_line(text)
                continue
            tokens = self.target_tokenizer.tokens(hypothesis.ids)
            words = {place: prefix[slice(*span)] for place, span in enumerate(spans)}
            if is_copied:
                weights = hypothesis.attention
                if weights is None:
                    weights = _attention_in(next(readings))[:-1, :-1]
                words = self._attended_words(segment, weights) | words
            for place in unknown:
                tokens[place] = words.get(place, tokens[place])
            yield _as_line(self.target_tokenizer.join(tokens))

    def _attended_words(self, segment: Segment, weights: Tensor) -> dict[int, str]:
        """The source word for each target token; a tag is no word."""
        is_unknown = torch.tensor(segment.ids) == UNK_ID
        if is_unknown.any():
            weights = weights.masked_fill(~is_unknown, -1.0)
        elif untagged(segment.text, self.tags) != segment.text and len(segment.ids) > 1:
            weights = torch.cat([torch.full_like(weights[:, :1], -1.0), weights[:, 1:]], dim=1)
        spans = self.source_tokenizer.spans(segment.text)
        return {place: segment.text[slice(*spans[best])] for place, best in enumerate(weights.argmax(1).tolist())}


def _as_line(text: str) -> str:
    """The text as in a line of training text: no double spaces, and no line end, which a token for a byte may be."""
    return " ".join(filter(None, re.split("[ \r\n]", text)))


def _attention_in(reading: Reading) -> Tensor:
    if reading.attention is None:
        raise InputError("this engine does not report attention; use --engine mt")
    return reading.attention


def _checked(texts: Iterable[str]) -> list[str]:
    """The texts as a list; raises InputError for a single str, and for items of other types."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(f"found {texts!r:.60}; give a list of sentences")
    listed = list(texts)
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            raise InputError(f"sentence {number:,}: found {text!r:.60}; give a list of sentences, each a str")
    return listed
