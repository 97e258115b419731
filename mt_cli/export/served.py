"""A model that was exported to CTranslate2, as an engine that translates."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, Field

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Ids, Reading
from mt_cli.decoding.search import Hypothesis, penalty
from mt_cli.errors import InputError, RunError, reason
from mt_cli.storage import check_regular, read_regular
from mt_cli.tokenizer import UNK_ID, Tokenizer, TokenizerPair
from mt_cli.translator.translator import Translator

DESCRIPTION = "model.json"
_MAX_DESCRIPTION_BYTES = 2**24


class _Description(BaseModel):
    """What of an exported model's description is used."""

    tags: tuple[str, ...]
    max_tokens: int = Field(ge=1, le=2**31)
    decoding: DecodingConfig
    source_language: str
    target_language: str


def import_ctranslate2() -> Any:
    """The package; raises InputError if it is not installed."""
    try:
        import ctranslate2.specs
    except ImportError:
        raise InputError("ctranslate2 is not installed; pip install 'ctranslate2>=4.5'") from None
    return ctranslate2


def load_served(folder: str | Path, device: str = "auto") -> Translator:
    """A translator that uses the model which `mt export --format ctranslate2` wrote into a folder.

    Raises:
        InputError: if ctranslate2 is not installed, or the folder holds no such model.
    """
    ctranslate2, folder = import_ctranslate2(), Path(folder)
    try:
        for path in folder.iterdir():
            check_regular(path)  # CTranslate2 itself would wait at a pipe.
        content = json.loads(read_regular(folder / DESCRIPTION, _MAX_DESCRIPTION_BYTES))
        found = _Description.model_validate(content)
        files = (folder / "tokenizer.source.json", folder / "tokenizer.target.json")
        tokenizers = Tokenizer.load(files[0], found.tags), Tokenizer.load(files[1])
        engine = CTranslate2Engine(ctranslate2, folder, tokenizers, device)
    except (OSError, ValueError, RuntimeError, RunError) as error:  # Also RecursionError.
        problem = (reason(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"{folder}: no model for --engine ctranslate2 ({problem}); write one with "
            "`mt export --format ctranslate2 --output FOLDER` and give that folder with --run"
        ) from None
    languages = found.source_language, found.target_language
    return Translator(engine, tokenizers, found.decoding, found.max_tokens, found.tags, languages)


class CTranslate2Engine:
    """CTranslate2's search. Its length penalty divides by length^alpha, ours by ((5 + length) / 6)^alpha."""

    def __init__(self, ctranslate2: Any, folder: Path, tokenizers: TokenizerPair, device: str = "auto") -> None:
        kind, _, index = device.partition(":")
        threads = {"intra_threads": torch.get_num_threads()}
        self._library = ctranslate2
        path = os.fsencode(folder)  # It need not be UTF-8.
        self._translator = ctranslate2.Translator(path, device=kind, device_index=int(index or 0), **threads)
        self._tokenizers = tokenizers
        target = tokenizers[1]
        self._ids = {token: index for index, token in enumerate(target.tokens(range(target.vocab_size)))}

    def search(
        self, sources: Sequence[Ids], decoding: DecodingConfig, num_best: int = 1, prefixes: Sequence[Ids] = ()
    ) -> list[list[Hypothesis]]:
        """As `Engine` says. A translation that holds [UNK] is sought again, with what it attends to."""
        source, target = self._tokenizers
        tokens = [source.tokens(ids) for ids in sources]
        beginnings = [target.tokens(ids) for ids in prefixes] if prefixes else None
        found = self._translate(tokens, beginnings, decoding, num_best)
        if decoding.unk == "copy":
            rows = [row for row, each in enumerate(found) if any(UNK_ID in hypothesis.ids for hypothesis in each)]
            beginnings = [beginnings[row] for row in rows] if beginnings else None
            again = self._translate([tokens[row] for row in rows], beginnings, decoding, num_best, attention=True)
            for row, hypotheses in zip(rows, again, strict=True):
                found[row] = hypotheses
        return found

    def _translate(
        self,
        tokens: list[list[str]],
        prefixes: list[list[str]] | None,
        decoding: DecodingConfig,
        num_best: int,
        attention: bool = False,
    ) -> list[list[Hypothesis]]:
        if not tokens:
            return []
        self._library.set_random_seed(decoding.seed)
        num_beams = 1 if decoding.sample else max(decoding.beam_size, num_best)
        longest = int(max(map(len, tokens)) * decoding.max_length_ratio) + 10
        if decoding.max_length is not None:
            longest = min(longest, decoding.max_length)
        drawing = {
            "sampling_topk": decoding.top_k or 0,
            "sampling_topp": decoding.top_p or 1.0,
            "sampling_temperature": decoding.temperature,
        }
        results = self._translator.translate_batch(
            tokens,
            target_prefix=prefixes,
            max_batch_size=max(1, decoding.batch_tokens // num_beams),
            batch_type="tokens",
            beam_size=num_beams,
            num_hypotheses=num_best,
            length_penalty=decoding.length_penalty,
            no_repeat_ngram_size=decoding.no_repeat_ngram or 0,
            disable_unk=decoding.unk == "avoid",
            max_input_length=0,
            max_decoding_length=max(longest, max(map(len, prefixes), default=0) if prefixes else 0),
            min_decoding_length=decoding.min_length,
            return_scores=True,
            return_attention=attention,
            **(drawing if decoding.sample else {}),
        )
        return [self._hypotheses(result, decoding.length_penalty) for result in results]

    def _hypotheses(self, result: Any, length_penalty: float) -> list[Hypothesis]:
        found = []
        attentions = result.attention or [None] * len(result.hypotheses)
        for tokens, score, attention in zip(result.hypotheses, result.scores, attentions, strict=True):
            log_prob = score * (len(tokens) + 1) ** length_penalty
            weights = None if attention is None else torch.from_numpy(np.array(attention, dtype=np.float32))
            ours = log_prob / penalty(len(tokens) + 1, length_penalty)
            found.append(Hypothesis([self._ids[token] for token in tokens], ours, weights))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def read(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Reading]:
        """As `Engine` says, without attention."""
        source, target = self._tokenizers
        sources, targets = [source.tokens(ids) for ids, _ in pairs], [target.tokens(ids) for _, ids in pairs]
        results = self._translator.score_batch(sources, targets, max_input_length=0) if pairs else []
        return [
            Reading([log_prob if math.isfinite(log_prob) else -math.inf for log_prob in result.log_probs], None)
            for result in results
        ]
