"""Learning from corrections: a child of a run, which replaces an older child only if it is not worse on `valid`.

The child is trained in the folder `.learning` of the runs, where no command looks for a run, and is renamed when it is
accepted.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mt_cli.advice.correction_check import Direction, check_corrections, describe_refused
from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.config.loading import load_config
from mt_cli.config.sections import RUN_NAME, RUN_NAME_RULE, Config
from mt_cli.config.sources import FilterConfig
from mt_cli.config.writing import to_yaml
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.corrections import Correction, append_corrections, current_corrections
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.corpus.text_hashes import hash_of
from mt_cli.data.encode import SIDES
from mt_cli.data.prepare import evaluation_hashes, read, sample
from mt_cli.errors import CorpusError, InputError, MtError
from mt_cli.evaluation.evaluate import translations_of
from mt_cli.evaluation.scores import METRICS, Score, best_metric_of, scorer_of
from mt_cli.run.train import train_in
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.files import read_model, real_path, write_text
from mt_cli.translation.translator import Translator

_RECORD, _FOLDER, _CORRECTIONS = "learned.json", ".learning", "corrections.jsonl"
_ROWS_OF_STREAM = 100_000
_SAMPLE = 5_000
"""Largest number of pairs of a direction that corrections are compared with."""
_HELD_OUT = 8
"""One source in so many is held out."""
_REPEATS, _OLD_PER_CORRECTION = 16, 2
"""Times that a correction is seen, and number of old pairs for each time, so that a third of what is seen is new."""
_KEPT_OPTIONS = {
    "seed",
    "label_smoothing",
    "concatenated_pairs",
    "inserted_words",
    "device",
    "precision",
    "num_threads",
}
_SCHEDULE = {"max_epochs": 1, "schedule": "linear", "warmup_steps": 10}
"""Options of `training`. An epoch has all that a child sees, so corrections decide the number of updates."""
_FEWEST_OLD = 8
"""Least number of old pairs of a source, so that no direction is left out."""
_RATE_BY_WIDTH = 0.12
"""Learning rate times `d_model`: 0.0006 for 192."""
_TOKENS_PER_CORRECTION, _SMALLEST_BATCH, _LARGEST_BATCH = 5, 256, 2048
"""Size of a batch for each correction, and its limits, so that few corrections have some tens of updates, too."""
_Corrections = Sequence[tuple[Direction, Sequence[Correction]]]


class Change(BaseModel):
    """Translations of some pairs before and after learning."""

    num_sentences: int
    right: tuple[int, int]
    """Numbers of translations that equal their reference."""
    metric: str
    """`chrf`; of `valid`, the metric that selects checkpoints."""
    scores: tuple[Score, Score]

    @property
    def has_fallen(self) -> bool:
        """True if the score is below the 95 % confidence interval of the score before."""
        before, after = self.scores
        return after.score < before.score - (before.confidence_95 or 0)

    def __str__(self) -> str:
        (before, after), right = self.scores, " → ".join(f"{number:,}" for number in self.right)
        change = f"{METRICS[self.metric]} {before.score:.1f} ± {before.confidence_95 or 0:.1f} → {after.score:.1f}"
        return f"{change}, right {right} of {self.num_sentences:,}"


class Learned(BaseModel):
    """Record of learning, in the directory of the child."""

    parent: str
    """Name of the parent, which is beside the child."""
    digest: str
    """Digest of weights and text of the parent, and of the corrections."""
    num_corrections: int
    refused: dict[str, int]
    """Numbers of refused corrections by reason."""
    changes: dict[str, Change] = {}
    """By `learned`, `held_out` and `valid`; empty until the child is trained."""
    is_accepted: bool = False


def record_of(run: Path) -> Learned | None:
    """Record of a run that `mt learn` made; None for other runs."""
    path = run / _RECORD
    return read_model(path, Learned) if path.exists() else None


def is_held_out(source: str) -> bool:
    """True if corrections of a source only measure what was learned; other corrections never change that."""
    return hash_of(" ".join(source.split())) % _HELD_OUT == 0


def learn(run: Path, files: Sequence[Path], name: str | None = None, text: Config | None = None) -> Path:
    """Train a child of a run on corrections and old text, and return its directory; for a child, train another one.

    `text` is a config with the old text; by default, that of the run. The corrections of an older child count, too;
    does nothing if the files have no others. Raises InputError if most corrections are junk, none are left, or there is
    no old text, and MtError, with the older child unchanged, if `valid` falls beyond its confidence interval.
    """
    run = real_path(run)
    if not run.exists():  # If the process was killed after it had moved the older child.
        _publish(run.parent / _FOLDER / run.name, run)
    record = record_of(run)
    parent = run.with_name(record.parent) if record else run
    child = run.with_name(name or (run.name if record else f"{run.name}-learned"))
    if not RUN_NAME.fullmatch(child.name):
        raise InputError(f"--name {child.name}: the name of a run has {RUN_NAME_RULE}")
    if child.exists() and ((older := record_of(child)) is None or older.parent != parent.name):
        raise InputError(f"{child}: exists already, and did not learn from {parent.name}; choose another --name")
    trial = child.parent / _FOLDER / child.name
    learner = _Learner(parent, trial, text)
    with RunDirectory(trial.with_name(f"{trial.name}.lock")).locked():
        _publish(trial, child)  # If the process was killed after it had accepted a child.
        learned_before = [path for path in (child / _CORRECTIONS,) if path.exists()]
        corrections = current_corrections([*learned_before, *files])
        if not learner.has_new(corrections, older := record_of(child)):
            say(f"Nothing is new: {child} has learned from these {len(corrections):,} corrections.")
            return child
        record = learner.learn(corrections)
        if not record.is_accepted:
            stays = f"; {child.name} stays as it was" if older else ""
            advice = f"Try again with more corrections; the refused run is in {trial}"
            raise MtError(f"not accepted, because valid falls: {record.changes['valid']}{stays}. {advice}")
        _publish(trial, child)
    return child


def _publish(trial: Path, child: Path) -> None:
    """Put an accepted child into the place of an older one; does nothing if there is none."""
    replaced = trial.with_name(f"{trial.name}.replaced")
    if (record := record_of(trial)) is not None and record.is_accepted:
        config_path = RunDirectory(trial).config_path
        text = load_config(config_path).model_dump_json().replace(f'"{trial}/', f'"{child}/')
        write_text(config_path, to_yaml(json.loads(text)))
        if child.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            child.rename(replaced)
        trial.rename(child)
    shutil.rmtree(replaced, ignore_errors=True)


class _Learner:
    """Text, training and scores of a child in its trial directory."""

    def __init__(self, parent: Path, trial: Path, text: Config | None) -> None:
        self._parent, self._trial, self._config = parent, trial, RunDirectory(parent).config()
        source = text or self._config
        if is_imported(source):
            raise InputError(
                f"{parent}: was imported without the text that it was trained on, and corrections alone would make it "
                "forget; name such text in a config with `train` and `valid` (--config)"
            )
        self._corpus, self._cache = source.corpus, Cache(parent.parent / ".cache", say)
        try:
            self._corpora = read(source, self._cache, _ROWS_OF_STREAM)
        except CorpusError as error:
            raise CorpusError(f"{error}. Without the text of the run, it would forget; --config names other") from None
        self._digest = digest_of_file(RunDirectory(parent).path_of()), self._corpora["train"].fingerprint

    def has_new(self, corrections: Sequence[Correction], record: Learned | None) -> bool:
        return record is None or record.digest != self._digest_with(corrections)

    def _digest_with(self, corrections: Sequence[Correction]) -> str:
        return fingerprint(*self._digest, sorted([*item.languages, *item.pair] for item in corrections))

    def _load(self, path: Path) -> Translator:
        training = self._config.training
        return Translator.load(path, training.device, training.precision, num_threads=training.num_threads)

    def _directions(self) -> list[Direction]:
        train, directions = self._corpora["train"], []
        for languages in dict.fromkeys(part.languages for part in train.parts if self._is_learned(part.languages)):
            parts = [number for number, part in enumerate(train.parts) if part.languages == languages]
            tag = min((train.parts[number].tag for number in parts), key=lambda tag: len(tag or ""))  # Without `<bt>`.
            directions.append(Direction(languages, tag, _pairs(train, parts, _SAMPLE)))
        return directions

    def _is_learned(self, languages: Languages) -> bool:
        """False for a reverse direction that the parent only learned to translate texts of one language."""
        return self._corpus.monolingual is None or languages == self._corpus.languages

    def learn(self, corrections: Sequence[Correction]) -> Learned:
        """Train the child, or go on with it, and record what it learned."""
        if not corrections:
            raise InputError("the files have no correction, or all were taken back")
        parent, trial = self._load(self._parent), self._trial
        limits = self._corpus, evaluation_hashes(self._corpora)
        kept, refused = check_corrections(corrections, self._directions(), *limits, parent)
        num_refused = sum(map(len, refused.values()))
        if refused:
            say(f"{num_refused:,} of {len(corrections):,} corrections are refused:")
            say("\n".join(describe_refused(refused)))
        if 2 * num_refused > len(corrections):
            raise InputError("more than half of the corrections are refused; see above")
        held_out = [(of, [item for item in items if is_held_out(item.source)]) for of, items in kept]
        learned = [(of, [item for item in items if not is_held_out(item.source)]) for of, items in kept]
        if not (num_learned := sum(len(items) for _, items in learned)):
            raise InputError(f"no correction to learn from: {num_refused:,} are refused and the others held out")
        record = Learned(
            parent=self._parent.name,
            digest=self._digest_with(corrections),
            num_corrections=num_learned,
            refused={reason: len(items) for reason, items in refused.items()},
        )
        if self.has_new(corrections, record_of(trial)):
            shutil.rmtree(trial, ignore_errors=True)  # It was never accepted.
            self._write(learned, num_learned)
            append_corrections(trial / _CORRECTIONS, corrections)
            write_text(trial / _RECORD, record.model_dump_json(indent=2))
        train_in(RunDirectory(trial), load_config(RunDirectory(trial).config_path), self._cache)
        valid = self._corpora["valid"].pairs
        sets = {"learned": _tagged(learned), "held_out": _tagged(held_out), "valid": valid}
        record.changes = self._changes(sets, parent, self._load(trial))
        record.is_accepted = not record.changes["valid"].has_fallen
        write_text(trial / _RECORD, record.model_dump_json(indent=2))
        return record

    def _write(self, learned: _Corrections, num_learned: int) -> None:
        """Write the texts of the child, and its config, into the trial directory."""
        (self._trial / "text").mkdir(parents=True)
        corpus, train, valid = self._corpus, self._corpora["train"], self._corpora["valid"]
        new = [
            self._source(f"new-{number}", [item.pair for item in items], of.languages, of.tag, weight=_REPEATS)
            for number, (of, items) in enumerate(learned, start=1)
            if items
        ]
        sizes = [weight * train.num_kept(part) for weight, part in zip(corpus.weights, train.parts, strict=True)]
        for number, (source, part, size) in enumerate(zip(corpus.train, train.parts, sizes, strict=True)):
            num_seen = max(_FEWEST_OLD, round(_REPEATS * _OLD_PER_CORRECTION * num_learned * size / sum(sizes)))
            if self._is_learned(part.languages) and (pairs := _pairs(train, [number], num_seen)):
                options = {"weight": num_seen / len(pairs), "filters": _of_pairs(corpus.filters_of(source))}
                new.append(self._source(f"old-{number + 1}", pairs, part.languages, part.tag, **options))
        held = [
            self._source(f"valid-{number + 1}", pairs, part.languages, part.tag)
            for number, part in enumerate(valid.parts)
            if (pairs := _pairs(valid, [number], None))
        ]
        changes = {"train": new, "valid": held, "filters": _of_pairs(corpus.filters)}
        schedule = _SCHEDULE | {
            "learning_rate": _RATE_BY_WIDTH / self._config.model.d_model,
            "batch_tokens": min(_LARGEST_BATCH, max(_SMALLEST_BATCH, _TOKENS_PER_CORRECTION * num_learned)),
        }
        tree = self._config.model_dump(mode="json", include={"decoding", "evaluation"}) | {
            "name": self._trial.name,
            "corpus": corpus.model_dump(mode="json", exclude={"temperature", "monolingual"}) | changes,
            "init": {"run": str(self._parent)},
            "training": self._config.training.model_dump(mode="json", include=_KEPT_OPTIONS) | schedule,
        }
        write_text(RunDirectory(self._trial).config_path, to_yaml(tree))

    def _source(self, name: str, pairs: Sequence[Pair], languages: Languages, tag: str | None, **options: Any) -> Any:
        """Write pairs into two files; return the source of a config that reads them."""
        paths = [self._trial / "text" / f"{name}.{side}" for side in SIDES]
        for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
            write_text(path, "".join(" ".join(text.split()) + "\n" for text in texts))
        return {"files": [*map(str, paths)], "name": name, "languages": list(languages), "tag": tag, **options}

    def _changes(self, sets: Mapping[str, Sequence[Pair]], *translators: Translator) -> dict[str, Change]:
        scorer, changes = scorer_of(self._config, "valid"), dict[str, Change]()
        selecting = best_metric_of(self._config, scorer)
        for name, pairs in sets.items():
            if not pairs:
                say(f"  {name.replace('_', ' '):<9} none; one source in {_HELD_OUT} is held out")
                continue
            metric = selecting if name == "valid" and selecting in METRICS else "chrf"
            references, right, scores = [target for _, target in pairs], [], []
            for translator in translators:
                with Progress(f"translate {name}", len(pairs), "sentence") as progress:
                    texts = translations_of(translator, pairs, progress.advance)
                right.append(sum(map(str.__eq__, *map(scorer.cleaned, (texts, references)))))
                scores.append(scorer.score_with_confidence(texts, references, [metric])[metric])
            sizes = {"num_sentences": len(pairs), "metric": metric}
            changes[name] = Change.model_validate(sizes | {"right": tuple(right), "scores": tuple(scores)})
            say(f"  {name.replace('_', ' '):<9} {changes[name]}")
        return changes


def _of_pairs(filters: FilterConfig) -> dict[str, Any]:
    """Filters without the one that needs a model of both directions."""
    return filters.model_copy(update={"keep_likely": None}).model_dump(mode="json")


def _pairs(corpus: Corpus, parts: Sequence[int], number: int | None) -> list[Pair]:
    """At most `number` pairs of some parts, without tags."""
    of_parts = corpus.of_parts(parts)
    return [pair for _, pair in of_parts.untagged_pairs(sample(of_parts, number, seed=1))]


def _tagged(corrections: _Corrections) -> list[Pair]:
    """Pairs with the tags of their directions."""
    rows = [(of.tag, item) for of, items in corrections for item in items]
    return [(f"{tag} {item.source}" if tag else item.source, item.target) for tag, item in rows]
