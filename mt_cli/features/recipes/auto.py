"""`preset: auto`: the options chosen by the facts of a corpus. The numbers are in `config/presets.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np

from mt_cli.config import presets
from mt_cli.config.loading import with_values
from mt_cli.config.presets import PRESETS, SECTIONS, Level, Values
from mt_cli.config.sections import WITHOUT_SUBWORDS, Config, may_change
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, estimate_epoch, prepare, read
from mt_cli.features.exchange.huggingface import unsupported
from mt_cli.features.recipes.facts import Facts, find_facts, rounded
from mt_cli.features.recipes.levels import expectation, is_smaller, level_of, num_tokens, shortened, size_of
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.console import say
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.steps import count_steps

_AUTOMATIC_BATCH = 4_096
"""Size of a batch by which the steps are counted if `batch_tokens: auto` will be found later."""
_MIN_EPOCHS, _MAX_EPOCHS = 3, 200
_NUM_VALIDATIONS, _FEWEST_VALIDATIONS = 40, 12
_PATIENCE = 3 / 8
"""As a share of the validations."""
_SHARE_OF_VALIDATIONS, _COST_OF_TRANSLATION = 0.15, 2
"""Of the time of training, about, and how many tokens are trained on while greedy search makes one."""
_MIN_VOCABULARY, _NUM_BYTES = 400, 256


class Choice(NamedTuple):
    """The value of an option, with the reason for it."""

    value: Any
    why: str


Choices = Mapping[str, Mapping[str, Choice]]
"""Choices by section and key."""


@dataclass(frozen=True)
class Epoch:
    """The batches of an epoch of the training pairs, replayed ones included."""

    num_batches: int
    training: TrainingConfig
    """Without the length of the run."""
    num_processes: int = 1
    num_valid_tokens: int = 0
    """Target tokens of `valid`."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens, as `batch_tokens` counts them."""
        return max(1, self.num_batches) * self.training.tokens_per_batch

    def num_steps(self, num_epochs: int) -> int:
        """The number of updates in some epochs, in one process."""
        return count_steps(self.training, 1, self.num_batches, num_epochs)

    def num_validations(self, num_steps: int) -> int:
        """How many validations there are in some updates: fewer, if `valid` is large compared with them."""
        num_tokens = num_steps * self.training.tokens_per_batch
        fitting = _SHARE_OF_VALIDATIONS * num_tokens / (_COST_OF_TRANSLATION * max(1, self.num_valid_tokens))
        return round(min(max(fitting, _FEWEST_VALIDATIONS), _NUM_VALIDATIONS))


@dataclass(frozen=True)
class Decision:
    """What stands for `preset: auto`."""

    facts: Facts
    choices: Choices
    config: Config
    """With the values chosen, except where the config has others."""
    data: Data | None
    """The corpora and tokenizers of that config; None for a stream."""


@dataclass(frozen=True)
class Circumstances:
    """What a decision depends on besides the config. All may be left out."""

    previous: Config | None = None
    """The config of a run that resumes: options that may not change keep its values."""
    tokenizers: TokenizerPair | None = None
    """Those of the run that resumes or that training begins with."""
    num_own: int | None = None
    """How many of the corpora of `train` are the run's own; the others are replayed."""
    stream_rows: int | None = None
    """See `prepare`."""
    num_processes: int = 1
    """Those that will train."""
    is_quiet: bool = False
    """Whether what is chosen is not printed."""


def decide(config: Config, cache: Cache, known: Circumstances = Circumstances()) -> Decision:
    """The values for `preset: auto`.

    Tokenizer and model follow from the text. The tokenizer is then trained, and the length of the run follows from the
    tokens. Raises the errors of `prepare`, and ConfigError if the values contradict others.
    """
    facts = find_facts(config, read(config, cache, known.stream_rows), known.num_own)
    if config.init.run is not None:
        facts = replace(facts, d_model=config.model.d_model)
    elif known.previous is not None and "d_model" not in config.model.model_fields_set:
        facts = replace(facts, d_model=known.previous.model.d_model)
    choices = choose(facts)
    resolved = _with_choices(config, choices, known.previous)
    if config.corpus.is_streaming:
        return Decision(facts, choices, resolved, None)
    data = prepare(resolved, cache, known.tokenizers, known.stream_rows)
    counted = resolved
    if resolved.training.batch_tokens == "auto":
        size = known.previous.training.tokens_per_batch if known.previous else _AUTOMATIC_BATCH
        counted = resolved.model_copy(update={"training": resolved.training.model_copy(update={"batch_tokens": size})})
    num_batches = estimate_epoch(training_pairs(data, counted), counted)
    assert num_batches is not None
    num_valid_tokens = data.statistics["valid"].target.num_tokens
    choices = choose(facts, Epoch(num_batches, counted.training, known.num_processes, num_valid_tokens))
    return Decision(facts, choices, _with_choices(config, choices, known.previous), data)


