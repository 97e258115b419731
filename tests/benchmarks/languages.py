"""Scores and tokenizers in many languages, as tables.

    python tests/benchmarks/languages.py --data ../shared/data/flores200

The tokenizers are trained on the first `--sentences` sentences of each language and measured on the others. In a
translation "with a tenth wrong", every tenth word (in a language without spaces, every tenth character) is replaced by
the one at the same place of the previous sentence.
"""

from pathlib import Path

import common

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.languages import writes_spaces
from mt_cli.evaluation.scores import Scorer
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.training import train_tokenizer

ALGORITHMS = ("word_level", "bpe", "unigram", "char")
METRICS = ("bleu", "chrf", "ter", "cer", "wer")


def print_scores(texts: dict[str, list[str]]) -> None:
    """Print the scores of perfect translations and of those with a tenth wrong."""
    titles = ("perfect: BLEU, chrF, (TER,) CER", "a tenth wrong: BLEU", "chrF", "TER", "CER", "WER")
    common.print_titles("language", "BLEU counts", *titles)
    for language, lines in texts.items():
        scorer = Scorer.of(language)
        perfect, wrong = (scorer.score(texts, lines) for texts in (lines, with_errors(language, lines)))
        best = ", ".join(f"{perfect[name].score:g}" for name in METRICS[:4] if name in perfect)
        cells = [f"{wrong[name].score:.1f}" if name in wrong else "" for name in METRICS]
        common.print_row(language, f"`{scorer.bleu_tokenizer}`", best, *cells)


def with_errors(language: str, lines: list[str]) -> list[str]:
    """The lines with every tenth word or character replaced by that of the previous line."""
    separator = " " if writes_spaces(language) else ""
    sentences = [line.split() if separator else list(line) for line in lines]
    return [
        separator.join(
            previous[place % len(previous)] if place % 10 == 9 else unit for place, unit in enumerate(sentence)
        )
        for previous, sentence in zip([sentences[-1], *sentences], sentences, strict=False)
    ]


def print_tokenizers(texts: dict[str, list[str]], num_trained: int) -> None:
    """Print tokens per sentence, unknown tokens, and the algorithms that do not give back a text that they know."""
    print()
    common.print_titles("language", *(f"{algorithm}: tokens, unknown" for algorithm in ALGORITHMS), "lossless")
    for language, lines in texts.items():
        held_out, cells, lossy = lines[num_trained:], [], []
        for algorithm in ALGORITHMS:
            config = TokenizerConfig(algorithm=algorithm, vocab_size=2000)
            tokenizer = train_tokenizer(lines[:num_trained], config)
            ids = tokenizer.encode(held_out)
            num_tokens = sum(map(len, ids))
            unknown_share = sum(sentence.count(UNK_ID) for sentence in ids) / num_tokens
            cells.append(f"{num_tokens / len(held_out):.0f}, {unknown_share:.1%}")
            sentences = zip(ids, tokenizer.decode(ids), held_out, strict=True)
            if any(decoded != line for encoded, decoded, line in sentences if UNK_ID not in encoded):
                lossy.append(algorithm)
        common.print_row(language, *cells, f"no: {', '.join(lossy)}" if lossy else "yes")


def main() -> None:
    """Print a row for each language in both tables."""
    options = common.read_options(__doc__, data=Path, sentences=800, languages=[])
    paths = {path.name.partition(".")[0]: path for path in sorted(options.data.glob("*.devtest"))}
    texts = {language: common.read_lines(paths[language]) for language in options.languages or paths}
    print_scores(texts)
    print_tokenizers(texts, options.sentences)


if __name__ == "__main__":
    main()
