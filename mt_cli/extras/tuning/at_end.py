"""`training.tune_decoding`: options of the search, chosen when training ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mt_cli.evaluation.texts import METRICS, scorer_of
from mt_cli.extras.tuning.tuning import TuningSet, metric_of, search_grid, tune, write_choice
from mt_cli.machine.console import say
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from mt_cli.run.setup import Setup

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


def tune_at_end(setup: Setup) -> None:
    """Choose options of `decoding` for the best checkpoint of a run that is locked; write them into its config."""
    config, directory = setup.config, setup.directory
    decoding = config.decoding
    if decoding.sample or decoding.beam_size == 1:
        return
    valid, scorer = setup.data.corpora["valid"], scorer_of(config, "valid")
    if len(valid) < _FEWEST_PAIRS:
        return say(f"note: valid has {len(valid)} pairs, too few to tune the search by (training.tune_decoding)")
    translator = Translator.load(directory.path, str(setup.device), setup.precision)
    languages = valid.languages(config.corpus.languages_of("valid"))
    compared = TuningSet(valid.pairs, languages, scorer, metric_of(config, scorer))
    length = max(_TOKENS_OF_SENTENCE, setup.data.statistics["valid"].target.tokens_per_sentence)
    number = max(_PAIRS, _PAIRS_OF_TAG * len(translator.tags)) * _TOKENS_OF_SENTENCE / length
    fewest = _FEWEST_PAIRS * max(1, len(translator.tags))
    compared = compared.sampled(max(fewest, round(number)), config.training.seed)
    penalties = [*_PENALTIES, decoding.length_penalty, *decoding.length_penalties.values()]
    settings = search_grid(decoding, [decoding.beam_size], penalties, [*_NGRAMS, decoding.no_repeat_ngram])
    say(f"Choosing options of the search by {len(compared.pairs):,} pairs of valid (training.tune_decoding)")
    margin = _MARGIN_OF_CHRF if compared.metric == "chrf" else _MARGIN
    found = tune(translator, compared, settings, margin, _LONGEST)
    for line in _described(found):
        say(line)
    write_choice(directory, config, found["chosen"])


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
    for tag, trials in found["tags"].items():
        yield f"  {tag}  {chosen['length_penalties'][tag]:g} ({_listed(trials)})"
    if found["tags"]:
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
