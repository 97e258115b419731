"""The commands that use a trained run: translate, score, evaluate."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mt_cli.cli.options import (
    RUNS,
    BeamSizeOption,
    CheckpointOption,
    DeviceOption,
    EngineOption,
    JsonOption,
    PrecisionOption,
    ProgressOption,
    RunOption,
    SetDecodingOption,
    check_no_files,
    load_translator,
    run_path,
    set_progress,
    utf8,
)
from mt_cli.cli.streams import Output, blocks, check_distinct, input_lines, prompted_lines, read_lines, show
from mt_cli.errors import InputError

if TYPE_CHECKING:
    from mt_cli.corpus.reading import Pair
    from mt_cli.evaluation.texts import Scorer
    from mt_cli.translator.translator import Translation, Translator

_LINES_WITH_UNKNOWN_WORDS = 5


def translate(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="Sentences, each in quotation marks.", show_default=False, callback=utf8)
    ] = None,
    run: RunOption = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A file with one sentence a line; default: standard input.")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where the translations go; default: standard output.")
    ] = None,
    beam_size: BeamSizeOption = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", min=0.0, help="0 prefers short translations, more longer ones.")
    ] = None,
    n_best: Annotated[
        int, typer.Option("--n-best", min=1, max=1000, help="Translations per sentence, one a line.")
    ] = 1,
    sample: Annotated[
        bool,
        typer.Option("--sample", help="Draw translations by lot; see decoding.temperature, top_k and top_p in --set."),
    ] = False,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="With --sample: another seed, another draw.")
    ] = None,
    prefix: Annotated[
        str, typer.Option("--prefix", help="How every translation begins.", show_default=False, callback=utf8)
    ] = "",
    unk: Annotated[
        str | None,
        typer.Option(
            "--unk",
            help="Where the model says [UNK]: copy the source word (usual), keep [UNK], or avoid it.",
            show_default=False,
        ),
    ] = None,
    overrides: SetDecodingOption = None,
    tag: Annotated[
        str | None,
        typer.Option("--tag", help="A tag of the config, put before every sentence, such as <2it>.", callback=utf8),
    ] = None,
    split_sentences: Annotated[
        bool, typer.Option("--split-sentences", help="Translate lines of many sentences sentence by sentence.")
    ] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Ask for sentences, and answer each before the next.")
    ] = False,
    as_json: JsonOption = False,
    alignment: Annotated[
        Path | None,
        typer.Option("--alignment", help="A file for pairs of words (0-0 1-2), a line for each input line."),
    ] = None,
    attention: Annotated[
        Path | None, typer.Option("--attention", help="Draw the attention of one sentence as a picture (PNG, SVG).")
    ] = None,
    checkpoint: CheckpointOption = None,
    engine: EngineOption = "mt",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    progress: ProgressOption = "auto",
) -> None:
    """Translate sentences: one line in, one line out, in input order."""
    if sum(map(bool, (sentences, input_file, interactive))) > 1:
        raise InputError("give sentences, --input or --interactive, not two of them")
    if attention and (not sentences or len(sentences) != 1):
        raise InputError("--attention draws one sentence; give exactly one as an argument")
    if alignment and engine != "mt":
        raise InputError(f"--alignment: --engine {engine} does not say what its model attends to; use mt's own")
    if sentences:
        check_no_files(sentences, f"translate its lines with --input {sentences[0]}")
    set_progress(progress)
    given = {"beam_size": beam_size, "length_penalty": length_penalty, "unk": unk, "seed": seed}
    options = _decoding(overrides) | {name: value for name, value in given.items() if value is not None}
    options |= {"sample": True} if sample else {}
    read = {} if sentences else {"--input": input_file} if input_file else {"standard input": 0}
    written = {"--output": output_file} if output_file else {"standard output": 1}
    check_distinct({**read, **written, "--alignment": alignment, "--attention": attention})
    output, pairs = Output(output_file), None if alignment is None else Output(alignment)
    translator = load_translator(run_path(run), device, precision, engine, checkpoint)
    lines = prompted_lines() if interactive else sentences or input_lines(input_file)
    waits = interactive or (input_file is None and not sentences and sys.stdin.isatty())
    with_details = as_json or alignment is not None
    if waits and not interactive:
        print("One sentence a line; Ctrl-D ends.", file=sys.stderr)
    unknown = _UnknownWords()
    with ExitStack() as stack:
        stack.callback(unknown.say_the_rest)
        stack.enter_context(output)
        if pairs is not None:
            stack.enter_context(pairs)
        for block in [[line] for line in lines] if sentences else _counted(lines, waits, output_file):
            for item in translator.translate_fully(
                block, n_best, tag, prefix, split_sentences, with_details, **options
            ):
                output.write(_format_translation(item, n_best, as_json))
                if pairs is not None and item.details is not None:
                    pairs.write(" ".join(f"{source}-{target}" for source, target in item.details.word_alignment))
                _say_if_parted(item)
                unknown.note(item.unknown_words)
                if attention:
                    _draw_attention(translator, item, attention)


def _counted(lines: Iterable[str], waits: bool, output_file: Path | None) -> Iterator[list[str]]:
    """Blocks of lines, or single ones where somebody waits; progress is shown where it disturbs nothing."""
    from mt_cli.console import Progress

    if waits:
        yield from ([line] for line in lines)
        return
    if output_file is None and sys.stdout.isatty():
        yield from blocks(lines)
        return
    with Progress("translate", None, "line", is_quiet=True) as progress:
        for block in blocks(lines):
            yield block
            progress.advance(len(block))


def _decoding(overrides: list[str] | None) -> dict[str, Any]:
    from mt_cli.config.loading import section_overrides

    return section_overrides(overrides or (), "decoding")


class _UnknownWords:
    """Says which words of the input are not in the vocabulary: at once for the first lines, then how many more."""

    def __init__(self) -> None:
        self._num_lines, self._num_said = 0, 0

    def note(self, words: Sequence[str]) -> None:
        """Those of one line."""
        if not words:
            return
        self._num_lines += 1
        if self._num_said < _LINES_WITH_UNKNOWN_WORDS:
            self._num_said += 1
            print(f"mt: not in the vocabulary: {', '.join(dict.fromkeys(words))}", file=sys.stderr)

    def say_the_rest(self) -> None:
        """What `note` has kept back."""
        if self._num_lines > self._num_said:
            print(f"mt: {self._num_lines:,} lines had words that are not in the vocabulary", file=sys.stderr)


def _say_if_parted(item: Translation) -> None:
    if item.is_too_long:
        print(
            f"mt: a line of {len(item.source):,} characters is longer than this model was trained for; "
            f"translated in {item.num_parts} parts",
            file=sys.stderr,
        )


def _format_translation(item: Translation, n_best: int, as_json: bool) -> str:
    if not as_json or item.details is None:
        # With fewer hypotheses than asked for, empty lines keep the output in step with the input.
        texts = [text for text, _ in item.hypotheses[:n_best]]
        return "\n".join(texts + [""] * (n_best - len(texts)))
    details = item.details
    row = {
        "source": item.source,
        "translation": item.text,
        "score": round(item.score, 4),
        "hypotheses": [{"text": text, "score": round(score, 4)} for text, score in item.hypotheses],
        "source_tokens": details.source_tokens,
        "tokens": details.tokens,
        "token_scores": [round(score, 4) for score in details.token_scores],
        "alignment": details.alignment,
        "word_alignment": details.word_alignment,
    }
    return json.dumps(row, ensure_ascii=False)


def _draw_attention(translator: Translator, item: Translation, path: Path) -> None:
    from mt_cli.figures import save_attention

    source_tokens, target_tokens, weights = translator.attention(item.source, item.text)
    save_attention(weights, source_tokens, target_tokens, path)
    print(f"attention drawn in {path}", file=sys.stderr)


def score(
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE TARGET]", help="A sentence and a translation.", callback=utf8)
    ] = None,
    run: RunOption = None,
    source: Annotated[Path | None, typer.Option("--source", help="A file of sentences, with --target.")] = None,
    target: Annotated[Path | None, typer.Option("--target", help="Their translations, line by line.")] = None,
    as_json: JsonOption = False,
    checkpoint: CheckpointOption = None,
    engine: EngineOption = "mt",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Print the log-probability (nats) of given translations, one a line; with --json, of every token too."""
    if (source is None) != (target is None) or bool(texts) == (source is not None):
        raise InputError("give a sentence and its translation, or two files with --source and --target")
    if texts and len(texts) != 2:
        raise InputError(
            f"found {len(texts)} text{'s' * (len(texts) > 1)}; give a sentence and its translation, in quotation marks"
        )
    if texts:
        check_no_files(texts, f"score its lines with --source {texts[0]} --target {texts[1]}")
    sides = [[text] for text in texts] if texts else [read_lines(path) for path in (source, target) if path]
    if len(sides[0]) != len(sides[1]):
        raise InputError(f"{source} has {len(sides[0]):,} lines, {target} {len(sides[1]):,}; they go together")
    translator = load_translator(run_path(run), device, precision, engine, checkpoint)
    with Output(None) as output:
        for start in range(0, len(sides[0]), 512):
            some = [side[start : start + 512] for side in sides]
            for text, translation, found in zip(*some, translator.score(*some), strict=True):
                if not as_json:
                    output.write(f"{found.log_prob:.4f}")
                    continue
                row = {
                    "source": text,
                    "target": translation,
                    "log_prob": round(found.log_prob, 4),
                    "log_prob_per_token": round(found.log_prob / len(found.tokens), 4),
                    "tokens": found.tokens,
                    "token_scores": [round(value, 4) for value in found.token_scores],
                }
                output.write(json.dumps(row, ensure_ascii=False))


