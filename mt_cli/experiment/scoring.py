"""Scores of a translator on test sets and the end of a run, as a report has them and as people read them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mt_cli.console import Progress, clock, say
from mt_cli.corpus.reading import Pair
from mt_cli.errors import InputError, MtError
from mt_cli.evaluation.texts import Scorer
from mt_cli.storage import make_folder, write_text
from mt_cli.translator import Translator

_SENTENCES_AT_ONCE = 2048


def evaluate(
    translator: Translator, pairs: Sequence[Pair], split: str, scorer: Scorer, **decoding: Any
) -> tuple[dict[str, Any], list[str]]:
    """Scores of a translator on pairs, and its translations.

    `{"split", "num_sentences", "bleu", "chrf", "chrf++", "ter", "cer", "wer", "exact_match", "speed"}`: each metric
    with score, signature and the half width of its 95 % confidence interval; `exact_match` is the share of
    translations, 0-100, that equal their reference. Languages without
    spaces have no `wer`, and all but Chinese and Japanese no `ter`.
    """
    references = [target for _, target in pairs]
    started_at = time.perf_counter()
    with Progress(f"translate {split}", len(pairs), "sentence", is_quiet=True) as progress:
        hypotheses: list[str] = []
        for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
            some = [source for source, _ in pairs[start : start + _SENTENCES_AT_ONCE]]
            hypotheses.extend(translator.translate(some, **decoding))
            progress.advance(len(some))
    seconds = time.perf_counter() - started_at
    num_tokens = sum(len(ids) + 1 for ids in translator.target_tokenizer.encode(hypotheses))
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    scores = scorer.score(hypotheses, references)
    for name, half_width in scorer.confidence(hypotheses, references).items():
        scores[name]["confidence_95"] = half_width
    return {
        "split": split,
        "num_sentences": len(pairs),
        "beam_size": decoding.get("beam_size", translator.decoding.beam_size),
        **scores,
        "exact_match": round(100 * num_equal / len(pairs), 4),
        "speed": {
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(pairs) / seconds, 2),
            "tokens_per_second": round(num_tokens / seconds, 1),
        },
    }, hypotheses


def compare(
    scorer: Scorer, hypotheses: Sequence[str], rivals: Sequence[str], pairs: Sequence[Pair], name: str
) -> dict[str, dict[str, float] | str]:
    """The scores of other translations of the same pairs, and whether chance alone explains the difference."""
    return {"system": name, **scorer.compare(hypotheses, rivals, [target for _, target in pairs])}


def write_hypotheses(run: Path, split: str, hypotheses: Sequence[str]) -> None:
    """Write translations into the run directory, one a line; where that cannot be, say so and go on."""
    path = run / "hypotheses" / f"{split}.txt"
    try:
        make_folder(path.parent)
        write_text(path, "".join(f"{hypothesis}\n" for hypothesis in hypotheses))
    except (OSError, ValueError, MtError) as error:  # A test set may have a name that no file can have.
        say(f"The translations were not written to {path}: {error}")


def load_comet(name: str) -> Any:
    """A COMET model (Rei et al. 2020), a name of the Hugging Face hub or a checkpoint file.

    Raises:
        InputError: if the package is not installed, or the model cannot be had.
    """
    try:
        import comet
    except ImportError:
        raise InputError("--comet: COMET is not installed; pip install 'mt-cli[comet]'") from None
    try:
        return comet.load_from_checkpoint(name if Path(name).is_file() else comet.download_model(name))
    except Exception as error:  # Whatever libraries for downloads and checkpoints raise.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"--comet {name}: this model cannot be had ({reason[:200]}); it is downloaded from the Hugging Face hub "
            "once, or give the path of a checkpoint file"
        ) from None


def comet_score(model: Any, pairs: Sequence[Pair], hypotheses: Sequence[str]) -> dict[str, float]:
    """`{"score": ...}` of translations, as the model defines it."""
    rows = [
        {"src": source, "mt": hypothesis, "ref": target}
        for (source, target), hypothesis in zip(pairs, hypotheses, strict=True)
    ]
    return {
        "score": round(float(model.predict(rows, batch_size=16, gpus=int(torch.cuda.is_available())).system_score), 4)
    }


LABELS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER", "cer": "CER", "wer": "WER"}


def format_scores(scores: Mapping[str, Any]) -> str:
    """The scores of one test set for people, several lines."""
    lines = [f"{scores['split']} ({scores['num_sentences']:,} sentences, beam {scores['beam_size']})"]
    for name, label in LABELS.items():
        if name in scores:
            width = scores[name].get("confidence_95")
            interval = f" ± {width:.2f}" if width is not None else ""
            lines.append(f"  {label:<7}{scores[name]['score']:6.2f}{interval}  {scores[name]['signature']}")
    if "comet" in scores:
        lines.append(f"  COMET  {scores['comet']['score']:6.4f}")
    lines.append(f"  exact  {scores['exact_match']:6.2f}  % of sentences equal to their reference")
    if "speed" in scores:
        speed = scores["speed"]
        rates = f"{speed['sentences_per_second']:,.1f} sentences and {speed['tokens_per_second']:,.0f} tokens a second"
        lines.append(f"  speed  {rates}")
    if "against" in scores:
        rival = scores["against"]
        lines.append(f"against {rival['system']} (paired bootstrap, 1,000 samples)")
        for name, label in [(name, label) for name, label in LABELS.items() if name in rival]:
            difference = scores[name]["score"] - rival[name]["score"]
            verdict = "significant" if rival[name]["p_value"] < 0.05 else "not significant"
            lines.append(
                f"  {label:<7}{rival[name]['score']:6.2f}  difference {difference:+.2f}, "
                f"p = {rival[name]['p_value']:.3f}: {verdict}"
            )
    return "\n".join(lines)


def format_summary(report: Mapping[str, Any], path: Path) -> str:
    """How a run ended, for people, several lines."""
    lines = [
        f"\nStopped by {report['stopped_because']} after {report['num_steps']:,} steps, "
        f"{report['num_target_tokens']:,} target tokens and {clock(report['elapsed_seconds'])}; "
        f"best step {report['best_step']:,}."
    ]
    if report["num_bad_steps"]:
        lines.append(
            f"{report['num_bad_steps']:,} steps were skipped because of a loss or gradient that was not finite."
        )
    lines.extend(map(format_scores, (report, *report["extra_tests"].values())))
    lines.append(
        f"\nEverything is in {path}: report.json, samples.txt, metrics.jsonl, hypotheses/, checkpoints/best.safetensors"
    )
    lines.append(f'Translate with it:  mt translate --run {path} "..."')
    lines.append(f"A page about it:    mt report --run {path}")
    lines.append(f"See how it learned: tensorboard --logdir {path.parent}")
    return "\n".join(lines)