def resolve_preset(
    config: Config,
    cache: Cache,
    known: Circumstances = Circumstances(),
) -> tuple[Config, Data | None]:
    """The config with values in place of `preset: auto`, and its data if they were read.

    What is chosen, and why, is printed unless a run resumes or `known.is_quiet`. Raises the errors of `decide`.
    """
    found = decide(config, cache, known)
    if known.previous is None and not known.is_quiet:
        for line in describe(found.facts, found.choices, config, found.config):
            say(line)
    return found.config, found.data


def _with_choices(config: Config, choices: Choices, previous: Config | None) -> Config:
    values = values_of(choices)
    return with_values(config, values if previous is None else _kept(values, previous))


def choose(facts: Facts, epoch: Epoch | None = None) -> Choices:
    """The options for a corpus, without the length of the run if an epoch of it is not known yet.

    Those that may change when a run resumes depend on the corpus and the size of the model alone.
    """
    level = level_of(facts)
    size, _ = size_of(level, facts)
    changes = [level.changes, presets.SMALLER] if is_smaller(size, level) else [level.changes]
    base = {section: dict(PRESETS[size][section]) for section in SECTIONS}
    for section, each in product(SECTIONS, changes):
        base[section] |= each.get(section, {})
    reasons = _reasons(level, facts)
    chosen = {
        section: {key: Choice(value, reasons.get(key, f"recipe of size {size}")) for key, value in values.items()}
        for section, values in base.items()
    }
    chosen["tokenizer"] |= _vocabulary(facts, presets.VOCABULARY_OF_SMALLER if is_smaller(size, level) else inf)
    if facts.spellings:
        chosen["tokenizer"]["normalize"] = Choice([*facts.spellings], "train or valid has several spellings")
    if facts.letters:
        chosen["tokenizer"]["letters"] = Choice({**facts.letters}, "as valid or test writes; see mt data check")
    if facts.is_short:
        chosen["training"]["best_metric"] = Choice("chrf", "BLEU counts sequences of four words, which labels lack")
    for name in _without_use(facts):
        chosen["training"].pop(name, None)
    is_shared = chosen["tokenizer"]["shared"].value
    why = "one vocabulary, one table" if is_shared else "two vocabularies"
    chosen["model"]["tie_embeddings"] = Choice("all" if is_shared else "target", why)
    if epoch is not None or facts.num_pairs is None:
        chosen["training"] |= _length(shortened(level, facts, size), epoch, int(base["training"]["warmup_steps"]))
    return chosen


def _reasons(level: Level, facts: Facts) -> dict[str, str]:
    """The reasons for values by key; the others are those of the recipe."""
    size, why_size = size_of(level, facts)
    sizes = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
    return {
        **dict.fromkeys(sizes, f"size {size}: {why_size}"),
        **dict.fromkeys(("attention_dropout", "feed_forward_dropout", "label_smoothing"), "the fewer pairs, the more"),
        **dict.fromkeys(("batch_tokens", "micro_batches_per_step"), "the fewer pairs, the smaller the batches"),
        "dropout": "a small model of many pairs needs little" if is_smaller(size, level) else level.why_dropout,
        "best_metric": "BLEU says little about poor translations",
        "tune_decoding": "a weak model leaves out words or repeats itself",
        "concatenated_pairs": f"sentences of valid are {facts.length_ratio:.1f} times as long as those of train",
        "inserted_words": "made-up names and numbers in so many pairs teach copying",
        "bpe_dropout": "few pairs have few segmentations of a word",
    }


def _without_use(facts: Facts) -> Iterator[str]:
    """The options that make other training pairs and cannot be used, or do not help, with these pairs."""
    if facts.algorithm == "char" or facts.length_ratio < presets.MUCH_LONGER:
        yield "concatenated_pairs"
    with_capitals = facts.scripts[0] & facts.scripts[1] & presets.WITH_CAPITALS
    if facts.algorithm in WITHOUT_SUBWORDS or not with_capitals:
        yield "inserted_words"


def _vocabulary(facts: Facts, most: float) -> dict[str, Choice]:
    words, sizes = np.log(presets.DIVERSE_VOCABULARY if facts.is_diverse else presets.VOCABULARY).T
    size = exp(np.interp(log(min(max(facts.num_target_words, 1), 1e12)), words, sizes))
    source, target = facts.scripts
    is_shared = bool(source & target) or not (source and target)
    size *= 1 if is_shared else presets.OWN_VOCABULARY_SHARE
    why = "more entries would be too rare to learn"
    if size > most:
        size, why = most, "with more, a small model takes longer"
    if size > (limit := max(_MIN_VOCABULARY, facts.num_distinct_words + _NUM_BYTES)):
        size, why = limit, "there are few distinct words"
    same = " and ".join(sorted(source & target))
    return {
        "algorithm": Choice("bpe", "subwords leave no word unknown"),
        "vocab_size": Choice(rounded(size), why),
        "shared": Choice(is_shared, f"the script of both sides is {same}" if same else "the scripts differ"),
    }


