"""Aligned English and German of different lengths, and configs that train on them."""

import yaml

WORDS = ["the", "dog", "and", "a", "cat", "of", "two", "are", "in", "on", "with", "house", "who"]
GERMAN = ["der", "Hund", "und", "eine", "Katze", "von", "zwei", "sind", "in", "auf", "mit", "Haus", "wer"]


def sentences(number):
    """Aligned English and German of different lengths; every sentence has common words of its language."""
    pairs = []
    for index in range(number):
        chosen = [(index * 7 + offset * (1 + index % 5)) % len(WORDS) for offset in range(5 + (index * index) % 17)]
        ends = f" {index}{'.?!'[index % 3]}"
        pairs.append(tuple(" ".join(words[place] for place in chosen) + ends for words in (WORDS, GERMAN)))
    return pairs


def practice_pairs(split, name="phrasebook-en-it"):
    """Pairs of a built-in corpus."""
    from mt_cli.config.sources import BuiltinSource
    from mt_cli.corpus.source_rows import read_rows

    return [row[1:] for row in read_rows(BuiltinSource(builtin=name, split=split), ("en", "it"))]


def write(folder, name, pairs):
    for side, language in enumerate(("en", "de")):
        (folder / f"{name}.{language}").write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    return {"files": [f"{name}.en", f"{name}.de"]}


def write_config(folder, pairs, **changes):
    """Write `c.yaml` with these training pairs into a folder; return its name."""
    tree = {
        "name": "checked",
        "corpus": {
            "source": "en",
            "target": "de",
            "train": write(folder, "train", pairs),
            "valid": write(folder, "valid", [(f"valid {n} a", f"gültig {n} a") for n in range(9)]),
            **changes,
        },
        "decoding": {"beam_size": 1, "max_length_ratio": 0.5},
        "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {
            "max_steps": 4,
            "batch_tokens": 200,
            "warmup_steps": 2,
            "log_every_steps": 1,
            "device": "cpu",
        },
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    return "c.yaml"
