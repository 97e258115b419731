"""Text to text with a trained run: the Python API.

from mt_cli.translator import Translator
Translator.load("runs/quickstart").translate(["The old doctor sleeps."])
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mt_cli.batching.batches import pad
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import open_checkpoint
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.errors import DamagedFileError, InputError
from mt_cli.evaluation import translate_ids
from mt_cli.hardware import pick_device, pick_precision
from mt_cli.model.transformer import Transformer, outline, recorded_attention
from mt_cli.tokenizer import EOS, EOS_ID, SOS_ID, UNK_ID, Tokenizer, untagged


@dataclass(frozen=True)
class Translation:
    """What became of one line."""

    source: str
    hypotheses: list[tuple[str, float]]
    """Texts and scores, best first. A score is a log-probability (nats) divided by the length penalty; that of a line
    translated in parts is the mean of theirs."""
    num_parts: int
    """More than 1 if the line was longer than the model was trained for and was translated in parts."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0][0]

    @property
    def score(self) -> float:
        """The best translation's score."""
        return self.hypotheses[0][1]


class Translator:
    """A model, its tokenizers and its way of searching."""

    def __init__(self, model: Transformer, tokenizers: tuple[Tokenizer, Tokenizer], config: Config) -> None:
        self.model = model
        self.source_tokenizer, self.target_tokenizer = tokenizers
        self.config = config

    @classmethod
    def load(cls, run: str | Path, device: str = "auto", precision: str = "auto") -> Translator:
        """The best checkpoint of a run directory, or its last one if none was validated.

        `precision` is `fp32`, `bf16`, or `auto`: bf16 where the hardware is fast at it.

        Raises:
            RunError: if the directory is no run, has no model yet, or is damaged.
        """
        directory = RunDirectory(Path(run))
        config = directory.config()
        tokenizers = directory.tokenizers(config)
        sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
        path = directory.best_path if directory.best_path.exists() else directory.last_path
        with _with_advice(directory), open_checkpoint(path) as checkpoint:
            directory.check_tokenizers(checkpoint.state["fingerprints"])
            # No memory is taken before the sizes are known to be those of the weights.
            checkpoint.check_fits(outline(config.model, *sizes))
            model = Transformer(config.model, *sizes)
            checkpoint.fill(model)
        where = pick_device(device)
        return cls(model.to(where, pick_precision(precision, where)).eval(), tokenizers, config)

    def translate(self, sentences: Sequence[str], tag: str | None = None, **decoding: Any) -> list[str]:
        """The translation of each sentence; an empty one stays empty.

        `decoding` changes options of that section of the config, such as `beam_size=1`; None means as it is. A `tag` is
        put before sentences that do not begin with one.
        """
        return [item.text for item in self.translate_fully(sentences, tag=tag, **decoding)]

    def translate_fully(
        self, sentences: Sequence[str], num_best: int = 1, tag: str | None = None, **decoding: Any
    ) -> list[Translation]:
        """The translation of each sentence with scores and up to `num_best` alternatives.

        Raises:
            InputError: for a tag that the model was not trained with, or an option that cannot be.
        """
        if tag is not None and tag not in self.config.corpus.tags:
            known = ", ".join(self.config.corpus.tags) or "none"
            raise InputError(f"tag {tag!r}: this model was not trained with it; it knows {known}")
        settings = self._decoding_with(decoding)
        parts = [self._tagged_parts(" ".join(sentence.split()), tag) for sentence in sentences]
        searched = iter(self._search([part for row in parts for part, _ in row], settings, num_best))
        return [
            Translation(sentence, self._join([(glue, next(searched)) for _, glue in row]), len(row))
            for sentence, row in zip(sentences, parts, strict=True)
        ]

    def _decoding_with(self, changes: Mapping[str, Any]) -> DecodingConfig:
        """The config's section with options changed, where they are not None."""
        given = {key: value for key, value in changes.items() if value is not None}
        if not given:
            return self.config.decoding
        tree = self.config.model_dump(mode="json")
        return parse_config(tree | {"decoding": tree["decoding"] | given}, self.config.name).decoding

    def attention(self, sentence: str, translation: str) -> tuple[list[str], list[str], Tensor]:
        """Source tokens, target tokens and the TxS mean over layers and heads of the cross-attention between them.

        Raises:
            InputError: if a side is longer than the model was trained for.
        """
        source, target = self.source_tokenizer.encode([sentence])[0], self.target_tokenizer.encode([translation])[0]
        limit = self.config.corpus.max_tokens
        if max(len(source), len(target)) > limit:
            raise InputError(f"attention can be drawn for sentences of up to {limit} tokens (corpus.max_tokens)")
        source_tokens, target_tokens = self.source_tokenizer.tokens(source), self.target_tokenizer.tokens(target)
        return [*source_tokens, EOS], [*target_tokens, EOS], self._cross_attention(source, target)

    def _cross_attention(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> Tensor:
        """TxS mean over layers and heads, with a row for the end of each side."""
        with recorded_attention(self.model) as record:
            self._read(source_ids, target_ids)
        weights = torch.stack([weights[0] for name, (weights,) in record.items() if "cross" in name])
        return weights.float().mean(dim=(0, 1)).cpu()

    @torch.inference_mode()
    def _read(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> Tensor:
        """Logits TxV while a given translation is read, of each of its tokens and of the end after it."""
        device = next(self.model.parameters()).device
        src_ids = pad([torch.tensor(source_ids)], end=EOS_ID).to(device)
        logits: Tensor = self.model(src_ids, pad([torch.tensor(target_ids)], start=SOS_ID).to(device))[0]
        return logits

    @torch.inference_mode()
    def log_probs(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> list[float]:
        """The log-probability, in nats, of each token of a given translation and of the end after it."""
        logits = self._read(source_ids, target_ids)
        expected = torch.tensor([*target_ids, EOS_ID], device=logits.device)
        log_probs: list[float] = logits.float().log_softmax(dim=-1).gather(1, expected[:, None])[:, 0].tolist()
        return log_probs

    def _search(self, texts: Sequence[str], decoding: DecodingConfig, num_best: int) -> list[list[tuple[str, float]]]:
        """Hypotheses as text with scores; nothing is searched for an empty text."""
        ids = self.source_tokenizer.encode(texts)
        rows = [row for row, text in enumerate(texts) if text]
        found = translate_ids(self.model, [ids[row] for row in rows], decoding, num_best)
        results: list[list[tuple[str, float]]] = [[("", 0.0)] for _ in texts]
        for row, hypotheses in zip(rows, found, strict=True):
            translations = self.target_tokenizer.decode([hypothesis.ids for hypothesis in hypotheses])
            if decoding.unk == "copy":
                for rank, hypothesis in enumerate(hypotheses):
                    if UNK_ID in hypothesis.ids:
                        translations[rank] = self._with_copies(texts[row], ids[row], hypothesis.ids)
            results[row] = [(text, each.score) for text, each in zip(translations, hypotheses, strict=True)]
        return results

    def _with_copies(self, text: str, source_ids: Sequence[int], target_ids: Sequence[int]) -> str:
        """The text of target ids, each unknown word replaced by the source word that it attends to most.

        If there are unknown words in the source, it is one of these: names are unknown on both sides, and attention
        often points beside them. After Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine
        Translation", section 3.3.
        """
        weights = self._cross_attention(source_ids, target_ids)[:-1, :-1]
        is_unknown = torch.tensor(source_ids) == UNK_ID
        if is_unknown.any():
            weights[:, ~is_unknown] = -1.0
        attended = weights.argmax(dim=1).tolist()
        surfaces = self.source_tokenizer.surfaces(text)
        tokens = self.target_tokenizer.tokens(target_ids)
        return self.target_tokenizer.join(
            [
                surfaces[source] if index == UNK_ID else token
                for index, token, source in zip(target_ids, tokens, attended, strict=True)
            ]
        )

    def _join(self, parts: list[tuple[str, list[tuple[str, float]]]]) -> list[tuple[str, float]]:
        """One list of hypotheses from those of consecutive parts, each with what stands after it."""
        num_hypotheses = min(len(hypotheses) for _, hypotheses in parts)
        return [
            (
                "".join(hypotheses[rank][0] + glue for glue, hypotheses in parts),
                sum(hypotheses[rank][1] for _, hypotheses in parts) / len(parts),
            )
            for rank in range(num_hypotheses)
        ]

    def _tagged_parts(self, text: str, tag: str | None) -> list[tuple[str, str]]:
        """`text` in parts that the model can read, each with its own tag or else with the one given."""
        rest = untagged(text, self.config.corpus.tags)
        own = text.partition(" ")[0] if rest != text else tag
        return [(f"{own} {part}" if own and part else part, glue) for part, glue in self._parts(rest)]

    def _parts(self, text: str, glue: str = "") -> list[tuple[str, str]]:
        """`text` in parts that the model can read, each with the text that stands between it and the next."""
        if len(self.source_tokenizer.encode([text])[0]) <= self.config.corpus.max_tokens or len(text) < 2:
            return [(text, glue)]
        end, between = _split_point(text)
        return self._parts(text[:end], between) + self._parts(text[end + len(between) :], glue)


@contextmanager
def _with_advice(directory: RunDirectory) -> Iterator[None]:
    """Inside, the message of a damaged checkpoint says what to do."""
    try:
        yield
    except DamagedFileError as error:
        advice = f"restore it, or have `mt train --config {directory.config_path}` make another of the last state"
        raise DamagedFileError(f"{error}; {advice}") from None


def _split_point(text: str) -> tuple[int, str]:
    """Where a long text is best parted, and what stands there: the end of a sentence, a comma, a space, or nothing.

    Of several places of the same kind the one nearest to the middle is taken.
    """
    middle = len(text) // 2
    for pattern in (r"(?<=[.!?…。！？]) ", r"(?<=[,;:]) ", " "):
        if places := [match.start() for match in re.finditer(pattern, text)]:
            nearest = min(places, key=lambda place: abs(place - middle))
            if pattern == " " or len(text) // 8 <= nearest <= len(text) - len(text) // 8:
                return nearest, " "
    return middle, ""
