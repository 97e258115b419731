"""Learning from corrections: a child of a run, which replaces an older child only if it is not worse on `valid`.

The child is trained in the folder `.learning` of the runs, where no command looks for a run, and is renamed when it is
accepted. If it has forgotten too much, its mean with the parent takes its place.
"""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from mt_cli.advice.correction_check import Direction, check_corrections, describe_refused
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import load_config
from mt_cli.config.sections import Config
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
from mt_cli.evaluation.quality import FEWEST_PAIRS, fit_quality
from mt_cli.evaluation.scores import METRICS, Score, best_metric_of, scorer_of
from mt_cli.run.averages import average_runs
from mt_cli.run.train import train_in
from mt_cli.runtime.console import Progress, notices_in, say
from mt_cli.runtime.files import read_model, real_path, write_text
from mt_cli.translation.translator import Translator

_RECORD, _FOLDER, _CORRECTIONS, _LOG = "learned.json", ".learning", "corrections.jsonl", "training.log"
_LEAST_SHARE = 0.25
_ROWS_OF_STREAM = 100_000
_SAMPLE = 5_000
"""Largest number of pairs of a direction that corrections are compared with."""
_FEW = 80
"""Of 84 corrections, 5 were right afterwards (docs/localisation.md)."""
_HELD_OUT = 8
"""One source in so many is held out."""
_REPEATS, _OLD_PER_CORRECTION, _FEWEST_OLD = 16, 2, 8
"""Times that a correction is seen, number of old pairs for each time, and least number of old pairs of a source."""
_KEPT = {"seed", "label_smoothing", "concatenated_pairs", "inserted_words", "device", "precision", "num_threads"}
_SCHEDULE = {"max_epochs": 1, "schedule": "linear", "warmup_steps": 10}
"""Options of `training`. An epoch has all that a child sees, so corrections decide the number of updates."""
_RATE_BY_WIDTH = 0.12
"""Learning rate times `d_model`: 0.0006 for 192."""
_TOKENS_PER_CORRECTION, _SMALLEST_BATCH, _LARGEST_BATCH = 5, 256, 2048
"""Size of a batch for each correction, and its limits, so that few corrections have some tens of updates, too."""


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
    """Digest of the weights of the parent, of the old text and the corrections, and of the options of both configs."""
    changes: dict[str, Change] = {}
    """By `learned`, `held out` and `valid`, which is in parts for several directions; empty until training ends."""
    share: float = 1.0
    """Share of the change of the weights that is kept."""
    is_accepted: bool = False

    @property
    def fallen(self) -> list[str]:
        """Names and changes of what falls below the confidence interval: parts of `valid`, or what was learned."""
        changes = self.changes.items()
        return [f"{name} {change}" for name, change in changes if name != "held out" and change.has_fallen]


def record_of(run: Path) -> Learned | None:
    """Record of a run that `mt learn` made; None for other runs."""
    path = run / _RECORD
    return read_model(path, Learned) if path.exists() else None


def is_held_out(source: str) -> bool:
    """True if corrections of a source only measure what was learned; other corrections never change that."""
    return hash_of(" ".join(source.split())) % _HELD_OUT == 0


def learn(run: Path, files: Sequence[Path], text: Config | None = None) -> Path:
    """Train a child of a run on corrections and old text, and return its directory; for a child, train another one.

    `text` is a config with the old text; by default, that of the run. The corrections of an older child count, too;
    does nothing if no correction, text or option is new. Raises InputError if most corrections are junk, none are left,
    or there is no old text, and MtError, with the older child unchanged, if `valid` or the corrections that it learns
    fall below their confidence interval even with the least share of the change.
    """
    run = real_path(run)
    if not run.exists():  # If the process was killed after it had moved the older child.
        _publish(run.parent / _FOLDER / run.name, run)
    record = record_of(run)
    parent, child = (run.with_name(record.parent), run) if record else (run, run.with_name(f"{run.name}-learned"))
    trial = child.parent / _FOLDER / child.name
    with RunDirectory(trial.with_name(f"{trial.name}.lock")).locked():
        _publish(trial, child)  # If the process was killed after it had accepted a child.
        older = record_of(child)
        if child.exists() and (older is None or older.parent != parent.name):
            raise InputError(f"{child}: exists already, and did not learn from {parent.name}; rename it")
        corrections = current_corrections([*([child / _CORRECTIONS] if older else []), *files])
        learner = _Learner(parent, trial, text, corrections)
        if older and older.digest == learner.digest:
            say(f"Nothing is new: {child} has learned from these {len(corrections):,} corrections.")
            return child
        if fallen := learner.learn().fallen:
            stays = f"; {child.name} stays as it was" if older else ""
            advice = f"Try again with more corrections; the refused run is in {trial}"
            raise MtError(f"not accepted, because scores fall: {'; '.join(fallen)}{stays}. {advice}")
        _publish(trial, child)
    return child


