"""CTranslate2 as a search engine: hypotheses and probabilities of an exported model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Attention, ForcedDecoding, Hypothesis, Ids, NBest, Sentence, max_length, penalty_of
from mt_cli.errors import InputError, one_line
from mt_cli.tokenizer.special_tokens import NEVER_PRODUCED
from mt_cli.tokenizer.tokenizer import TokenizerPair


def import_ctranslate2() -> Any:
    """The package; raises InputError if it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        raise InputError("ctranslate2 is not installed; pip install 'ctranslate2>=4.5'") from None
    return ctranslate2


_FORMATS_ON_GPU = {"float32": "float16", "int8": "int8_float16", "int8_float32": "int8_float16"}
"""Dtype in which a GPU computes, by the dtype of the file; other dtypes are kept."""


def load_translator(ctranslate2: Any, path: bytes, device: str, num_threads: int) -> Any:
    """The library's translator of an exported model, with 16 bits on a GPU and in the dtype of the file on a CPU.

    What `auto` means and the dtype of the file are known only after loading, so a GPU loads a file in fp32 twice.
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


_ATTENDED_BATCH_TOKENS = 2048


class CTranslate2Engine:
    """CTranslate2's search. Its length penalty divides by length^alpha, ours by ((5 + length) / 6)^alpha.

    Its scores include the tokens of a prefix, and leave out [EOS] where the maximum length ends a hypothesis. A model
    that has learned nothing may generate special tokens that our search never generates. With `is_strict`, they are
    suppressed, which changes scores, because CTranslate2 then gives their probability to other tokens.
    """

    def __init__(
        self, folder: Path, tokenizers: TokenizerPair, device: str, num_threads: int, is_strict: bool = False
    ) -> None:
        """Raises InputError if ctranslate2 is not installed, and errors of the library if the folder has no model."""
        self._library = import_ctranslate2()
        path = os.fsencode(folder)  # It may not be UTF-8.
        self._translator = load_translator(self._library, path, device, num_threads)
        source, target = tokenizers
        self._source_tokens = source.tokens(range(source.vocab_size))
        self._target_tokens = self._source_tokens if target is source else target.tokens(range(target.vocab_size))
        self._suppressed = [[token] for token in target.tokens(NEVER_PRODUCED)] if is_strict else None
        self._ids = {token: index for index, token in enumerate(self._target_tokens)}
        self.is_on_gpu = self._translator.device != "cpu"

    def search(self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1) -> list[NBest]:
        """See `Engine`; nothing keeps the reserved tokens of a source in its translation.

        CTranslate2 has one maximum length for all sources; a longer translation is truncated to that of its source.
        """
        if not sentences:
            return []
        self._library.set_random_seed(decoding.seed)
        limits = [max(max_length(len(sentence.ids), decoding), len(sentence.prefix)) for sentence in sentences]
        num_beams = 1 if decoding.sample else max(decoding.beam_size, num_best)
        sampling = {
            "sampling_topk": 0,
            "sampling_topp": decoding.top_p or 1.0,
            "sampling_temperature": decoding.temperature,
        }
        results = self._call(
            "translate_batch",
            [sentence.ids for sentence in sentences],
            [sentence.prefix for sentence in sentences] if any(sentence.prefix for sentence in sentences) else (),
            max_batch_size=max(1, decoding.batch_tokens // num_beams),
            batch_type="tokens",
            beam_size=num_beams,
            num_hypotheses=num_best,
            length_penalty=decoding.length_penalty,
            no_repeat_ngram_size=decoding.no_repeat_ngram or 0,
            disable_unk=decoding.unk == "avoid",
            suppress_sequences=self._suppressed,
            max_decoding_length=max(limits),
            min_decoding_length=0,
            return_scores=True,
            **(sampling if decoding.sample else {}),
        )
        alpha = decoding.length_penalty
        return [self._hypotheses(result, alpha, limit) for result, limit in zip(results, limits, strict=True)]

    def _call(self, method: str, sources: Sequence[Ids], targets: Sequence[Ids], **options: Any) -> Sequence[Any]:
        """Call the library with ids; raises InputError if a side has more tokens than the model has positions."""
        source_tokens = [[self._source_tokens[index] for index in ids] for ids in sources]
        target_tokens = [[self._target_tokens[index] for index in ids] for ids in targets]
        call = getattr(self._translator, method)
        try:
            results: Sequence[Any] = call(source_tokens, target_tokens or None, max_input_length=0, **options)
        except RuntimeError as error:
            if "position encodings" not in str(error):
                raise
            problem = "a side has more tokens than this exported model has positions"
            raise InputError(f"{problem}: {one_line(error)}") from None
        return results

    def _hypotheses(self, result: Any, alpha: float, limit: int) -> NBest:
        hypotheses = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            num_tokens = len(tokens) + 1
            our_score = score * num_tokens**alpha / penalty_of(num_tokens, alpha)
            hypotheses.append(Hypothesis([self._ids[token] for token in tokens[:limit]], our_score))
        return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`; without attention."""
        results = self._call("score_batch", *zip(*pairs, strict=True)) if pairs else []
        return [
            ForcedDecoding([log_prob if math.isfinite(log_prob) else -math.inf for log_prob in result.log_probs], None)
            for result in results
        ]

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        """Compute the cross-attention of each pair, (T+1)x(S+1), in the layer that the export has chosen.

        The last row and column, which are [EOS], are zeros.
        """
        maps = [np.zeros((len(target_ids) + 1, len(source_ids) + 1), np.float32) for source_ids, target_ids in pairs]
        rows = [row for row, pair in enumerate(pairs) if all(pair)]
        if not rows:
            return maps
        results = self._call(
            "translate_batch",
            *zip(*(pairs[row] for row in rows), strict=True),
            max_batch_size=_ATTENDED_BATCH_TOKENS,
            batch_type="tokens",
            beam_size=1,
            max_decoding_length=max(len(pairs[row][1]) for row in rows),
            return_attention=True,
        )
        for row, result in zip(rows, results, strict=True):
            attention = np.array(result.attention[0], np.float32)[: len(pairs[row][1])]
            maps[row][: attention.shape[0], : attention.shape[1]] = attention
        return maps
