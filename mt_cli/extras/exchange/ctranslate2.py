"""CTranslate2: its models, written from runs, and as an engine that translates.

An export succeeds only if both engines agree about the probabilities of the same translations.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.constraints import NEVER_PRODUCED, max_length
from mt_cli.decoding.engine import Ids, Reading, TransformerEngine
from mt_cli.decoding.search import Hypothesis, penalty
from mt_cli.errors import InputError, reason
from mt_cli.extras.exchange.agreement import Agreement, compare
from mt_cli.extras.exchange.description import DESCRIPTION, Description, describe
from mt_cli.extras.exchange.specification import specification
from mt_cli.machine.storage import check_regular, new_folder, read_model
from mt_cli.tokenizer.special import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair
from mt_cli.translation.translator import Translator


def import_ctranslate2() -> Any:
    """The package; raises InputError if it is not installed."""
    try:
        import ctranslate2.specs
    except ImportError:
        raise InputError("ctranslate2 is not installed; pip install 'ctranslate2>=4.5'") from None
    return ctranslate2


def load_served(paths: Sequence[str | Path], device: str, precision: str, checkpoint: str | None) -> Translator:
    """A translator with the model that `mt export --format ctranslate2` wrote into a folder, the only one of `paths`.

    Raises InputError if ctranslate2 is not installed, the folder has no such model, or precision or checkpoint are
    given: it has one of each.
    """
    if precision != "auto":
        raise InputError("precision: an exported model has its own number format; see mt export --quantization")
    if checkpoint is not None:
        raise InputError("checkpoint: an exported model has one checkpoint only; use the engine mt")
    if len(paths) > 1:
        raise InputError("exported models cannot be an ensemble; use the engine mt, or one folder")
    ctranslate2, folder = import_ctranslate2(), Path(paths[0])
    try:
        for path in folder.iterdir():
            check_regular(path)  # CTranslate2 itself would block on a pipe.
        found = read_model(folder / DESCRIPTION, Description)
        source = Tokenizer.load(folder / "tokenizer.source.json", found.tags)
        tokenizers = source, Tokenizer.load(folder / "tokenizer.target.json")
        engine = CTranslate2Engine(ctranslate2, folder, tokenizers, device)
    except (OSError, ValueError, RuntimeError, InputError) as error:  # RuntimeError includes RecursionError.
        raise InputError(
            f"{folder}: no model for --engine ctranslate2 ({reason(error)}); write one with "
            "`mt export --format ctranslate2 --output FOLDER` and use it with --run FOLDER"
        ) from None
    languages = found.source_language, found.target_language
    limits = found.max_tokens, found.tagging, languages, found.most_tokens
    return Translator(engine, tokenizers, found.decoding, *limits)


class CTranslate2Engine:
    """CTranslate2's search. Its length penalty divides by length^alpha, ours by ((5 + length) / 6)^alpha.

    A model that has learned nothing may generate special tokens that our search never generates. With `is_strict`, they
    are suppressed, which changes scores: CTranslate2 then shares out their probability among other tokens.
    """

    def __init__(
        self, ctranslate2: Any, folder: Path, tokenizers: TokenizerPair, device: str = "auto", is_strict: bool = False
    ) -> None:
        kind, _, index = device.partition(":")
        self._library, self._tokenizers = ctranslate2, tokenizers
        path, num_threads = os.fsencode(folder), torch.get_num_threads()  # The path may not be UTF-8.
        self._translator = ctranslate2.Translator(path, kind, device_index=int(index or 0), intra_threads=num_threads)
        target = tokenizers[1]
        self._suppressed = [[token] for token in target.tokens(NEVER_PRODUCED)] if is_strict else None
        self._ids = {token: index for index, token in enumerate(target.tokens(range(target.vocab_size)))}

    def search(
        self, sources: Sequence[Ids], decoding: DecodingConfig, num_best: int = 1, prefixes: Sequence[Ids] = ()
    ) -> list[list[Hypothesis]]:
        """See `Engine`. Sources with [UNK] in a hypothesis are searched again to get its attention."""
        found = self._search(sources, decoding, num_best, prefixes)
        if decoding.unk == "copy":
            rows = [row for row, each in enumerate(found) if any(UNK_ID in hypothesis.ids for hypothesis in each)]
            prefixes = [prefixes[row] for row in rows] if prefixes else ()
            again = self._search([sources[row] for row in rows], decoding, num_best, prefixes, with_attention=True)
            for row, hypotheses in zip(rows, again, strict=True):
                found[row] = hypotheses
        return found

    def _search(
        self,
        sources: Sequence[Ids],
        decoding: DecodingConfig,
        num_best: int,
        prefixes: Sequence[Ids],
        with_attention: bool = False,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source.

        CTranslate2 has one maximum length for all sources. Those whose translations are longer than their own maximum
        are searched again with it, so that a translation does not depend on the other sources.
        """
        limits = [
            max(max_length(len(ids), decoding), len(prefix), decoding.min_length)
            for ids, prefix in zip_longest(sources, prefixes, fillvalue=())
        ]
        found: list[list[Hypothesis]] = [[] for _ in sources]
        rows = {max(limits, default=0): list(range(len(sources)))}
        while rows:
            limit, places = rows.popitem()
            given = [prefixes[row] for row in places] if prefixes else ()
            results = self._limited([sources[row] for row in places], decoding, num_best, given, limit, with_attention)
            for row, hypotheses in zip(places, results, strict=True):
                found[row] = hypotheses
                if limits[row] < min(limit, max(len(each.ids) for each in hypotheses)):
                    rows.setdefault(limits[row], []).append(row)
        return found

    def _limited(
        self,
        sources: Sequence[Ids],
        decoding: DecodingConfig,
        num_best: int,
        prefixes: Sequence[Ids],
        limit: int,
        with_attention: bool,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, of at most `limit` tokens."""
        if not sources:
            return []
        self._library.set_random_seed(decoding.seed)
        source, target = self._tokenizers
        num_beams = 1 if decoding.sample else max(decoding.beam_size, num_best)
        sampling = {
            "sampling_topk": decoding.top_k or 0,
            "sampling_topp": decoding.top_p or 1.0,
            "sampling_temperature": decoding.temperature,
        }
        results = self._translator.translate_batch(
            [source.tokens(ids) for ids in sources],
            target_prefix=[target.tokens(ids) for ids in prefixes] if prefixes else None,
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
        return [self._hypotheses(result, decoding.length_penalty) for result in results]

    def _hypotheses(self, result: Any, length_penalty: float) -> list[Hypothesis]:
        found = []
        attentions = result.attention or [None] * len(result.hypotheses)
        for tokens, score, attention in zip(result.hypotheses, result.scores, attentions, strict=True):
            num_tokens = len(tokens) + 1
            our_score = score * num_tokens**length_penalty / penalty(num_tokens, length_penalty)
            weights = None if attention is None else torch.from_numpy(np.array(attention, dtype=np.float32))
            found.append(Hypothesis([self._ids[token] for token in tokens], our_score, weights))
        return sorted(found, key=lambda hypothesis: -hypothesis.score)

    def read(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Reading]:
        """See `Engine`; the readings have no attention."""
        source, target = self._tokenizers
        sources, targets = [source.tokens(ids) for ids, _ in pairs], [target.tokens(ids) for _, ids in pairs]
        results = self._translator.score_batch(sources, targets, max_input_length=0) if pairs else []
        return [
            Reading([log_prob if math.isfinite(log_prob) else -math.inf for log_prob in result.log_probs], None)
            for result in results
        ]


QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
_MAX_POSITIONS = 2**16


def export_ctranslate2(run: TrainedRun, output: Path, quantization: str, sentences: Sequence[str]) -> Agreement:
    """Write a CTranslate2 model into the new folder `output` and compare it with the run on the sentences.

    Raises InputError if ctranslate2 is not installed, or the folder exists or cannot be made. Raises MtError if the
    engines disagree or the folder cannot be written; nothing of it remains.
    """
    ctranslate2 = import_ctranslate2()
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: use one of {', '.join(QUANTIZATIONS)}")
    decoding, max_tokens = run.config.decoding, run.config.corpus.max_tokens
    num_positions = int(min(max_tokens * max(1.0, decoding.max_length_ratio), _MAX_POSITIONS)) + 12
    spec = specification(ctranslate2.specs, run.model, run.tokenizers, num_positions)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    with new_folder(output) as folder:
        spec.save(str(folder))
        describe(run, folder)
        sources = [ids[: run.max_tokens] for ids in run.tokenizers[0].encode(sentences) if ids]
        engine = CTranslate2Engine(ctranslate2, folder, run.tokenizers, "cpu", is_strict=True)
        agreement = compare(TransformerEngine(run.model), engine, sources, decoding)
        agreement.check(output, quantization)
    return agreement
