"""`training.tune_decoding`: options of the search, chosen when training ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.data.prepare import Data
from mt_cli.evaluation.evaluate import translations_of
from mt_cli.evaluation.texts import METRICS, scorer_of
from mt_cli.features.tuning.tuning import OutOfTimeError, TuningSet, metric_of, search_grid, tune, write_choice
from mt_cli.machine.console import clock, say
from mt_cli.translation.translator import Translator

_PENALTIES = (1.0, 1.5, 2.0, 3.0, 4.0)
_NGRAMS = (None, 3)
_LONGEST = 1.25
"""Largest number of characters, compared with the references: chrF goes on rising with translations that are far too
long (docs/recipes.md)."""
_MARGIN, _MARGIN_OF_CHRF = 0.5, 0.25
"""Smaller gains on `valid` may be losses on other text: captions lost 0.35 BLEU on the test set for 0.12 on `valid`.
chrF, by which weak models are compared, varies less."""
_FEWEST_PAIRS = 100
_PAIRS = 600
_PAIRS_OF_TAG = 200
_TOKENS_OF_SENTENCE = 40
"""Of longer sentences, in particular of those of a character-level model, fewer are translated."""


_SHARE_OF_TIME = 0.25
_LEAST_SECONDS = 120.0
"""Tuning takes at most this share of the training time, or this time if it is longer."""
_PROBED_PAIRS = 100
_LEAST_GAIN, _LEARNED = 0.5, 50.0
"""chrF by which translations must fit their own references better than other ones, unless they reach `_LEARNED`."""


def tune_at_end(
    directory: RunDirectory, config: Config, data: Data, device: str, precision: str, training_seconds: float
) -> None:
    """Choose options of `decoding` for the best checkpoint of a run that is locked; write them into its config.

    A model whose translations do not depend on their sources is not tuned: it has learned nothing yet, and its
    translations are as long as the search allows, which takes long.
    """
    decoding = config.decoding
    if decoding.sample or decoding.beam_size == 1:
        return
    valid = data.corpora["valid"]
    if len(valid) < _FEWEST_PAIRS:
        return say(f"note: valid has {len(valid)} pairs, too few to tune the search by (training.tune_decoding)")
    translator = Translator.load(directory.path, device, precision)
    compared = _tuning_set(config, data, len(translator.tags))
    penalties = [*_PENALTIES, decoding.length_penalty, *decoding.length_penalties.values()]
    settings = search_grid(decoding, [decoding.beam_size], penalties, [*_NGRAMS, decoding.no_repeat_ngram])
    # If the time ends early, some settings with and some without `no_repeat_ngram` were tried.
    settings.sort(key=lambda each: (each.length_penalty, each.no_repeat_ngram or 0))
    if not _has_learned(translator, compared):
        return say(
            "note: the search is not tuned (training.tune_decoding): the translations of valid do not depend on their "
            "sources, so the model has learned nothing yet; train longer, or check the data (mt data check)"
        )
    seconds = max(_LEAST_SECONDS, _SHARE_OF_TIME * training_seconds)
    say(
        f"Choosing options of the search by {len(compared.pairs):,} pairs of valid (training.tune_decoding), in at "
        f"most {clock(seconds)}, which training.max_minutes does not count"
    )
    if found := _tuned(translator, compared, settings, seconds, f"mt tune-decoding --run {directory.path}"):
        for line in _described(found):
            say(line)
        write_choice(directory, config, found["chosen"])


def _tuned(
    translator: Translator, compared: TuningSet, settings: Sequence[DecodingConfig], seconds: float, later: str
) -> dict[str, Any] | None:
    """The result of `tune` within some seconds, or None; says what was not tried, and the command that tries it."""
    margin = _MARGIN_OF_CHRF if compared.metric == "chrf" else _MARGIN
    try:
        found = tune(translator, compared, settings, margin, _LONGEST, seconds)
    except OutOfTimeError:
        say(f"note: this time was too short to try one setting; the search is not tuned; now: {later}")
        return None
    if len(found["trials"]) < found["num_settings"]:
        say(
            f"note: the time was enough for {len(found['trials'])} of {found['num_settings']} settings, so the choice "
            f"depends on the speed of this machine; with more time: {later}"
        )
    return found


def _tuning_set(config: Config, data: Data, num_tags: int) -> TuningSet:
    """The pairs to choose by: a sample of `valid`, smaller if sentences are long."""
    valid, scorer = data.corpora["valid"], scorer_of(config, "valid")
    languages = valid.languages(config.corpus.languages_of("valid"))
    compared = TuningSet(valid.pairs, languages, scorer, metric_of(config, scorer))
    length = max(_TOKENS_OF_SENTENCE, data.statistics["valid"].target.tokens_per_sentence)
    number = max(_PAIRS, _PAIRS_OF_TAG * num_tags) * _TOKENS_OF_SENTENCE / length
    return compared.sampled(max(_FEWEST_PAIRS * max(1, num_tags), round(number)), config.training.seed)


def _has_learned(translator: Translator, compared: TuningSet) -> bool:
    """Whether greedy translations of some pairs fit their own references better than those of other pairs."""
    some = compared.sampled(_PROBED_PAIRS, 0)
    greedy = translator.with_decoding(translator.decoding.greedy)
    texts, references = translations_of(greedy, some.pairs, lambda number: None), some.references
    others = [*references[1:], references[0]]
    own, other = (some.scorer.score(texts, each, ["chrf"])["chrf"].score for each in (references, others))
    return own >= _LEARNED or own - other >= _LEAST_GAIN


def _described(found: Mapping[str, Any]) -> Iterator[str]:
    """What was chosen at the end of training, and the scores, for people."""
    chosen, label = found["chosen"], METRICS[found["metric"]]
    by_ngram: dict[int | None, list[Mapping[str, Any]]] = {}
    for each in found["trials"]:
        by_ngram.setdefault(each["no_repeat_ngram"], []).append(each)
    own = chosen["no_repeat_ngram"]
    shown = f"decoding.length_penalty {chosen['length_penalty']:g}" + (f", no_repeat_ngram {own}" if own else "")
    yield f"{shown} ({label} of valid: {_listed(by_ngram.pop(own))})"
    for ngram, trials in by_ngram.items():
        yield f"  with{f' no_repeat_ngram {ngram}' if ngram else 'out no_repeat_ngram'}: {_listed(trials)}"
    penalties = chosen["length_penalties"] or {}
    for tag, trials in found["tags"].items():
        yield f"  {tag}  {penalties.get(tag, chosen['length_penalty']):g} ({_listed(trials)})"
    if found["tags"] and not penalties:
        yield f"  one for all tags: those that are best for each tag score less together ({label})"
    elif found["tags"]:
        yield f"  each tag with its own (decoding.length_penalties): {label} {chosen['score']:.2f}"


def _listed(trials: Sequence[Mapping[str, Any]]) -> str:
    """The score of each length penalty, and which make translations that are too long."""
    scores, too_long = list[str](), list[str]()
    for each in trials:
        row = f"{each['score']:.2f} with {each['length_penalty']:g}"
        is_long = each["length_ratio"] > _LONGEST
        (too_long if is_long else scores).append(f"{row}, {each['length_ratio']:.2f}" if is_long else row)
    refused = [f"translations too long, compared with the references: {'; '.join(too_long)}"] if too_long else []
    return "; ".join([", ".join(scores)][: len(scores)] + refused)
