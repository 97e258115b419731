"""`preset: auto`: complete a config with options chosen for its corpus or taken from a parent, and with reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.directions import DIRECTION, TO_TARGET, Tagging, direction_of
from mt_cli.config.loading import load_config, parse_config, with_values
from mt_cli.config.sections import Config, may_change
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, estimate_epoch, prepare, read
from mt_cli.errors import InputError, MtError, RunError
from mt_cli.features.exchange.destinations import obstacles
from mt_cli.features.fine_tuning.parent import adopt, inherited
from mt_cli.features.recipes.choices import Choice, Choices, Epoch, choose, expectation, values_of
from mt_cli.features.recipes.facts import Facts, find_facts
from mt_cli.features.recipes.sides import Tree
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.console import say
from mt_cli.reporting.report import read_report
from mt_cli.tokenizer.tokenizer import TokenizerPair

_AUTOMATIC_BATCH = 4_096
"""Batch size for estimating the number of updates while `batch_tokens: auto` is not known yet."""


@dataclass(frozen=True)
class Decision:
    """Options in place of `preset: auto`."""

    facts: Facts
    choices: Choices
    config: Config
    """Config with the chosen values, except for options that it sets itself."""
    data: Data | None
    """Corpora and tokenizers of that config; None for a stream."""


@dataclass(frozen=True, kw_only=True)
class PresetContext:
    """Circumstances of a decision besides the config, all optional."""

    previous: Config | None = None
    """Config of the run that resumes; options that may not change keep these values."""
    tokenizers: TokenizerPair | None = None
    """Tokenizers of the run that resumes or that training begins with."""
    num_corpora: int | None = None
    """Number of corpora of `train` that are not replayed; None means all."""
    stream_rows: int | None = None
    """See `prepare`."""
    num_processes: int = 1
    """Number of processes that will train."""
    is_quiet: bool = False
    """Whether the choices are not printed."""
    destination: str | None = None
    """Program of `DESTINATIONS` that the model must fit."""


def decide(config: Config, cache: Cache, context: PresetContext = PresetContext()) -> Decision:
    """Decide on the values for `preset: auto`.

    Tokenizer and model follow from the text. The tokenizer is then trained, and the length of the run follows from the
    tokens. Raises the errors of `prepare`, and ConfigError if the values contradict others.
    """
    previous = context.previous
    facts = find_facts(config, read(config, cache, context.stream_rows), context.num_corpora)
    if config.init.run is not None:
        facts = replace(facts, d_model=config.model.d_model)
    elif previous is not None and "d_model" not in config.model.model_fields_set:
        facts = replace(facts, d_model=previous.model.d_model)
    choices = choose(facts)
    resolved = _with_choices(config, choices, previous)
    if context.destination:
        facts = for_destination(facts, resolved, context.destination)
        choices = choose(facts)
        resolved = _with_choices(config, choices, previous)
    if config.corpus.is_streaming:
        return Decision(facts, choices, resolved, None)
    data = prepare(resolved, cache, context.tokenizers, context.stream_rows)
    counted = resolved
    if resolved.training.batch_tokens == "auto":
        size = previous.training.tokens_per_batch if previous else _AUTOMATIC_BATCH
        counted = resolved.model_copy(update={"training": resolved.training.model_copy(update={"batch_tokens": size})})
    num_batches = estimate_epoch(training_pairs(data, counted), counted)
    assert num_batches is not None
    num_valid_tokens = data.statistics["valid"].target.num_tokens
    choices = choose(facts, Epoch(num_batches, counted.training, context.num_processes, num_valid_tokens))
    return Decision(facts, choices, _with_choices(config, choices, previous), data)


def for_destination(facts: Facts, resolved: Config, destination: str) -> Facts:
    """Facts with the values of a config that a program cannot hold."""
    return replace(facts, destination=destination, obstacles=tuple(obstacles(resolved, destination)))


def resolve_preset(
    config: Config, cache: Cache, context: PresetContext = PresetContext()
) -> tuple[Config, Data | None]:
    """Config with values in place of `preset: auto`, and its data if they were read.

    Prints the choices and their reasons, unless a run resumes or `context.is_quiet`. Raises the errors of `decide`.
    """
    decision = decide(config, cache, context)
    if context.previous is None and not context.is_quiet:
        for line in describe(decision, config):
            say(line)
    return decision.config, decision.data


def _with_choices(config: Config, choices: Choices, previous: Config | None) -> Config:
    """Config with the chosen values, and with the values of a previous run for options that may not change."""
    values = values_of(choices)
    if previous is not None:
        before = previous.model_dump(mode="json")
        values = {
            section: dict(chosen) | {k: v for k, v in before[section].items() if not may_change(f"{section}.{k}")}
            for section, chosen in values.items()
        }
    return with_values(config, values)


def describe(decision: Decision, given: Config) -> Iterator[str]:
    """Describe the choices for people: a line for each section, then the quality to expect.

    `given` is the config before the choices. Values that it sets itself, or takes from another run, have no reason.
    """
    facts, choices, resolved = decision.facts, decision.choices, decision.config
    values, from_config = resolved.model_dump(mode="json"), list[str]()
    tree, parent = given.model_dump(exclude_unset=True), given.init.run
    yield f"preset auto: {facts}"
    if parent is not None:
        changed = [f"tokenizer.{key} {on_one_line(value)}" for key, value in tree.get("tokenizer", {}).items()]
        yield f"  of {parent}  tokenizer, model" + (f", but {', '.join(changed)}" if changed else "")
        choices = _of_child(choices)
    for section, chosen in choices.items():
        texts: dict[str, list[str]] = {}
        for key, choice in chosen.items():
            if key in tree.get(section, {}) or values[section][key] != choice.value:
                from_config.append(f"{section}.{key} {on_one_line(values[section][key])}")
            elif choice.value is not None:
                texts.setdefault(choice.why, []).append(f"{key} {on_one_line(choice.value)}")
        if texts:
            yield f"  {section:<10} " + "; ".join(f"{', '.join(keys)} ({why})" for why, keys in texts.items())
    if from_config:
        yield f"  of the config  {', '.join(from_config)}"
    max_steps, warmup_steps = resolved.training.max_steps, resolved.training.warmup_steps
    if max_steps and max_steps < 2 * warmup_steps:
        yield f"  too short  training.max_steps {max_steps:,} is less than twice the warm-up of {warmup_steps:,}"
    if parent is not None:
        yield f"  compare    the scores of {parent} on valid are printed before training"
        return
    is_ours = values["model"]["d_model"] == choices["model"]["d_model"].value
    yield f"  expect     {expectation(facts) if is_ours else 'what the size of the model in the config allows'}"


def notes_on_parents(runs: Path, languages: tuple[str, str]) -> Iterator[str]:
    """Notes on finished runs from the same source language into another language, the newest one first."""
    reports = [path for path in runs.glob("*/report.json") if (path.parent / "checkpoints/best.safetensors").is_file()]
    for path in sorted(reports, key=lambda path: path.stat().st_mtime, reverse=True):
        run = path.parent
        with suppress(MtError):  # A damaged run cannot be a parent.
            source, target = load_config(run / "config.yaml").corpus.languages
            report = read_report(RunDirectory(run))
            if report and source == languages[0] and target != languages[1]:
                yield (
                    f"{run} translates from {source}, too, into {target} ({report.num_steps:,} updates): to begin with "
                    "a well-trained run often helps more than any option (docs/fine_tuning.md); mt init --begin-with "
                    f"{run} writes such a config"
                )


def begun_with(
    run: Path, tree: Tree, cache: Cache, runs: Path, destination: str | None = None
) -> tuple[Tree, Decision]:
    """Complete the tree of a config that begins with a run; also return the values for `preset: auto`.

    Only the choices for training and decoding are used. The tree gets `init`, a tag if the parent uses tags for target
    languages, and spellings to normalize that the parent does not normalize. Raises RunError if there is no such run,
    InputError if its model does not fit the program `destination`, and the errors of `adopt` and `decide`.
    """
    try:
        parent = RunDirectory(run).config()
    except RunError as error:
        raise RunError(f"--begin-with: {error}") from None
    if destination:
        _check_fits(run, parent, destination)
    corpus = dict(tree["corpus"])
    if parent.corpus.has_target_tags:
        corpus["tag"] = TO_TARGET
    elif any(map(direction_of, parent.corpus.tags)):
        corpus["tag"] = DIRECTION
    elif parent.corpus.tagging.is_required:
        corpus |= _tagged(corpus, parent.corpus.tagging, run)
    init = {"run": str(run), "vocabulary": "extend"}
    tree = {"name": tree["name"], "init": init, "corpus": corpus, "preset": "auto"}
    complete = inherited(parse_config(tree, "mt init"), parent, "mt init")
    if "sentencepiece" not in (parent.tokenizer.algorithm, parent.tokenizer.spacing):  # Its spellings are fixed.
        facts, tokenizer = find_facts(complete, read(complete, cache)), complete.tokenizer
        normalize = list(dict.fromkeys([*tokenizer.normalize, *facts.spellings]))
        values = {"normalize": normalize, "letters": merge_letters(tokenizer.letters, facts.letters)}
        before = tokenizer.model_dump(mode="json")
        if spelling := {key: value for key, value in values.items() if value != before[key]}:
            tree["tokenizer"] = spelling
    config, tokenizers, _ = adopt(parse_config(tree, "mt init"), cache, runs / tree["name"], None)
    decision = decide(config, cache, PresetContext(tokenizers=tokenizers, destination=destination))
    spellings = {
        key: Choice(value, (f"of {run}, and " if getattr(parent.tokenizer, key) else "") + why)
        for key, (_, why) in decision.choices["tokenizer"].items()
        if (value := tree.get("tokenizer", {}).get(key))
    }
    choices = {"tokenizer": spellings} if spellings else {}
    return tree, replace(decision, choices={**choices, **_of_child(decision.choices)})


def _of_child(choices: Choices) -> Choices:
    """The choices that a run makes itself if it begins with another run."""
    return {section: chosen for section, chosen in choices.items() if section in ("training", "decoding")}


def _check_fits(run: Path, parent: Config, destination: str) -> None:
    """Raise InputError if a program cannot hold the model of a parent, whose options a child keeps."""
    if problems := obstacles(parent, destination):
        settings = ", ".join(problem.setting for problem in problems)
        raise InputError(
            f"--for {destination}: {run} has {settings}, and a run that begins with it keeps that; begin with another "
            "run, or leave out --begin-with"
        )


def _tagged(corpus: Mapping[str, Any], tagging: Tagging, run: Path) -> dict[str, Any]:
    """Corpora with the parent's tag for their target language; raises InputError if the tag is not clear."""
    tag = tagging.into(corpus["target"]) or tagging.default
    if tag is None:
        raise InputError(
            f"--begin-with: {run} has a tag before every sentence, one of {', '.join(tagging.tags)}; write a config "
            "with `init: {run: ...}` and a `tag` for each corpus"
        )
    groups = {name: corpus[name] for name in ("train", "valid", "test") if name in corpus}
    return {name: tree if "fraction" in tree else {**tree, "tag": tag} for name, tree in groups.items()}


def merge_letters(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Merge `tokenizer.letters` of a parent and of the text; the text comes first, so no letter is replaced twice."""
    kept = {letter: new.get(other, other) for letter, other in old.items() if letter not in {*new, *new.values()}}
    return {**kept, **new}
