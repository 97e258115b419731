"""Time of whole commands: `mt translate`, the same with CTranslate2, and scripts of other libraries.

    python tests/benchmarks/command_speed.py --runs runs/small runs/large --input ../shared/data/multi30k/train.en \
        --lines 20000 --beams 1 5 --threads 1 2 [--quantization float32] [--rounds 3]

Commands take turns, each in a process of its own, from the start of Python to the last line in a file; medians of
several rounds. All have the same weights, lines, batches and beams, and keep unknown words. `text side` is the CPU time
that `mt translate` needs besides the search, as a fraction of its time: it is measured with an engine that repeats
recorded results. The tokenizer of a run must be one of the library `tokenizers`. With `--length N`, every translation
has N tokens, so that models that have learned little can be timed. `--transformers` adds a script with `generate`, in
fp32 like CTranslate2; it needs `transformers` and runs that fit `mt init --for huggingface`.
"""

import os
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import common
import numpy as np

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Attention, Engine, Hypothesis, Ids, NBest, Sentence
from mt_cli.translation.pipeline import Pipeline
from mt_cli.translation.stream import LineNotices, TranslatedLine, blocks, format_texts, translated_lines
from mt_cli.translation.translator import Translator

_BATCH_TOKENS = DecodingConfig().batch_tokens
_SECONDS_OF_LINE = 0.0005

SCRIPT = f"""
import sys
import ctranslate2
import tokenizers

folder, source, target, beam_size, threads, *length = sys.argv[1:]
lengths = {{f"{{name}}_decoding_length": int(number) for name in ("min", "max") for number in length}}
reader = tokenizers.Tokenizer.from_file(f"{{folder}}/tokenizer.source.json")
writer = tokenizers.Tokenizer.from_file(f"{{folder}}/tokenizer.target.json")
translator = ctranslate2.Translator(folder, intra_threads=int(threads))
with open(source, encoding="utf-8") as file:
    lines = file.read().splitlines()
tokens = [encoding.tokens for encoding in reader.encode_batch(lines)]
results = translator.translate_batch(
    tokens, beam_size=int(beam_size), max_batch_size={_BATCH_TOKENS} // int(beam_size), batch_type="tokens", **lengths
)
ids = [[writer.token_to_id(token) for token in result.hypotheses[0]] for result in results]
with open(target, "w", encoding="utf-8") as file:
    file.writelines(f"{{text}}\\n" for text in writer.decode_batch(ids, skip_special_tokens=False))
"""

TRANSFORMERS_SCRIPT = f"""
import sys
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder, source, target, beam_size, threads, *length = sys.argv[1:]
lengths = {{f"{{name}}_new_tokens": int(number) for name in ("min", "max") for number in length}}
torch.set_num_threads(int(threads))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
with open(source, encoding="utf-8") as file:
    ids = tokenizer(file.read().splitlines())["input_ids"]
texts = [""] * len(ids)
order = sorted(range(len(ids)), key=lambda number: len(ids[number]))
while order:
    size = max(1, {_BATCH_TOKENS} // int(beam_size) // len(ids[order[-1]]))
    batch, order = order[-size:], order[:-size]
    inputs = tokenizer.pad({{"input_ids": [ids[number] for number in batch]}}, return_tensors="pt")
    with torch.inference_mode():
        outputs = model.generate(**inputs, num_beams=int(beam_size), **lengths)
    for number, text in zip(batch, tokenizer.batch_decode(outputs, skip_special_tokens=True)):
        texts[number] = text
with open(target, "w", encoding="utf-8") as file:
    file.writelines(f"{{text}}\\n" for text in texts)
"""


@dataclass
class Recorder:
    """Engine that records the results of another one, in the order of the calls, or repeats them."""

    engine: Engine
    results: list[Any] = field(default_factory=list)
    is_recording: bool = True

    def search(self, *arguments: Any) -> Any:
        return self._result("search", *arguments)

    def force_decode(self, *arguments: Any) -> Any:
        return self._result("force_decode", *arguments)

    def attend(self, *arguments: Any) -> Any:
        return self._result("attend", *arguments)

    def _result(self, name: str, *arguments: Any) -> Any:
        if not self.is_recording:
            return self.results.pop(0)
        self.results.append(getattr(self.engine, name)(*arguments))
        return self.results[-1]


def text_side(run: Path, path: Path, beam_size: int, length: int) -> float:
    """CPU time in seconds that the lines of a file take without the search."""
    if length:
        exec(common.FIXED_LENGTH.format(length=length), {})
    translator = Translator.load(run, "cpu")
    recorder = Recorder(translator.engine)
    translator = replace(translator, engine=recorder)

    def translate() -> float:
        started_at = time.process_time()
        with LineNotices() as notices, open(os.devnull, "w", encoding="utf-8") as file:
            for block in blocks(common.read_lines(path)):
                items = translator.translate_fully(block, unk="keep", beam_size=beam_size)
                for line in translated_lines(items, [partial(format_texts, 1)]):
                    print(*line.texts, file=file, flush=True)
                    notices.add(line)
        return time.process_time() - started_at

    translate()
    recorder.is_recording = False
    return translate()


