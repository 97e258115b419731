"""Text to text with a trained run: the Python API.

from mt_cli.translator import Translator
Translator.load("runs/quickstart").translate(["The old doctor sleeps."])
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import open_checkpoint
from mt_cli.config.loading import changed_section
from mt_cli.config.sections import DecodingConfig
from mt_cli.corpus.languages import writes_spaces
from mt_cli.decoding.engine import Engine, TransformerEngine
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import DamagedFileError, InputError
from mt_cli.hardware import pick_device, pick_precision
from mt_cli.model.transformer import Transformer, outline
from mt_cli.sentences import sentences_of, split_point, units
from mt_cli.tokenizer import EOS, UNK_ID, TokenizerPair, character_ends, untagged

Pairs = list[tuple[int, int]]
_MOST_HYPOTHESES = 1000


@dataclass(frozen=True)
class Details:
    """The tokens of a line and of its best translation. A line in parts has those of all parts, one after the other."""

    source_tokens: list[str]
    tokens: list[str]
    """[EOS] among them, which ends every part."""
    token_scores: list[float]
    """Log-probability of each token, in nats, as the model reads the whole translation."""
    alignment: Pairs
    """Source token and token, counted from 0: which source token each token attends to most."""
    word_alignment: Pairs
    """The same of the words of the line and of its translation, sorted (the Pharaoh format). Where a script has no
    spaces, each character counts as a word."""


@dataclass(frozen=True)
class Translation:
    """What became of one line."""

    source: str
    hypotheses: list[tuple[str, float]]
    """Texts and scores, best first. A score is a log-probability (nats) divided by the length penalty; that of a line
    translated in parts is the mean of theirs."""
    num_parts: int
    """In how many parts the line was translated."""
    is_too_long: bool = False
    """Whether it had to be, being longer than the model was trained for."""
    unknown_words: tuple[str, ...] = ()
    """Words of the line that are not in the source's vocabulary."""
    details: Details | None = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0][0]

    @property
    def score(self) -> float:
        """The best translation's score."""
        return self.hypotheses[0][1]


@dataclass(frozen=True)
class PairScore:
    """How likely a model holds a given translation."""

    tokens: list[str]
    """[EOS] among them."""
    token_scores: list[float]
    """Log-probability of each token, in nats."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the translation, given its source, in nats."""
        return sum(self.token_scores)


@dataclass(frozen=True)
class _Part:
    """A stretch of a line that is translated by itself."""

    text: str
    """What the model reads, with a tag if there is one."""
    glue: str
    """What stands between the translations of this part and of the next."""
    start: int
    """Where in the line `text` begins; a tag that is not in the line is counted as if it stood before."""


