"""CTranslate2 as a search engine: hypotheses and probabilities of an exported model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding, Ids, Sentence
from mt_cli.decoding.next_tokens import NEVER_PRODUCED, max_length
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.decoding.search import Hypothesis, penalty
from mt_cli.errors import InputError, one_line
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair


def import_ctranslate2() -> Any:
    """The package; raises InputError if it is not installed."""
    try:
        import ctranslate2.specs
    except ImportError:
        raise InputError("ctranslate2 is not installed; pip install 'ctranslate2>=4.5'") from None
    return ctranslate2


_FORMATS_ON_GPU = {"float32": "float16", "int8": "int8_float16", "int8_float32": "int8_float16"}
"""Number format in which a GPU computes, by the format of the file; other formats are kept."""


def load_translator(ctranslate2: Any, path: bytes, device: str, num_threads: int) -> Any:
    """The library's translator of an exported model. On a GPU, floating-point numbers have 16 bits.

    A CPU computes in the format of the file. The device that `auto` means and the format of a file are known only after
    loading, so a file of fp32 numbers is loaded twice on a GPU.
    """
    kind, _, index = device.partition(":")
    load = partial(ctranslate2.Translator, path, kind, device_index=int(index or 0), intra_threads=num_threads)
    translator = load()
    if translator.device != "cuda":
        return translator
    compute_type = _FORMATS_ON_GPU.get(translator.compute_type)
    if compute_type not in ctranslate2.get_supported_compute_types("cuda", int(index or 0)):
        return translator
    translator.unload_model()
    return load(compute_type=compute_type)


_FEWEST_BEAMS_AGAIN = 8
_ATTENDED_BATCH_TOKENS = 2048


def _within_positions(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Call the library; raises InputError if a side has more tokens than the exported model has positions."""
    try:
        return work(*arguments, **options)
    except RuntimeError as error:
        if "position encodings" not in str(error):
            raise
        raise InputError(f"a side has more tokens than this exported model has positions: {one_line(error)}") from None