def _publish(trial: Path, child: Path) -> None:
    """Put an accepted child into the place of an older one; does nothing if there is none."""
    if (record := record_of(trial)) is not None and record.is_accepted:
        config_path = RunDirectory(trial).config_path
        text = load_config(config_path).model_dump_json().replace(f'"{trial}/', f'"{child}/')
        write_text(config_path, to_yaml(json.loads(text)))
        replaced = trial.with_name(f"{trial.name}.replaced")
        shutil.rmtree(replaced, ignore_errors=True)
        if child.exists():
            child.rename(replaced)
        trial.rename(child)
        shutil.rmtree(replaced, ignore_errors=True)


class _Result(NamedTuple):
    """Translations of a set of pairs: how many equal their reference, and their score."""

    num_sentences: int
    num_right: int
    metric: str
    score: Score


class _Learner:
    """Text, training and scores of a child in its trial directory."""

    def __init__(self, parent: Path, trial: Path, text: Config | None, corrections: Sequence[Correction]) -> None:
        self._parent, self._trial, self._config = parent, trial, RunDirectory(parent).config()
        self._corrections = corrections
        source = text or self._config
        self._corpus, self._cache = source.corpus, Cache(parent.parent / ".cache")
        try:
            self._corpora = read(source, self._cache, _ROWS_OF_STREAM)
        except CorpusError as error:
            raise CorpusError(
                f"{error}. Without old text, the model would forget; name a config with some (--config)"
            ) from None
        weights, train = digest_of_file(RunDirectory(parent).path_of()), self._corpora["train"].fingerprint
        rows = sorted([*item.languages, *item.pair] for item in corrections)
        self.digest = fingerprint(weights, train, rows, self._inherited(), self._corpus.model_dump(mode="json"))

    def _inherited(self) -> dict[str, Any]:
        """Options that the child has from its parent."""
        return self._config.model_dump(mode="json", include={"decoding": True, "evaluation": True, "training": _KEPT})

    def learn(self) -> Learned:
        """Train the child, or go on with it, and record what it learned."""
        parent, trial, number = self._load(self._parent), self._trial, len(self._corrections)
        known = [*self._directions()], self._corpus, evaluation_hashes(self._corpora)
        kept, refused = check_corrections(self._corrections, *known, parent)
        num_refused = sum(map(len, refused.values()))
        if refused:
            say(f"{num_refused:,} of {number:,} corrections are refused:\n" + "\n".join(describe_refused(refused)))
        if 2 * num_refused > number:
            raise InputError("more than half of the corrections are refused; see above")
        learned, held_out = (
            [of._replace(pairs=[pair for pair in of.pairs if is_held_out(pair[0]) == is_measured]) for of in kept]
            for is_measured in (False, True)
        )
        if not (num_learned := sum(len(of.pairs) for of in learned)):
            raise InputError(f"none of {number:,} corrections is left: {num_refused:,} refused, the others held out")
        record = Learned(parent=self._parent.name, digest=self.digest)
        if (before := record_of(trial)) is not None and before.digest == record.digest:
            record.share = before.share
        else:
            shutil.rmtree(trial, ignore_errors=True)  # It was never accepted.
            self._write(learned, num_learned)
            append_corrections(trial / _CORRECTIONS, self._corrections)
            write_text(trial / _RECORD, record.model_dump_json())
        say(f"learning {num_learned:,} correction{'s' * (num_learned > 1)}")
        if number - num_refused < _FEW:
            say("note: so few teach little; some 200 are worth the time")
        if record.share == 1:
            with notices_in(trial / _LOG):
                train_in(RunDirectory(trial), load_config(RunDirectory(trial).config_path), self._cache)
        sets = {"learned": _tagged(learned), "held out": _tagged(held_out)} | self._valid()
        of_parent = self._results(sets, parent)
        while True:
            record.changes = _changes(of_parent, self._results(sets, self._load(trial)))
            if not record.fallen or record.share <= _LEAST_SHARE:
                break
            say(f"{'; '.join(record.fallen)}: trying the mean of these weights and those of {self._parent.name}")
            self._halve(record)
        record.is_accepted = not record.fallen
        if record.is_accepted and record.share < 1 and len(self._corpora["valid"]) >= FEWEST_PAIRS:
            valid, directory = self._corpora["valid"], RunDirectory(trial)
            fit_quality(directory, directory.config(), self._load(trial), valid.pairs, valid.languages)
        write_text(trial / _RECORD, record.model_dump_json(indent=2))
        return record

    def _halve(self, record: Learned) -> None:
        """Put the mean of parent and child into the place of the child.

        Such means forget less than the child, and know much of what it learned (Wortsman et al. 2022, "Robust
        fine-tuning of zero-shot models").
        """
        folder = self._trial.with_name(f"{self._trial.name}.mean")
        shutil.rmtree(folder, ignore_errors=True)
        average_runs([self._trial, self._parent], mean := folder / self._trial.name)
        shutil.copyfile(self._trial / _CORRECTIONS, mean / _CORRECTIONS)
        shutil.copytree(self._trial / "text", mean / "text")
        record.share /= 2
        write_text(mean / _RECORD, record.model_copy(update={"changes": {}}).model_dump_json())
        self._trial.rename(folder / "trained")
        mean.rename(self._trial)
        shutil.rmtree(folder)

    def _load(self, path: Path) -> Translator:
        training = self._config.training
        return Translator.load(path, training.device, training.precision, num_threads=training.num_threads)

    def _parts(self, corpus: Corpus) -> list[int]:
        """Indices of the parts, without those of a reverse direction that was only learned for text of one language."""
        only = self._corpus.languages if self._corpus.monolingual else None
        return [number for number, part in enumerate(corpus.parts) if only in (None, part.languages)]

    def _by_direction(self, corpus: Corpus) -> dict[Languages, list[int]]:
        parts = defaultdict[Languages, list[int]](list)
        for number in self._parts(corpus):
            parts[corpus.parts[number].languages].append(number)
        return parts

    def _directions(self) -> Iterator[Direction]:
        train = self._corpora["train"]
        for languages, parts in self._by_direction(train).items():
            tag = min((train.parts[number].tag for number in parts), key=lambda tag: len(tag or ""))  # Without `<bt>`.
            yield Direction(languages, tag, _pairs(train, parts, _SAMPLE))

    def _valid(self) -> dict[str, list[Pair]]:
        """Pairs of `valid` with tags, by a name, in parts for several directions."""
        valid = self._corpora["valid"]
        parts = self._by_direction(valid)
        return {
            "valid" if len(parts) == 1 else f"valid {'-'.join(languages)}": valid.of_parts(numbers).pairs
            for languages, numbers in parts.items()
        }

    def _write(self, learned: Sequence[Direction], num_learned: int) -> None:
        """Write the texts of the child, and its config, into the trial directory."""
        (self._trial / "text").mkdir(parents=True)
        corpus, train, valid = self._corpus, self._corpora["train"], self._corpora["valid"]
        checked = {"weight": _REPEATS, "filters": _of_pairs(corpus.filters, identical=False)}
        new = [self._source(f"new-{number}", of, **checked) for number, of in enumerate(learned) if of.pairs]
        sizes = [weight * train.num_kept(part) for weight, part in zip(corpus.weights, train.parts, strict=True)]
        for number in self._parts(train):
            part, share = train.parts[number], sizes[number] / sum(sizes)
            num_seen = max(_FEWEST_OLD, round(_REPEATS * _OLD_PER_CORRECTION * num_learned * share))
            if pairs := _pairs(train, [number], num_seen):
                options = {
                    "weight": num_seen / len(pairs),
                    "filters": _of_pairs(corpus.filters_of(corpus.train[number])),
                }
                new.append(self._source(f"old-{number}", Direction(part.languages, part.tag, pairs), **options))
        held = [
            self._source(f"valid-{number}", Direction(part.languages, part.tag, pairs))
            for number, part in enumerate(valid.parts)
            if (pairs := _pairs(valid, [number], None))
        ]
        changes = {"train": new, "valid": held, "filters": _of_pairs(corpus.filters)}
        schedule = _SCHEDULE | {
            "learning_rate": _RATE_BY_WIDTH / self._config.model.d_model,
            "batch_tokens": min(_LARGEST_BATCH, max(_SMALLEST_BATCH, _TOKENS_PER_CORRECTION * num_learned)),
        }
        inherited = self._inherited()
        tree = inherited | {
            "name": self._trial.name,
            "corpus": corpus.model_dump(mode="json", exclude={"temperature", "monolingual"}) | changes,
            "init": {"run": str(self._parent)},
            "training": inherited["training"] | schedule,
        }
        write_text(RunDirectory(self._trial).config_path, to_yaml(tree))

    def _source(self, name: str, of: Direction, **options: Any) -> Any:
        """Write pairs into two files; return the source of a config that reads them."""
        paths = [self._trial / "text" / f"{name}.{side}" for side in SIDES]
        for path, texts in zip(paths, zip(*of.pairs, strict=True), strict=True):
            write_text(path, "".join(" ".join(text.split()) + "\n" for text in texts))
        return {"files": [*map(str, paths)], "name": name, "languages": list(of.languages), "tag": of.tag, **options}

    def _results(self, sets: Mapping[str, Sequence[Pair]], translator: Translator) -> dict[str, _Result]:
        """Number of right translations, metric and score of each set that has pairs."""
        scorer, results = scorer_of(self._config, "valid"), dict[str, _Result]()
        selecting = best_metric_of(self._config, scorer)
        for name, pairs in sets.items():
            if not pairs:
                continue
            metric = selecting if name.startswith("valid") and selecting in METRICS else "chrf"
            references = [target for _, target in pairs]
            with Progress(f"translate {name}", len(pairs), "sentence") as progress:
                texts = translations_of(translator, pairs, progress.advance)
            right = sum(map(str.__eq__, *map(scorer.cleaned, (texts, references))))
            score = scorer.score_with_confidence(texts, references, [metric])[metric]
            results[name] = _Result(len(pairs), right, metric, score)
        return results


