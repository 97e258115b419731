"""Scores and tokenizers in many languages, as tables.

    python tests/benchmarks/languages.py --data ../shared/data/flores200

The tokenizers are trained on the first 800 sentences of each language and measured on the others. In a translation
"with a tenth wrong", every tenth word (in a language without spaces, every tenth character) is replaced by the one at
the same place of the previous sentence.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.languages import writes_spaces
from mt_cli.evaluation.texts import Scorer
from mt_cli.tokenizer.special import UNK_ID
from mt_cli.tokenizer.training import train_tokenizer

_NUM_TRAINING = 800
_ALGORITHMS = ("word_level", "bpe", "unigram", "char")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    folder = parser.parse_args().data
    texts = {
        path.name.partition(".")[0]: path.read_text(encoding="utf-8").split("\n")[:-1]
        for path in sorted(folder.glob("*.devtest"))
    }
    print_scores(texts)
    print_tokenizers(texts)


def print_scores(texts: dict[str, list[str]]) -> None:
    print("| language | BLEU counts | perfect: BLEU, chrF, (TER,) CER | a tenth wrong: BLEU | chrF | TER | CER | WER |")
    print("|---|---|---|---|---|---|---|---|")
    for language, lines in texts.items():
        scorer = Scorer.of(language)
        scores = [
            {name: scored.score for name, scored in scorer.score(hypotheses, lines).items()}
            for hypotheses in (lines, with_errors(language, lines))
        ]
        perfect = ", ".join(f"{scores[0][name]:g}" for name in ("bleu", "chrf", "ter", "cer") if name in scores[0])
        cells = [
            f"{scores[1][name]:.1f}" if name in scores[1] else "" for name in ("bleu", "chrf", "ter", "cer", "wer")
        ]
        print(f"| {language} | `{scorer.bleu_tokenizer}` | {perfect} | {' | '.join(cells)} |", flush=True)


def with_errors(language: str, lines: list[str]) -> list[str]:
    """The lines with every tenth word or character replaced by that of the previous line."""
    separator = " " if writes_spaces(language) else ""
    units = [line.split() if separator else list(line) for line in lines]
    return [
        separator.join(
            units[index - 1][place % len(units[index - 1])] if place % 10 == 9 else unit
            for place, unit in enumerate(line)
        )
        for index, line in enumerate(units)
    ]


def print_tokenizers(texts: dict[str, list[str]]) -> None:
    titles = " | ".join(f"{name}: tokens, unknown" for name in _ALGORITHMS)
    print(f"\n| language | {titles} | lossless |\n|---|{'---|' * len(_ALGORITHMS)}---|")
    for language, lines in texts.items():
        learned, held_out = lines[:_NUM_TRAINING], lines[_NUM_TRAINING:]
        cells, lossless = [], []
        for algorithm in _ALGORITHMS:
            tokenizer = train_tokenizer(learned, TokenizerConfig(algorithm=algorithm, vocab_size=2000))
            ids = tokenizer.encode(held_out)
            num_tokens = sum(map(len, ids))
            num_unknown = sum(sequence.count(UNK_ID) for sequence in ids)
            cells.append(f"{num_tokens / len(held_out):.0f}, {num_unknown / num_tokens:.1%}")
            decoded = tokenizer.decode(ids)
            known = [place for place, sequence in enumerate(ids) if UNK_ID not in sequence]
            lossless.append(all(decoded[place] == held_out[place] for place in known))
        verdict = (
            "yes"
            if all(lossless)
            else "no: "
            + ", ".join(name for name, is_lossless in zip(_ALGORITHMS, lossless, strict=True) if not is_lossless)
        )
        print(f"| {language} | {' | '.join(cells)} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