class CTranslate2Engine:
    """CTranslate2's search. Its length penalty divides by length^alpha, ours by ((5 + length) / 6)^alpha.

    A model that has learned nothing may generate special tokens that our search never generates. With `is_strict`, they
    are suppressed, which changes scores, because CTranslate2 then gives their probability to other tokens.
    """

    def __init__(
        self,
        ctranslate2: Any,
        folder: Path,
        tokenizers: TokenizerPair,
        device: str = "auto",
        is_strict: bool = False,
        reserved: ReservedIds | None = None,
    ) -> None:
        self._library, self._tokenizers, self._reserved = ctranslate2, tokenizers, reserved
        path = os.fsencode(folder)  # It may not be UTF-8.
        self._translator = load_translator(ctranslate2, path, device, torch.get_num_threads())
        target = tokenizers[1]
        self._suppressed = [[token] for token in target.tokens(NEVER_PRODUCED)] if is_strict else None
        self._ids = {token: index for index, token in enumerate(target.tokens(range(target.vocab_size)))}

    def search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """See `Engine`. If a hypothesis contains [UNK], its source is searched again, with attention.

        If it lacks a reserved entry of its source, has it too often, or has another order of those that keep it, its
        source is searched with more beams.
        """
        hypotheses = self._search(sentences, decoding, num_best)
        if self._reserved is not None:
            self._replace_wrong_copies(self._reserved, sentences, decoding, num_best, hypotheses)
        if decoding.unk == "copy":
            rows = [
                row for row, nbest in enumerate(hypotheses) if any(UNK_ID in hypothesis.ids for hypothesis in nbest)
            ]
            again = self._search([sentences[row] for row in rows], decoding, num_best, with_attention=True)
            for row, nbest in zip(rows, again, strict=True):
                hypotheses[row] = nbest
        return self._rescored(sentences, hypotheses, decoding)

    def _rescored(
        self, sentences: Sequence[Sentence], hypotheses: Sequence[list[Hypothesis]], decoding: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Hypotheses with our scores where those of the library count other tokens.

        Our score leaves out the tokens of a prefix, and includes [EOS] if the maximum length ends a hypothesis.
        """
        places = [
            (row, rank)
            for row, sentence in enumerate(sentences)
            for rank, best in enumerate(hypotheses[row])
            if sentence.prefix or len(best.ids) >= max_length(len(sentence.ids), decoding)
        ]
        pairs = [(sentences[row].ids, hypotheses[row][rank].ids) for row, rank in places]
        changed = [list(nbest) for nbest in hypotheses]
        for (row, rank), forced in zip(places, self.force_decode(pairs), strict=True):
            best, counted = changed[row][rank], forced.log_probs[len(sentences[row].prefix) :]
            score = sum(counted) / penalty(len(best.ids) + 1, decoding.length_penalty)
            changed[row][rank] = replace(best, score=score)
        return [sorted(nbest, key=lambda hypothesis: -hypothesis.score) for nbest in changed]

    def _replace_wrong_copies(
        self,
        reserved: ReservedIds,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        num_best: int,
        hypotheses: list[list[Hypothesis]],
    ) -> None:
        """Replace hypotheses with other reserved entries than their source if a search with more beams finds better."""

        def is_wrong(row: int, hypothesis: Hypothesis) -> bool:
            return not reserved.are_copied(sentences[row].ids, hypothesis.ids, sentences[row].order)

        rows = [row for row, nbest in enumerate(hypotheses) if any(is_wrong(row, best) for best in nbest)]
        again = self._search([sentences[row] for row in rows], decoding, max(2 * num_best, _FEWEST_BEAMS_AGAIN))
        for row, nbest in zip(rows, again, strict=True):
            hypotheses[row] = sorted([*hypotheses[row], *nbest], key=partial(is_wrong, row))[:num_best]

    def _search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int, with_attention: bool = False
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each source, which begin with its prefix.

        CTranslate2 has one maximum length for all sources. If a translation exceeds the maximum of its source, it
        is searched again with this maximum, so that a translation does not depend on the other sources.
        """
        limits = [
            max(max_length(len(sentence.ids), decoding), len(sentence.prefix), decoding.min_length)
            for sentence in sentences
        ]
        hypotheses: list[list[Hypothesis]] = [[] for _ in sentences]
        rows_of_limit = {max(limits): list(range(len(sentences)))} if sentences else {}
        while rows_of_limit:
            limit, rows = rows_of_limit.popitem()
            results = self._translate([sentences[row] for row in rows], decoding, num_best, limit, with_attention)
            for row, result in zip(rows, results, strict=True):
                hypotheses[row] = self._hypotheses(result, decoding.length_penalty)
                if limits[row] < min(limit, max(len(hypothesis.ids) for hypothesis in hypotheses[row])):
                    rows_of_limit.setdefault(limits[row], []).append(row)
        return hypotheses

    def _translate(
        self,
        sentences: Sequence[Sentence],
        decoding: DecodingConfig,
        num_best: int,
        limit: int,
        with_attention: bool,
    ) -> list[Any]:
        """Results of the library, with hypotheses of at most `limit` tokens."""
        self._library.set_random_seed(decoding.seed)
        source, target = self._tokenizers
        prefixes = [target.tokens(sentence.prefix) for sentence in sentences]
        num_beams = 1 if decoding.sample else max(decoding.beam_size, num_best)
        sampling = {
            "sampling_topk": decoding.top_k or 0,
            "sampling_topp": decoding.top_p or 1.0,
            "sampling_temperature": decoding.temperature,
        }
        results: list[Any] = _within_positions(
            self._translator.translate_batch,
            [source.tokens(sentence.ids) for sentence in sentences],
            target_prefix=prefixes if any(prefixes) else None,
            max_batch_size=max(1, decoding.batch_tokens // num_beams),
            batch_type="tokens",
            beam_size=num_beams,
            num_hypotheses=num_best,
            length_penalty=decoding.length_penalty,
            no_repeat_ngram_size=decoding.no_repeat_ngram or 0,
            disable_unk=decoding.unk == "avoid",
            suppress_sequences=self._suppressed,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=decoding.min_length,
            return_scores=True,
            return_attention=with_attention,
            **(sampling if decoding.sample else {}),
        )
        return results

    def _hypotheses(self, result: Any, length_penalty: float) -> list[Hypothesis]:
        hypotheses = []
        attentions = result.attention or [None] * len(result.hypotheses)
        for tokens, score, attention in zip(result.hypotheses, result.scores, attentions, strict=True):
            num_tokens = len(tokens) + 1
            our_score = score * num_tokens**length_penalty / penalty(num_tokens, length_penalty)
            weights = None if attention is None else torch.from_numpy(np.array(attention, dtype=np.float32))
            hypotheses.append(Hypothesis([self._ids[token] for token in tokens], our_score, weights))
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`; without attention."""
        source, target = self._tokenizers
        sources, targets = [source.tokens(ids) for ids, _ in pairs], [target.tokens(ids) for _, ids in pairs]
        score = partial(_within_positions, self._translator.score_batch, max_input_length=0)
        results = score(sources, targets) if pairs else []
        return [
            ForcedDecoding([log_prob if math.isfinite(log_prob) else -math.inf for log_prob in result.log_probs], None)
            for result in results
        ]

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Tensor]:
        """Compute the cross-attention of each pair, (T+1)x(S+1), in the layer that the export has chosen.

        The last row and column, which are [EOS], are zeros.
        """
        source, target = self._tokenizers
        weights = [torch.zeros(len(target_ids) + 1, len(source_ids) + 1) for source_ids, target_ids in pairs]
        rows = [row for row, pair in enumerate(pairs) if all(pair)]
        if not rows:
            return weights
        results = _within_positions(
            self._translator.translate_batch,
            [source.tokens(pairs[row][0]) for row in rows],
            target_prefix=[target.tokens(pairs[row][1]) for row in rows],
            max_batch_size=_ATTENDED_BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(len(pairs[row][1]) for row in rows),
            return_attention=True,
        )
        for row, result in zip(rows, results, strict=True):
            attention = torch.from_numpy(np.array(result.attention[0], dtype=np.float32))[: len(pairs[row][1])]
            weights[row][: attention.shape[0], : attention.shape[1]] = attention
        return weights