class Translator:
    """A model, its tokenizers and its way of searching."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: TokenizerPair,
        decoding: DecodingConfig,
        max_tokens: int,
        tags: Sequence[str] = (),
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        self.engine = engine
        self.source_tokenizer, self.target_tokenizer = tokenizers
        self.decoding, self.max_tokens, self.tags = decoding, max_tokens, tuple(tags)
        self.languages = languages

    @classmethod
    def load(
        cls, run: str | Path, device: str = "auto", precision: str = "auto", checkpoint: str | None = None
    ) -> Translator:
        """The best checkpoint of a run directory, or its last one if none was validated.

        `precision` is `fp32`, `bf16`, or `auto`: bf16 where the hardware is fast at it. `checkpoint` is `best`, `last`
        or `step-N`, for another than that.

        Raises:
            RunError: if the directory is no run, has no model yet, not this checkpoint, or is damaged.
        """
        directory = RunDirectory(Path(run))
        config = directory.config()
        tokenizers = directory.tokenizers(config)
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
        path = directory.checkpoint(checkpoint)
        with _with_advice(directory, checkpoint), open_checkpoint(path) as saved:
            directory.check_tokenizers(saved.state["fingerprints"])
            # No memory is taken before the sizes are known to be those of the weights.
            saved.check_fits(outline(config.model, *sizes))
            model = Transformer(config.model, *sizes)
            saved.fill(model)
            longest = saved.state.get("longest_source")
        where = pick_device(device)
        engine = TransformerEngine(model.to(where, pick_precision(precision, where)).eval())
        max_tokens = min(config.corpus.max_tokens, longest or config.corpus.max_tokens)
        languages = (config.corpus.source, config.corpus.target)
        return cls(engine, tokenizers, config.decoding, max_tokens, config.corpus.tags, languages)

    @property
    def model(self) -> Transformer:
        """Our own model, which other engines do not show."""
        assert isinstance(self.engine, TransformerEngine), "this engine shows no model"
        return self.engine.model

    def translate(
        self, sentences: Iterable[str], tag: str | None = None, prefix: str = "", **decoding: Any
    ) -> list[str]:
        """The translation of each sentence; an empty one stays empty.

        `decoding` changes options of that section of the config, such as `beam_size=1`; None means as it is. A `tag` is
        put before sentences that do not begin with one. Every translation begins with the `prefix`.
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
        """The translation of each sentence with scores and up to `num_best` alternatives.

        With `split_sentences`, a line of many sentences is translated sentence by sentence.

        Raises:
            InputError: for a tag that the model was not trained with, an option that cannot be, or what are no texts.
        """
        sentences = _listed(sentences)
        if type(num_best) is not int or not 1 <= num_best <= _MOST_HYPOTHESES:
            raise InputError(f"num_best {num_best!r}: use 1 to {_MOST_HYPOTHESES:,}")
        if tag is not None and tag not in self.tags:
            raise InputError(
                f"tag {tag!r}: this model was not trained with it; it knows {', '.join(self.tags) or 'none'}"
            )
        settings = changed_section(self.decoding, decoding)
        texts = [" ".join(sentence.split()) for sentence in sentences]
        lines = [self._parts_of_line(text, tag, split_sentences) for text in texts]
        parts = [part for line in lines for part in line]
        prefixes = [prefix if index == 0 else "" for line in lines for index in range(len(line))]
        ids = self.source_tokenizer.encode([part.text for part in parts])
        found = self._search(parts, ids, settings, num_best, prefixes)
        results, start = [], 0
        for sentence, text, line in zip(sentences, texts, lines, strict=True):
            stretch = slice(start, start := start + len(line))
            hypotheses = _joined(line, found[stretch])
            details = self._details(text, line, ids[stretch], found[stretch]) if with_details else None
            is_too_long = len(line) > (len(sentences_of(text)) if split_sentences else 1)
            unknown = tuple(
                word for each in zip(line, ids[stretch], strict=True) for word in self._unknown_words(*each)
            )
            results.append(Translation(sentence, hypotheses, len(line), is_too_long, unknown, details))
        return results

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[PairScore]:
        """How likely the model holds each target to be the translation of its source.

        Raises:
            InputError: if a side has more tokens than the model has positions, or what is given are not texts, as many
                of both sides.
        """
        sources, targets = _listed(sources), _listed(targets)
        if len(sources) != len(targets):
            raise InputError(f"found {len(sources):,} sources and {len(targets):,} targets; they go together")
        source_ids = self.source_tokenizer.encode([" ".join(text.split()) for text in sources])
        target_ids = self.target_tokenizer.encode([" ".join(text.split()) for text in targets])
        readings = self.engine.read(list(zip(source_ids, target_ids, strict=True)))
        return [
            PairScore([*self.target_tokenizer.tokens(ids), EOS], reading.log_probs)
            for ids, reading in zip(target_ids, readings, strict=True)
        ]

    def attention(self, sentence: str, translation: str) -> tuple[list[str], list[str], Tensor]:
        """Source tokens, target tokens and the TxS mean over layers and heads of the cross-attention between them.

        Raises:
            InputError: if a side is longer than the model was trained for.
        """
        source, target = self.source_tokenizer.encode([sentence])[0], self.target_tokenizer.encode([translation])[0]
        if max(len(source), len(target)) > self.max_tokens:
            raise InputError(f"attention can be drawn for sentences of up to {self.max_tokens} tokens")
        source_tokens, target_tokens = self.source_tokenizer.tokens(source), self.target_tokenizer.tokens(target)
        return [*source_tokens, EOS], [*target_tokens, EOS], self._attention([(source, target)])[0]

    def _unknown_words(self, part: _Part, ids: Sequence[int]) -> Iterator[str]:
        if UNK_ID in ids:
            for index, (start, end) in zip(ids, self.source_tokenizer.spans(part.text), strict=True):
                if index == UNK_ID:
                    yield part.text[start:end].strip()

    def _attention(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[Tensor]:
        readings = self.engine.read(pairs)
        if any(reading.attention is None for reading in readings):
            raise InputError("this engine does not say what its model attends to; use mt's own (--engine mt)")
        return [reading.attention for reading in readings if reading.attention is not None]

    def _search(
        self,
        parts: Sequence[_Part],
        ids: Sequence[Sequence[int]],
        decoding: DecodingConfig,
        num_best: int,
        prefixes: Sequence[str],
    ) -> list[list[tuple[str, Hypothesis]]]:
        """Texts and hypotheses of each part, best first; nothing is searched for an empty one."""
        rows = [row for row, part in enumerate(parts) if part.text]
        beginnings = self.target_tokenizer.encode(prefixes) if any(prefixes) else []
        found = self.engine.search(
            [ids[row] for row in rows], decoding, num_best, [beginnings[row] for row in rows] if beginnings else []
        )
        results = [[("", Hypothesis([], 0.0))] for _ in parts]
        for row, hypotheses in zip(rows, found, strict=True):
            decoded = self.target_tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
            # As in the text that was trained on, there is one space at a time, and none at the ends.
            texts = [" ".join(filter(None, text.split(" "))) for text in decoded]
            for rank, hypothesis in enumerate(hypotheses):
                beginning = prefixes[row] if beginnings and UNK_ID in beginnings[row] else ""
                if UNK_ID in hypothesis.ids and (beginning or decoding.unk == "copy"):
                    is_copied = decoding.unk == "copy"
                    texts[rank] = self._with_surfaces(parts[row].text, ids[row], hypothesis, beginning, is_copied)
            results[row] = list(zip(texts, hypotheses, strict=True))
        return results

    def _with_surfaces(
        self, text: str, source_ids: Sequence[int], hypothesis: Hypothesis, prefix: str, is_copied: bool
    ) -> str:
        """The text of a hypothesis, its unknown words being those of the prefix or of the source.

        An unknown word is the source word that it attends to most; if there are unknown words in the source, it is one
        of these: names are unknown on both sides, and attention often points beside them. After Luong et al. 2015,
        "Addressing the Rare Word Problem in Neural Machine Translation", section 3.3.
        """
        tokens = self.target_tokenizer.tokens(hypothesis.ids)
        given = [prefix[start:end] for start, end in self.target_tokenizer.spans(prefix)]
        unknown = [place for place, index in enumerate(hypothesis.ids) if index == UNK_ID]
        for place in unknown:
            if place < len(given):
                tokens[place] = given[place]
        unknown = [place for place in unknown if place >= len(given)]
        if unknown and is_copied:
            weights = hypothesis.attention
            if weights is None:
                weights = self._attention([(source_ids, hypothesis.ids)])[0][:-1, :-1].clone()
            is_unknown = torch.tensor(source_ids) == UNK_ID
            if is_unknown.any():
                weights[:, ~is_unknown] = -1.0
            spans = self.source_tokenizer.spans(text)
            for place in unknown:
                start, end = spans[int(weights[place].argmax())]
                tokens[place] = text[start:end]
        return self.target_tokenizer.join(tokens)

    def _details(
        self,
        text: str,
        line: Sequence[_Part],
        source_ids: Sequence[Sequence[int]],
        found: Sequence[list[tuple[str, Hypothesis]]],
    ) -> Details:
        """Tokens, their scores and what they are aligned with, of a line's best translation."""
        details = Details([], [], [], [], [])
        words: set[tuple[int, int]] = set()
        places, before = units(text), ""
        for part, ids, ((translation, hypothesis), *_) in zip(line, source_ids, found, strict=True):
            if part.text:
                (reading,) = self.engine.read([(ids, hypothesis.ids)])
                tokens = self.target_tokenizer.tokens(hypothesis.ids)
                pairs = [] if reading.attention is None else self._alignment(part.text, reading.attention)
                shifts = len(details.source_tokens), len(details.tokens)
                details.alignment.extend((source + shifts[0], target + shifts[1]) for source, target in pairs)
                spans = self.source_tokenizer.spans(part.text)
                source_words = [
                    _overlapped(places, part.start + start, part.start + max(1, end)) for start, end in spans
                ]
                target_words = self._words_of(tokens, before)
                words.update(pair for both in pairs for pair in product(source_words[both[0]], target_words[both[1]]))
                details.source_tokens.extend(self.source_tokenizer.tokens(ids))
                details.tokens.extend([*tokens, EOS])
                details.token_scores.extend(reading.log_probs)
            before += translation + part.glue
        details.word_alignment.extend(sorted(words))
        return details

    def _words_of(self, tokens: Sequence[str], before: str) -> list[range]:
        """The words of a translation that each token of a part of it belongs to; `before` is what precedes the part."""
        join = self.target_tokenizer.join
        places = units(before + join(tokens))
        found, start = [], 0
        for place, end_place in enumerate(character_ends(tokens)):
            end = max(1, len(join(tokens[: end_place + 1])))
            found.append(_overlapped(places, len(before) + start, len(before) + end))
            if place == end_place:
                start = end
        return found

    def _alignment(self, text: str, attention: Tensor) -> Pairs:
        """The source token, other than a tag or the end, that each token but the end attends to most."""
        num_tags = int(untagged(text, self.tags) != text)
        weights = attention[:-1, num_tags:-1]
        if weights.shape[1] == 0:
            return []
        return [(source + num_tags, target) for target, source in enumerate(weights.argmax(dim=1).tolist())]

    def _parts_of_line(self, text: str, tag: str | None, split_sentences: bool) -> list[_Part]:
        """A line in parts that the model can read, each with its own tag or else with the one given."""
        rest = untagged(text, self.tags)
        own = text.partition(" ")[0] if rest != text else tag
        sentences = sentences_of(rest) if split_sentences else [(rest, "")]
        pieces = [piece for sentence in sentences for piece in self._pieces(*sentence)]
        parts, start = [], len(text) - len(rest)
        for number, (body, glue) in enumerate(pieces, 1):
            before = f"{own} " if own is not None and body else ""
            parts.append(_Part(before + body, self._glue(glue) if number < len(pieces) else "", start - len(before)))
            start += len(body) + len(glue)
        return parts

    def _glue(self, glue: str) -> str:
        """What stands between two parts of a translation where `glue` stands in the source."""
        source, target = self.languages
        if not writes_spaces(target):
            return ""
        return glue if writes_spaces(source) else " "

    def _pieces(self, text: str, glue: str = "") -> list[tuple[str, str]]:
        """`text` in pieces that the model can read, each with the text that stands between it and the next."""
        if len(self.source_tokenizer.encode([text])[0]) <= self.max_tokens or len(text) < 2:
            return [(text, glue)]
        end, between = split_point(text)
        return self._pieces(text[:end], between) + self._pieces(text[end + len(between) :], glue)


def _overlapped(places: Sequence[tuple[int, int]], start: int, end: int) -> range:
    """Which of these ordered stretches overlap with one from `start` to `end`, or else the one before it."""
    first, last = bisect_right(places, start, key=itemgetter(1)), bisect_left(places, end, key=itemgetter(0))
    return range(first, last) if first < last else range(max(0, last - 1), max(1, last))


def _joined(line: Sequence[_Part], found: Sequence[list[tuple[str, Hypothesis]]]) -> list[tuple[str, float]]:
    """One list of texts and scores from those of consecutive parts."""
    return [
        (
            "".join(hypotheses[rank][0] + part.glue for part, hypotheses in zip(line, found, strict=True)),
            sum(hypotheses[rank][1].score for hypotheses in found) / len(found),
        )
        for rank in range(min(map(len, found)))
    ]


@contextmanager
def _with_advice(directory: RunDirectory, checkpoint: str | None) -> Iterator[None]:
    """Inside, the message of a damaged checkpoint says what to do."""
    try:
        yield
    except DamagedFileError as error:
        way_out = f"have `mt train --config {directory.config_path}` make another of the last state"
        if (name := directory.config().name) != directory.path.resolve().name:
            way_out = f"give the folder its name {name} back below runs/, and {way_out}"
        if checkpoint not in (None, "best"):
            way_out = "use another checkpoint"
        raise DamagedFileError(f"{error}; restore it, or {way_out}") from None


def _listed(texts: Iterable[str]) -> list[str]:
    """The texts; raises InputError for a single one, which is several texts too (its letters), and for what is none."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise InputError(f"found {texts!r:.60}; give a list of sentences")
    listed = list(texts)
    for number, text in enumerate(listed, 1):
        if not isinstance(text, str):
            raise InputError(f"sentence {number:,}: found {text!r:.60}; give a list of sentences, each a str")
    return listed