def _changes(before: Mapping[str, _Result], after: Mapping[str, _Result]) -> dict[str, Change]:
    """Changes of all sets, which are printed."""
    changes = dict[str, Change]()
    for name, old in before.items():
        new = after[name]
        changes[name] = Change(
            num_sentences=old.num_sentences,
            right=(old.num_right, new.num_right),
            metric=old.metric,
            scores=(old.score, new.score),
        )
        say(f"  {name:<9} {changes[name]}")
    if "held out" not in changes:
        say(f"  held out  none; one source in {_HELD_OUT} is held out")
    return changes


def _of_pairs(filters: FilterConfig, **changes: bool) -> dict[str, Any]:
    """Filters without the one that needs a model of both directions."""
    return filters.model_copy(update={"keep_likely": None, **changes}).model_dump(mode="json")


def _pairs(corpus: Corpus, parts: Sequence[int], number: int | None) -> list[Pair]:
    """At most `number` pairs of some parts, without tags."""
    of_parts = corpus.of_parts(parts)
    return [pair for _, pair in of_parts.untagged_pairs(sample(of_parts, number, seed=1))]


def _tagged(directions: Sequence[Direction]) -> list[Pair]:
    """Pairs with the tags of their directions."""
    rows = [(of.tag, *pair) for of in directions for pair in of.pairs]
    return [(f"{tag} {source}" if tag else source, target) for tag, source, target in rows]