def evaluate(
    run: RunOption = None,
    split: Annotated[
        str | None,
        typer.Option("--split", help="valid, test, or one of the config's extra_tests; default: test if there is one."),
    ] = None,
    source: Annotated[Path | None, typer.Option("--source", help="A file to translate, with --reference.")] = None,
    reference: Annotated[Path | None, typer.Option("--reference", help="Its translation, line by line.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against", callback=utf8, help="Another run, or a file of translations: is the difference significant?"
        ),
    ] = None,
    comet: Annotated[
        str | None, typer.Option("--comet", metavar="MODEL", help="Score with COMET too: a model's name or file.")
    ] = None,
    bleu_tokenizer: Annotated[
        str | None,
        typer.Option("--bleu-tokenizer", help="What BLEU counts, by sacreBLEU's names; default: by the language."),
    ] = None,
    beam_size: BeamSizeOption = None,
    overrides: SetDecodingOption = None,
    as_json: JsonOption = False,
    checkpoint: CheckpointOption = None,
    engine: EngineOption = "mt",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    progress: ProgressOption = "auto",
) -> None:
    """Score a run with BLEU, chrF, chrF++, TER, CER and WER on detokenised text, each with its signature."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together")
    if engine != "mt" and source is None:
        raise InputError(f"--engine {engine}: an exported model knows no corpora; give --source and --reference")
    set_progress(progress)
    options = _decoding(overrides) | ({} if beam_size is None else {"beam_size": beam_size})
    if against is not None and not against.exists():
        raise InputError(f"--against {against}: no such run directory or file")
    path = run_path(run)
    translator = load_translator(path, device, precision, engine, checkpoint)
    from mt_cli.experiment import scoring

    name, pairs = _pairs_of(path, split, source, reference)
    scorer = _scorer(translator, path, name, bleu_tokenizer, engine)
    model = scoring.load_comet(comet) if comet else None
    scores, hypotheses = scoring.evaluate(translator, pairs, name, scorer, **options)
    scores = {"run": path.resolve().name, **({"checkpoint": checkpoint} if checkpoint else {}), **scores}
    if engine == "mt":
        scoring.write_hypotheses(path, f"{name}.{checkpoint}" if checkpoint else name, hypotheses)
    if model is not None:
        scores["comet"] = scoring.comet_score(model, pairs, hypotheses)
    if against is not None:
        rivals = _rival(against, pairs, translator.languages, device, precision, options)
        scores["against"] = scoring.compare(scorer, hypotheses, rivals, pairs, str(against))
    system = f"{scores['run']}, checkpoint {checkpoint}" if checkpoint else scores["run"]
    show(json.dumps(scores, ensure_ascii=False) if as_json else f"{system}: {scoring.format_scores(scores)}")


def _scorer(translator: Translator, run: Path, split: str, bleu_tokenizer: str | None, engine: str) -> Scorer:
    """What scores translations of a test set, with the BLEU tokenizer given or else that of the config."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.config.loading import changed_section
    from mt_cli.evaluation.texts import Scorer
    from mt_cli.experiment.data import scorer_of

    if engine != "mt":
        return Scorer.of(translator.languages[1], bleu_tokenizer or "auto")
    config = RunDirectory(run).config()
    evaluation = changed_section(config.evaluation, {"bleu_tokenizer": bleu_tokenizer})
    return scorer_of(config.model_copy(update={"evaluation": evaluation}), split)


