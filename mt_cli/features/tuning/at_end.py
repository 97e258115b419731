"""`training.tune_decoding`: choice of search options at the end of training."""

from __future__ import annotations

from dataclasses import dataclass

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.data.prepare import Data
from mt_cli.evaluation.scores import scorer_of
from mt_cli.features.tuning import tuning
from mt_cli.features.tuning.tuning import OutOfTimeError, TuningSet
from mt_cli.machine.console import clock, say
from mt_cli.translation.translator import Translator


@dataclass(frozen=True)
class Limits:
    """Settings that are tried at the end of training, and limits on text and time."""

    penalties: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0)
    no_repeat_ngrams: tuple[int | None, ...] = (None, 3)
    longest: float = 1.25
    """Largest length ratio of translations to references; chrF keeps rising even if translations are far too long
    (docs/recipes.md)."""
    margin: float = 0.5
    """Smallest gain on `valid` that counts. Smaller gains may be losses on the test set: captions gained 0.12 BLEU on
    `valid` and lost 0.35 on the test set."""
    margin_of_chrf: float = 0.25
    """Smallest gain that counts for chrF, which varies less; weak models are compared by chrF."""
    fewest_pairs: int = 100
    num_pairs: int = 600
    tokens_of_sentence: int = 40
    """Tokens of a sentence; if sentences are longer, as in character-level models, fewer are translated."""
    share_of_time: float = 0.25
    least_seconds: float = 120.0
    """Seconds that tuning may take even if `share_of_time` of the training time is less."""


def tune_at_end(
    directory: RunDirectory,
    config: Config,
    data: Data,
    device: str,
    precision: str,
    training_seconds: float,
    limits: Limits = Limits(),
) -> None:
    """Choose options of `decoding` for the best checkpoint of a run that is locked; write them into its config."""
    decoding, valid = config.decoding, data.corpora["valid"]
    if decoding.sample or decoding.beam_size == 1:
        return
    if len(valid) < limits.fewest_pairs:
        return say(f"note: valid has {len(valid)} pairs, too few to tune the search by (training.tune_decoding)")
    translator = Translator.load(directory.path, device, precision)
    compared = tuning_set(config, data, limits)
    penalties = [*limits.penalties, decoding.length_penalty, *decoding.length_penalties.values()]
    ngrams = [*limits.no_repeat_ngrams, decoding.no_repeat_ngram]
    settings = tuning.search_grid(decoding, [decoding.beam_size], penalties, ngrams)
    # In this order, settings with and without `no_repeat_ngram` are tried even if the time ends early.
    settings.sort(key=lambda setting: (setting.length_penalty, setting.no_repeat_ngram or 0))
    seconds = max(limits.least_seconds, limits.share_of_time * training_seconds)
    say(
        f"Choosing options of the search by {len(compared.pairs):,} pairs of valid (training.tune_decoding), in at "
        f"most {clock(seconds)}, which training.max_minutes does not count"
    )
    later = f"mt tune-decoding --run {directory.path}"
    margin = limits.margin_of_chrf if compared.metric == "chrf" else limits.margin
    try:
        result = tuning.tune(translator, compared, settings, margin, limits.longest, seconds)
    except OutOfTimeError:
        return say(f"note: this time was too short to try one setting; the search is not tuned; now: {later}")
    if (num_tried := len(result["trials"])) < len(settings):
        say(
            f"note: the time was enough for {num_tried} of {len(settings)} settings, so the choice depends on the "
            f"speed of this machine; with more time: {later}"
        )
    say(tuning.format_tuning(result | {"split": "valid"}, limits.longest))
    tuning.write_choice(directory, config, result["chosen"])


def tuning_set(config: Config, data: Data, limits: Limits) -> TuningSet:
    """Pairs for comparing settings: a sample of `valid`, smaller if sentences are long."""
    valid, scorer = data.corpora["valid"], scorer_of(config, "valid")
    languages = valid.languages(config.corpus.languages_of("valid"))
    compared = TuningSet(valid.pairs, languages, scorer, tuning.metric_of(config, scorer))
    length = max(limits.tokens_of_sentence, data.statistics["valid"].target.tokens_per_sentence)
    number = round(limits.num_pairs * limits.tokens_of_sentence / length)
    return compared.sampled(max(limits.fewest_pairs, number), config.training.seed)