def _length(level: Level, epoch: Epoch | None, warmup_steps: int) -> dict[str, Choice]:
    """How long to train, and how often to validate; without an epoch, on a stream."""
    if epoch is None:
        num_steps = level.num_updates
        length = {
            "max_steps": Choice(num_steps, "an epoch of a stream may never end"),
            "max_epochs": Choice(None, "max_steps ends the run"),
        }
    else:
        num_epochs = min(max(round(num_tokens(level) / epoch.num_tokens), _MIN_EPOCHS), _MAX_EPOCHS)
        num_steps = epoch.num_steps(num_epochs)
        size = f" of {epoch.training.tokens_per_batch:,} tokens" if epoch.num_processes == 1 else " of one process"
        length = {
            "max_steps": Choice(None, "max_epochs ends the run"),
            "max_epochs": Choice(num_epochs, f"{num_steps:,} updates{size}, {epoch.num_steps(1):,} an epoch"),
        }
    num_validations = _NUM_VALIDATIONS if epoch is None else epoch.num_validations(num_steps)
    patience = round(_PATIENCE * num_validations)
    every, updates = rounded(max(num_steps / num_validations, 10)), f"{num_steps:,} updates"
    return length | {
        "warmup_steps": Choice(min(warmup_steps, rounded(num_steps / 5)), f"at most a fifth of {updates}"),
        "validate_every_steps": Choice(every, f"about {round(num_steps / every)} validations in {updates}"),
        "patience": Choice(patience, f"stops after {patience} validations without a better score"),
    }


def _shown(value: Any) -> str:
    """A value as in a config."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, bool | list | dict | None) else str(value)


def values_of(choices: Choices) -> Values:
    """The values alone."""
    return {section: {key: choice.value for key, choice in chosen.items()} for section, chosen in choices.items()}


def _kept(values: Values, previous: Config) -> Values:
    """The values, but those of a run for all options that may not change."""
    before = previous.model_dump(mode="json")
    return {
        section: dict(own) | {key: old for key, old in before[section].items() if not may_change(f"{section}.{key}")}
        for section, own in values.items()
    }


def describe(facts: Facts, choices: Choices, given: Config, resolved: Config) -> Iterator[str]:
    """What was chosen and why, for people: a line for each section, then what to expect.

    `given` is the config before the choices. What it sets itself, or takes from another run, has no reason here.
    """
    now, by_config = resolved.model_dump(mode="json"), list[str]()
    tree, parent = given.model_dump(exclude_unset=True), given.init.run
    yield f"preset auto: {facts}"
    if parent is not None:
        own = [f"tokenizer.{key} {_shown(value)}" for key, value in tree.get("tokenizer", {}).items()]
        yield f"  of {parent}  tokenizer, model" + (f", but {', '.join(own)}" if own else "")
    for section, chosen in choices.items() if parent is None else [("training", choices["training"])]:
        shown = []
        for key, choice in chosen.items():
            if key in tree.get(section, {}) or now[section][key] != choice.value:
                by_config.append(f"{section}.{key} {_shown(now[section][key])}")
            elif choice.value is not None:
                shown.append((f"{key} {_shown(choice.value)}", choice.why))
        reasons = {why: [text for text, each in shown if each == why] for _, why in shown}
        if reasons:
            yield f"  {section:<10} " + "; ".join(f"{', '.join(texts)} ({why})" for why, texts in reasons.items())
    if by_config:
        yield f"  of the config  {', '.join(by_config)}"
    max_steps, warmup_steps = resolved.training.max_steps, resolved.training.warmup_steps
    if max_steps and max_steps < 2 * warmup_steps:
        yield f"  too short  training.max_steps {max_steps:,} is little more than the warm-up of {warmup_steps:,} steps"
    if problems := [] if parent else unsupported(resolved):
        yield (
            f"  export     mt export --format huggingface will refuse {' and '.join(each.found for each in problems)}; "
            f"if you need it, set {' and '.join(each.instead for each in problems)} before training"
        )
    if parent is None:
        is_ours = now["model"]["d_model"] == choices["model"]["d_model"].value
        yield f"  expect     {expectation(facts) if is_ours else 'what the size of the model in the config allows'}"
    else:
        yield f"  compare    the scores of {parent} on valid are printed before training"