def _rival(
    against: Path,
    pairs: list[Pair],
    languages: tuple[str, str],
    device: str,
    precision: str,
    options: dict[str, Any],
) -> list[str]:
    """The translations of another run, or of a file."""
    if against.is_dir():
        rival = load_translator(against, device, precision)
        if rival.languages != languages:
            theirs, ours = (" to ".join(each) for each in (rival.languages, languages))
            raise InputError(f"--against {against}: translates {theirs}, and this run {ours}; compare runs of one kind")
        return rival.translate([pair[0] for pair in pairs], **options)
    lines = read_lines(against)
    if len(lines) != len(pairs):
        raise InputError(f"{against}: has {len(lines):,} lines for {len(pairs):,} sentences")
    return lines


def _pairs_of(run: Path, split: str | None, source: Path | None, reference: Path | None) -> tuple[str, list[Pair]]:
    """Pairs to score, and what they are called."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.config.corpora import FilesSource, HeldOut
    from mt_cli.corpus.cache import Cache
    from mt_cli.corpus.reading import clean_rows, corpora_of, key_of, pairs_of, read_corpora, read_pairs

    if source is not None and reference is not None:
        files, key = FilesSource(files=(str(source), str(reference))), "--source and --reference"
        if all(path.is_file() or not path.exists() for path in (source, reference)):
            return "files", read_pairs([files], ("", ""), key)
        sides = [read_lines(path) for path in (source, reference)]  # A pipe can be read only once.
        if len(sides[0]) != len(sides[1]):
            raise InputError(f"{key}: {len(sides[0]):,} lines and {len(sides[1]):,}; line N of one translates line N")
        rows = zip(range(1, len(sides[0]) + 1), *sides, strict=True)
        return "files", pairs_of(clean_rows(rows, files, ("", ""), None), key)
    config = RunDirectory(run).config()
    sets = {"valid": config.corpus.valid, "test": config.corpus.test, **config.corpus.extra_tests}
    if split is None:
        split = "valid" if config.corpus.test is None else "test"
    if sets.get(split) is None:
        there = ", ".join(name for name, value in sets.items() if value is not None)
        raise InputError(f"--split {split}: this run's config has no such corpus, only {there}")
    if split == "valid" and isinstance(config.corpus.valid[0], HeldOut):
        return split, list(read_corpora(config.corpus, config.training.seed, Cache(RUNS / ".cache"))["valid"].pairs)
    languages = (config.corpus.source, config.corpus.target)
    return split, list(read_pairs(corpora_of(config.corpus)[split], languages, key_of(split)))
