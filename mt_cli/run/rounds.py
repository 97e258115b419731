"""Rounds: the model in training translates texts of one language, and trains on the pairs.

Iterative back-translation (Hoang et al. 2018, "Iterative Back-Translation for Neural Machine Translation") with one
model for both directions, by sampling (Edunov et al. 2018, "Understanding Back-Translation at Scale"), with tagged
sources (Caswell et al. 2019). The line of the text is always the target.

A round is one file for each text in `rounds`. Its content is a function of the seed, the number of the round and the
weights, and the state of the run names the round, so an interrupted round is made again with the same bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.state import Round, RunState
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import DecodingConfig
from mt_cli.config.sources import MonolingualConfig
from mt_cli.config.tags import tag_of
from mt_cli.corpus.cache import fingerprint
from mt_cli.corpus.languages import primary
from mt_cli.corpus.monolingual import Lines
from mt_cli.corpus.rows import Pair
from mt_cli.data.batches import TrainingPairs
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.prepare import SyntheticPairs, pairs_per_epoch, synthetic_shares
from mt_cli.data.training_pairs import training_pairs
from mt_cli.errors import InputError, RunError, RunInterruptedError
from mt_cli.evaluation.results import Part
from mt_cli.evaluation.scores import scorer_of
from mt_cli.run.synthetic import Translate, in_blocks_by_length, judged, open_part, short_enough, write_part
from mt_cli.run.validation import Validator
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.files import check_free_disk, format_bytes, read_model, remove, writing
from mt_cli.training.plan import COST_OF_SAMPLING, FIRST_ROUND, SHARE_OF_ROUNDS, Pace, pace_of
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from mt_cli.run.setup import Run

_MOST_ACTIVE = 3
"""Newest rounds whose pairs are used, unless they would have a line twice."""
_LINES_OF_ROUND_TRIP, _LEAST_ROUND_TRIP, _LEAST_OF_SAMPLES = 100, 20.0, 25.0
"""Lines of a text that are translated, and their translations back; the chrF of these from which a round is made; and
that from which the model samples. With less, it translates by greedy search, which is better for few pairs (Edunov et
al. 2018, section 5.3). Spanish to Aymara, chrF of `valid`: 15.5 before a round with 9.2, 14.1 after it; 29.6 before a
round with 22.0 by sampling, 29.5 after it; 29.6 before one with 30.4 and 21.5 by greedy search, 30.1 after it."""
_TRIES = 3
"""Largest number of times that a model tries to make a round, in the time between two rounds."""
_LINES_PER_FILE = 10_000
"""Lines of a text that another model translates, in a file; after an interruption, one file is made again."""
_BYTES_PER_CHARACTER = 4
_LINES_EXAMINED = 1_000


@dataclass(frozen=True)
class Rounds:
    """Maker and reader of the rounds of a run, in all of its processes."""

    run: Run
    validator: Validator
    steps_per_epoch: int

    @property
    def _own(self) -> dict[str, int]:
        """Number of lines of each text that the model in training translates, by side."""
        return {side: len(self._lines[side]) for side in self._texts.sides_of_rounds}

    @property
    def _config(self) -> CorpusConfig:
        return self.run.config.corpus

    @property
    def _texts(self) -> MonolingualConfig:
        assert self._config.monolingual is not None
        return self._config.monolingual

    @property
    def _lines(self) -> Mapping[str, Lines]:
        return self.run.data.monolingual

    @cached_property
    def _num_real(self) -> float:
        """Number of pairs of an epoch."""
        return pairs_per_epoch(self.run.data, self.run.config)

    @cached_property
    def _lines_per_step(self) -> float:
        """Number of lines that can be translated per update."""
        tokenizer, statistics = self.run.data.tokenizers[1], self.run.data.statistics["train"]
        lines = [line for side in self._own for line in self._lines[side].sample(_LINES_EXAMINED)]
        tokens_per_line = max(1.0, sum(map(len, tokenizer.encode(lines))) / len(lines))
        pairs_per_step = self._num_real / self.steps_per_epoch
        length = statistics.target.tokens_per_sentence / tokens_per_line
        return SHARE_OF_ROUNDS / COST_OF_SAMPLING * pairs_per_step * length

    def pace(self, num_steps: int | None) -> Pace:
        """Pace of the rounds in a run of so many updates; None if the number is not known."""
        weights = self._own
        if not weights:
            return Pace(1, {})
        if len(weights) > 1:  # The reverse direction only serves the other one.
            weights["source"] = min(weights["source"], max(1, weights["target"] // 2))
        return pace_of(weights, self._lines_per_step, num_steps, self.steps_per_epoch)

    def is_due(self, state: RunState, num_steps: int | None) -> bool:
        """True if a round begins after this step: validation has become better, and the last round is old enough."""
        step, training = state.position.step, self.run.config.training
        if not self._own or not step == state.validated_step == state.best_step:
            return False
        every = self.pace(num_steps).every_steps
        is_near_end = num_steps is not None and num_steps - step < every // 2
        first = max(state.warmup_steps(training), math.ceil(FIRST_ROUND * num_steps) if num_steps else 0)
        is_soon = step - state.round.step < every or step - state.round.tried_step < every // _TRIES
        return step >= first and not is_soon and not is_near_end

    def make(self, state: RunState, num_steps: int | None, is_stopped: Callable[[], bool]) -> tuple[Round, list[Part]]:
        """Translate the next lines of each text with the model, and write the pairs; all processes share the lines.

        The round is the one before, without parts, if the translations of the model, translated back, are too unlike
        their lines. A poor model does not sample. Raises RunInterruptedError if a signal asked to stop, and MtError if
        a file cannot be written.
        """
        config, before, pace = self.run.config, state.round, self.pace(num_steps)
        number, num_lines, parts = before.number + 1, {**before.num_lines}, []
        seed = (config.training.seed * 1_000_003 + number) % 2**31
        sampling = config.greedy_decoding.model_copy(update={"sample": True, "seed": seed})
        for side, size in pace.num_lines.items():
            start, lines = num_lines.get(side, 0), self._lines[side]
            order = np.random.default_rng([config.training.seed, len(side)]).permutation(len(lines))
            texts = lines.take(order[np.arange(start, start + size) % len(lines)].tolist())
            num_lines[side] = start + size
            into, language = self._config.synthetic_directions[side]
            back = self._function(config.greedy_decoding, language)
            translate = sampled = self._function(sampling, into)
            chrf = self._round_trip_chrf(texts, translate, back)
            if chrf < _LEAST_OF_SAMPLES:
                translate = self._function(config.greedy_decoding, into)
                chrf = self._round_trip_chrf(texts, translate, back)
            if chrf < _LEAST_ROUND_TRIP:
                why = f"no round: lines of {lines.name}, translated and translated back, have chrF {chrf:.1f}"
                limit = f"{_LEAST_ROUND_TRIP:g} or more are needed"
                self.run.group.on_main(partial(say, f"step {state.position.step:>6,}  {why}; {limit}"))
                return replace(before, tried_step=state.position.step), []
            made = {"round_trip_chrf": round(chrf, 2), "is_sampled": translate is sampled}
            parts.append(self._translated(side, number, state.position.step, texts, translate, made, is_stopped))
        num_active = min([_MOST_ACTIVE, *(len(self._lines[side]) // size for side, size in pace.num_lines.items())])
        return Round(number, max(1, before.oldest, number - num_active + 1), state.position.step, num_lines), parts

    def _path(self, side: str, number: int) -> Path:
        return self.run.directory.rounds_path / f"{side}-{number:06}.arrow"

    def _function(self, decoding: DecodingConfig, into: str) -> Translate:
        """Function that translates lines into a language with the model in training."""
        translator, tag = self.validator.translator(decoding), tag_of(into)
        return lambda lines: translator.translate([f"{tag} {line}" for line in lines])

    def _round_trip_chrf(self, lines: Sequence[str], translate: Translate, back: Translate) -> float:
        """ChrF of some lines that are translated and translated back."""

        def score() -> float:
            some = short_enough(lines[:: -(-len(lines) // _LINES_OF_ROUND_TRIP)], self.run.data, self.run.config)
            scorer = scorer_of(self.run.config, "valid")
            return scorer.score(back(translate(some)), some, ["chrf"])["chrf"].score if some else 0.0

        return self.run.group.from_main(score)

    def _translated(
        self,
        side: str,
        number: int,
        step: int,
        lines: Sequence[str],
        translate: Translate,
        made: Mapping[str, Any],
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Part:
        """Translate lines and write the kept pairs; `made` has fields of the part that say how they were made."""
        run, group, pairs, name = self.run, self.run.group, list[Pair](), self._lines[side].name
        usable = short_enough(lines, run.data, run.config)
        blocks = in_blocks_by_length(usable)
        with Progress(f"translate {name}", len(usable), "line", leave=False) as progress:
            while some := list(islice(blocks, group.size)):
                sources = group.map_shares(lambda share: list(map(translate, share)), some)
                pairs += [pair for texts in zip(sources, some, strict=True) for pair in zip(*texts, strict=True)]
                progress.advance(sum(map(len, some)))
                if is_stopped():
                    raise RunInterruptedError("interrupted while text was translated; the same command does it again")

        def finish() -> Part:
            languages = self._config.synthetic_directions[side]
            kept, dropped = judged(pairs, run.config, languages)
            dropped += Counter({"max_tokens": len(lines) - len(usable)})
            numbers = {"number": number, "step": step, "num_lines": len(lines), "dropped": dropped}
            part = Part(name=name, languages=languages, **{**numbers, **made})
            return write_part(self._path(side, number), kept, part, run.data, run.config)

        return group.from_main(finish)

    def pairs(self, state: RunState) -> TrainingPairs:
        """Training pairs of the run with the pairs of its newest rounds, and of texts that another model translated.

        Raises RunError if a file of the round is missing or damaged.
        """
        number, synthetic = state.round.number, dict[str, EncodedPairs]()
        for side in self._lines:
            numbers = range(state.round.oldest, number + 1) if number else ()
            paths = [self._path(side, of) for of in numbers] if side in self._own else self._given_paths(side)
            parts = [open_part(path) for path in paths]
            synthetic[side] = EncodedPairs.joined(parts, [sum(map(len, parts))])
        mixed = SyntheticPairs(number, synthetic) if any(map(len, synthetic.values())) else None
        return training_pairs(self.run.data, self.run.config, self.run.group, mixed)

    def remove_old(self) -> None:
        """Remove the pairs of rounds that no saved state names; none if a state cannot be read."""
        directory = self.run.directory
        try:
            rounds = [Checkpoint(path).state.round for path in directory.state_paths()]
        except RunError:
            return
        needed = {number for saved in rounds for number in range(saved.oldest, saved.number + 1)}
        for path in directory.rounds_path.glob("*.arrow"):
            side, _, number = path.stem.partition("-")
            if side in self._own and number.isdecimal() and int(number) not in needed:
                remove(path)

    def _given_paths(self, side: str) -> list[Path]:
        numbers = range(1, -(-len(self._lines[side]) // _LINES_PER_FILE) + 1)
        return [self._path(side, number) for number in numbers]

    def prepare(self) -> None:
        """Make the folder of the rounds, and translate texts with other models; what is translated already stays.

        Raises InputError if a model cannot be loaded or does not translate into the language, and MtError if the disk
        is full.
        """
        self.run.group.on_main(self._make_folder)
        for side, text in self._texts.texts.items():
            if text.translate_with is not None:
                self._translate_once(side, text.translate_with)

    def _translate_once(self, side: str, path: str) -> None:
        run, group, lines, files = self.run, self.run.group, self._lines[side], self._given_paths(side)
        is_begun = group.from_main(lambda: bool(run.directory.state_paths()))
        if is_begun and group.from_main(lambda: all(file.exists() for file in files)):
            return
        key, (into, language) = f"corpus.monolingual.{side}.translate_with", self._config.synthetic_directions[side]
        engine = "ctranslate2" if (Path(path) / "model.bin").is_file() else "mt"
        num_threads = run.config.training.num_threads
        try:
            translator = Translator.load(path, str(run.device), num_threads=num_threads, group=group, engine=engine)
        except InputError as error:
            raise InputError(f"{key}: {error}") from None
        tag = translator.tagging.into(into) or translator.tagging.default
        direction = translator.tagging.direction(tag, translator.languages)
        if primary(direction[1]) != primary(into):
            needed = f"a model from {language} to {into} is needed"
            raise InputError(f"{key}: {path} translates from {direction[0]} to {direction[1]}; {needed}")
        if primary(direction[0]) != primary(language):
            group.on_main(partial(say, f"note: {key}: {path} translates from {direction[0]}, not from {language}"))
        limits = run.config.corpus.filters.model_dump(mode="json"), run.config.corpus.max_tokens
        digests = lines.fingerprint, translator.digest, run.directory.tokenizer_digests()
        made_from = fingerprint(*digests, *limits, self._config.protect)
        missing = group.from_main(
            lambda: [file for file in files if not (file.exists() and (is_begun or _made_from(file) == made_from))]
        )
        if missing:
            say(f"{path} translates {len(lines):,} lines of {lines.name} into {into}, once")
        for number, file in enumerate(files):
            if file in missing:
                texts = lines.take(range(number * _LINES_PER_FILE, (number + 1) * _LINES_PER_FILE))
                translate, made = partial(translator.translate, tag=tag), {"made_from": made_from}
                part = self._translated(side, number + 1, 0, texts, translate, made)
                group.on_main(partial(say, f"  {part.describe()}"))

    def _num_bytes(self) -> float:
        """Estimated size on disk of all files of pairs at a time."""
        num_kept, largest = self.run.config.training.keep_last + _MOST_ACTIVE + 1, self.pace(None).num_lines
        fractions = {side: num_kept * size / len(self._lines[side]) for side, size in largest.items()}
        return sum(
            _BYTES_PER_CHARACTER * lines.num_characters * fractions.get(side, 1) for side, lines in self._lines.items()
        )

    def _make_folder(self) -> None:
        folder = self.run.directory.rounds_path
        with writing(folder):
            folder.mkdir(exist_ok=True)
        check_free_disk(folder, self._num_bytes(), "the text that is translated")

    def describe(self) -> Iterator[str]:
        """How the texts are used, as lines for people, before training."""
        shares = synthetic_shares(self._num_real, {side: len(lines) for side, lines in self._lines.items()})
        for side, lines in self._lines.items():
            into, _ = self._config.synthetic_directions[side]
            pairs = f"up to {shares[side]:.0%} of the pairs have such a line as target"
            yield f"  {lines.name}: once translated, {pairs} and its translation into {into} as source"
        if self._own:
            yield (
                f"  after {FIRST_ROUND:.0%} of the updates, when valid gets better and the model can translate such "
                f"lines, it translates the next ones, for about {SHARE_OF_ROUNDS:.0%} of the time; the pairs take up "
                f"to {format_bytes(self._num_bytes())} on disk"
            )


def _made_from(file: Path) -> str | None:
    """`Part.made_from` of a file of pairs; None if it cannot be read."""
    with suppress(InputError):
        return read_model(file.with_suffix(".json"), Part).made_from
    return None
