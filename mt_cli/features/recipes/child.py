"""`mt init --begin-with`: options that a config takes from its parent, the run that training begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.directions import TO_TARGET, Tagging
from mt_cli.config.loading import load_config, parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import read
from mt_cli.errors import InputError, MtError, RunError
from mt_cli.features.fine_tuning.parent import adopt, inherited
from mt_cli.features.recipes.auto import Decision, PresetContext, decide
from mt_cli.features.recipes.choices import Choice
from mt_cli.features.recipes.facts import find_facts
from mt_cli.features.recipes.neighbours import Tree
from mt_cli.reporting.report import read_report


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


def begun_with(run: Path, tree: Tree, cache: Cache, runs: Path) -> tuple[Tree, Decision]:
    """Complete the tree of a config that begins with a run; also return the values for `preset: auto`.

    Only the choices for `training` count. Added are `init`, a tag if the parent takes the target language from tags,
    and spellings of the text that the parent does not normalize. Raises RunError if there is no such run, and the
    errors of `adopt` and `decide`.
    """
    try:
        parent = RunDirectory(run).config()
    except RunError as error:
        raise RunError(f"--begin-with: {error}") from None
    can_extend = parent.tokenizer.algorithm != "sentencepiece"
    corpus = dict(tree["corpus"])
    if parent.corpus.has_target_tags:
        corpus["tag"] = TO_TARGET
    elif parent.corpus.tagging.is_required:
        corpus |= _tagged(corpus, parent.corpus.tagging, run)
    init = {"run": str(run)} | ({"vocabulary": "extend"} if can_extend else {})
    tree = {"name": tree["name"], "init": init, "corpus": corpus, "preset": "auto"}
    complete = inherited(parse_config(tree, "mt init"), parent, "mt init")
    if can_extend and (spelling := _spelling(complete, cache)):
        tree["tokenizer"] = spelling
    config, tokenizers, _ = adopt(parse_config(tree, "mt init"), cache, runs / tree["name"], None)
    decision = decide(config, cache, PresetContext(tokenizers=tokenizers))
    choices = {"training": decision.choices["training"]}
    if "tokenizer" in tree:
        reasons = {key: choice.why for key, choice in decision.choices["tokenizer"].items()}
        chosen = {
            key: Choice(value, (f"of {run}, and " if getattr(parent.tokenizer, key) else "") + reasons[key])
            for key, value in tree["tokenizer"].items()
        }
        choices = {"tokenizer": chosen, **choices}
    return tree, replace(decision, choices=choices)


def _tagged(corpus: Mapping[str, Any], tagging: Tagging, run: Path) -> dict[str, Any]:
    """Corpora with the parent's tag for their target language; raises InputError if the parent does not tell which."""
    tag = tagging.into(corpus["target"]) or tagging.default
    if tag is None:
        raise InputError(
            f"--begin-with: {run} has a tag before every sentence, one of {', '.join(tagging.tags)}; write a config "
            "with `init: {run: ...}` and a `tag` for each corpus"
        )
    groups = {name: corpus[name] for name in ("train", "valid", "test") if name in corpus}
    tagged = {name: tree if "fraction" in tree else {**tree, "tag": tag} for name, tree in groups.items()}
    extra = {name: {**tree, "tag": tag} for name, tree in corpus.get("extra_tests", {}).items()}
    return tagged | ({"extra_tests": extra} if extra else {})


def merge_letters(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Merge `tokenizer.letters` of a parent with those of the text, which come first: no letter is replaced twice."""
    kept = {letter: new.get(other, other) for letter, other in old.items() if letter not in {*new, *new.values()}}
    return {**kept, **new}


def _spelling(config: Config, cache: Cache) -> Mapping[str, Any]:
    """Options of `tokenizer` that make spellings of the text equal and are not in the config."""
    facts, tokenizer = find_facts(config, read(config, cache)), config.tokenizer
    normalize = list(dict.fromkeys([*tokenizer.normalize, *facts.spellings]))
    values = {"normalize": normalize, "letters": merge_letters(tokenizer.letters, facts.letters)}
    return {key: value for key, value in values.items() if value != tokenizer.model_dump(mode="json")[key]}