@dataclass
class Sleeper:
    """Engine that needs the same time for each line, without a CPU, as a GPU does, and repeats the sources."""

    spans: list[tuple[float, float]] = field(default_factory=list)

    def search(self, sentences: Sequence[Sentence], *options: object) -> list[NBest]:
        started_at = time.perf_counter()
        results = [[Hypothesis(list(sentence.ids), 0.0)] for sentence in sentences]
        time.sleep(max(0.0, started_at + _SECONDS_OF_LINE * len(sentences) - time.perf_counter()))
        self.spans.append((started_at, time.perf_counter()))
        return results

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        return [np.zeros((len(target) + 1, len(source) + 1), np.float32) for source, target in pairs]


def busy_fraction(run: Path, path: Path) -> float:
    """Fraction of the time between its first and last call in which an engine that sleeps is busy."""
    sleeper, pipeline = Sleeper(), Pipeline()
    translator = replace(Translator.load(run, "cpu"), engine=pipeline.queued(sleeper))

    def work(block: list[str]) -> list[TranslatedLine]:
        return translated_lines(translator.translate_fully(block, unk="keep"), [partial(format_texts, 1)])

    with LineNotices() as notices, open(os.devnull, "w", encoding="utf-8") as file:

        def write(lines: list[TranslatedLine]) -> None:
            for line in lines:
                print(*line.texts, file=file, flush=True)
                notices.add(line)

        pipeline.run(blocks(common.read_lines(path)), work, write)
    return sum(end - start for start, end in sleeper.spans) / (sleeper.spans[-1][1] - sleeper.spans[0][0])


def commands(
    run: Path, exported: Path, other: Path | None, path: Path, beam_size: int, threads: int, length: int
) -> dict[str, list[str]]:
    """Command of each system, for translations of `length` tokens unless it is 0; `other` is for `transformers`."""
    output = str(path.with_suffix(".out"))
    options = ["--input", str(path), "--as-lines", "--output", output, "--progress", "none", "--unk", "keep"]
    options += ["--beam-size", str(beam_size), "--threads", str(threads)]
    arguments = [str(path), output, str(beam_size), str(threads), *([str(length)] if length else [])]
    mt = common.MT
    if length:
        program = common.FIXED_LENGTH.format(length=length) + "from mt_cli.cli.main import main\nmain()\n"
        mt = [sys.executable, "-c", program]
    systems = {
        "script": [sys.executable, "-c", SCRIPT, str(exported), *arguments],
        "mt, CTranslate2": [*mt, "translate", "--engine", "ctranslate2", "--run", str(exported), *options],
        "mt": [*mt, "translate", "--run", str(run), *options],
    }
    if other:
        systems["transformers"] = [sys.executable, "-c", TRANSFORMERS_SCRIPT, str(other), *arguments]
    return systems


def run_command(command: list[str], threads: int) -> float:
    """Seconds of a command on some threads, which also limit the library `tokenizers`."""
    limits = {"OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads), "PYTHONPATH": str(common.ROOT)}
    work = partial(subprocess.run, command, check=True, env=os.environ | limits, stderr=subprocess.DEVNULL)
    return common.seconds_of(work)


def measure_run(options: Namespace, run: Path, path: Path) -> None:
    from mt_cli.exchange.ctranslate2 import export_ctranslate2
    from mt_cli.exchange.huggingface import export_huggingface

    exported = common.WORK / f"{run.name}-{options.quantization}"
    other = common.WORK / f"{run.name}-transformers" if options.transformers else None
    trained = TrainedRun.load(run)
    size = sum(weight.numel() for weight in trained.model.parameters())
    if not exported.exists():
        export_ctranslate2(trained, exported, options.quantization, common.read_lines(path)[:5])
    if other and not other.exists():
        export_huggingface(trained, other, common.read_lines(path)[:5], card="")
    for beam_size in options.beams:
        text_seconds = common.in_new_process(text_side, run, path, beam_size, options.length)
        for threads in options.threads:
            measurements = {
                name: partial(run_command, command, threads)
                for name, command in commands(run, exported, other, path, beam_size, threads, options.length).items()
            }
            seconds = {
                name: common.medians([{"seconds": row} for row in rows])["seconds"]
                for name, rows in common.measure_in_turn(measurements, options.rounds).items()
            }
            for name, value in seconds.items():
                ratio, side = f"{seconds['script'] / value:.2f}", f"{text_seconds / value:.1%}" if name == "mt" else ""
                common.print_row(f"{size / 1e6:.1f} M", beam_size, threads, name, f"{value:.1f}", ratio, side)


def main() -> None:
    options = common.read_options(
        __doc__,
        runs=[],
        input=Path,
        lines=20_000,
        beams=[1, 5],
        threads=[1, 2],
        quantization="float32",
        rounds=3,
        length=0,
        transformers=False,
    )
    common.WORK.mkdir(parents=True, exist_ok=True)
    path = common.WORK / "lines.txt"
    with open(options.input, encoding="utf-8") as file:
        path.write_text("".join(islice(file, options.lines)), encoding="utf-8")
    common.print_titles("parameters", "beam", "threads", "command", "seconds", "speed (script: 1)", "text side")
    for run in map(Path, options.runs):
        measure_run(options, run, path)
    busy = common.in_new_process(busy_fraction, Path(options.runs[0]), path)
    print(f"An engine that needs {1000 * _SECONDS_OF_LINE:g} ms a line is busy {busy:.1%} of the time.")


if __name__ == "__main__":
    main()
