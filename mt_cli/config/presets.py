"""The values of the presets, all in one place. Knows nothing of corpora.

Sources: Vaswani et al. 2017, table 3 (base, big); Sennrich and Zhang 2019 and Gowda and May 2020 (vocabulary by corpus
size); Araabi and Monz 2020 (few pairs: fewer layers and heads, more dropout and label smoothing, smaller batches).
`docs/recipes.md` has the measurements behind `tiny`, `small` and the vocabulary for 55,000 words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from mt_cli.config.sections import TUNED, WITHOUT_SUBWORDS

Values = Mapping[str, Mapping[str, Any]]
"""Values of options by section and key."""

SECTIONS = ("tokenizer", "model", "training")
_LIMITS = ("max_steps", "max_epochs", "max_minutes")


def _preset(vocab_size: int, model: Mapping[str, Any], training: Mapping[str, Any]) -> Values:
    sizes = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
    return {
        "tokenizer": {"algorithm": "bpe", "vocab_size": vocab_size, "shared": True},
        "model": {**{key: model[key] for key in sizes}, "tie_embeddings": "all", **model},
        "training": training,
    }


PRESETS: Mapping[str, Values] = {
    "tiny": _preset(
        10_000,
        dict(d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4, num_decoder_layers=4)
        | dict(positions="rotary", dropout=0.3, attention_dropout=0.1),
        dict(max_epochs=80, batch_tokens=4096, optimizer="muon", learning_rate=8e-3, schedule="linear")
        | dict(warmup_steps=400, ema_decay=0.998, label_smoothing=0.1),
    ),
    "small": _preset(
        16_000,
        dict(d_model=256, d_ff=512, num_heads=4, num_encoder_layers=4, num_decoder_layers=4)
        | dict(positions="rotary", dropout=0.3, attention_dropout=0.1),
        dict(max_epochs=30, batch_tokens=4096, optimizer="muon", learning_rate=2e-3, schedule="linear")
        | dict(warmup_steps=300, ema_decay=0.998, label_smoothing=0.1),
    ),
    "base": _preset(
        32_000,
        dict(d_model=512, d_ff=2048, num_heads=8, num_encoder_layers=6, num_decoder_layers=6)
        | dict(dropout=0.1, attention_dropout=0.0),
        dict(max_steps=100_000, max_epochs=None, batch_tokens=12_500, micro_batches_per_step=2, learning_rate=7e-4)
        | dict(schedule="inverse_sqrt", warmup_steps=4000, label_smoothing=0.1, validate_every_steps=2000),
    ),
    "big": _preset(
        32_000,
        dict(d_model=1024, d_ff=4096, num_heads=16, num_encoder_layers=6, num_decoder_layers=6)
        | dict(dropout=0.3, attention_dropout=0.0),
        dict(max_steps=300_000, max_epochs=None, batch_tokens=6_250, micro_batches_per_step=4, learning_rate=5e-4)
        | dict(schedule="inverse_sqrt", warmup_steps=4000, label_smoothing=0.1, validate_every_steps=5000),
    ),
}


@dataclass(frozen=True)
class Level:
    """What `preset: auto` chooses for training corpora up to a size."""

    max_target_words: float
    preset: str
    """The preset that it begins with; on a CPU or with little time, a smaller one."""
    num_updates: int
    expectation: str
    changes: Values = field(default_factory=dict)
    """Values that differ from those of the preset."""
    why_dropout: str = "the fewer pairs, the more"
    """The reason for `dropout`, for people."""


_FEW_PAIRS: Values = {
    "model": dict(num_heads=2, num_encoder_layers=3, num_decoder_layers=3)
    | dict(dropout=0.3, attention_dropout=0.1, feed_forward_dropout=0.1),
    "training": dict(batch_tokens=2048, learning_rate=3e-3, warmup_steps=400, label_smoothing=0.2, tune_decoding=True),
}
LEVELS = (
    Level(
        4_000,
        "tiny",
        2_000,
        "sentences of train from memory, and hardly any useful translation of other text: a model needs thousands of "
        "pairs.",
        _FEW_PAIRS,
    ),
    Level(
        30_000,
        "tiny",
        3_000,
        "BLEU in the low twenties for short and similar sentences such as captions, and far less for other text: the "
        "model will invent and leave out words. More pairs help most, back-translated ones included.",
        _FEW_PAIRS,
    ),
    Level(
        150_000,
        "tiny",
        5_400,
        "BLEU about thirty for short and similar sentences such as captions, and far less for other text. More pairs "
        "help most.",
        {
            "tokenizer": dict(bpe_dropout=0.1),
            "model": dict(feed_forward_dropout=0.1),
            "training": dict(batch_tokens=3072, tune_decoding=True),
        },
    ),
    Level(
        600_000,
        "tiny",
        9_000,
        "good translations of short sentences like those of train, such as captions, and poor ones of other text.",
        {"training": dict(tune_decoding=True)},
    ),
    Level(1_500_000, "small", 5_000, "useful translations of text like that of train, and poor ones of other text."),
    Level(8_000_000, "small", 30_000, "useful translations of text like that of train, and fair ones of other text."),
    Level(
        60_000_000,
        "base",
        60_000,
        "good translations of text like that of train.",
        {"training": dict(batch_tokens=8192, micro_batches_per_step=1, schedule="linear", warmup_steps=2000)},
    ),
    Level(
        inf,
        "base",
        100_000,
        "good translations of many kinds of text; `preset: big` gains more if there are days of a large GPU.",
    ),
)
_LITTLE_DROPOUT = dict(dropout=0.1, feed_forward_dropout=0.1)
_DIVERSE_TRAINING = dict(best_metric="chrf", tune_decoding=True, concatenated_pairs=0.5, inserted_words=0.3)
_WHY_LITTLE_DROPOUT = "with more, the words of diverse text are aligned late"
_DIVERSE = replace(
    LEVELS[2],
    num_updates=2_700,
    expectation="words and phrases of the subject, with many errors. In docs/recipes.md, news and mixed text had BLEU "
    "1 to 7 and chrF 22 to 28, and short everyday sentences BLEU 20 and chrF 44. More pairs help most.",
    changes={
        "tokenizer": dict(bpe_dropout=0.1),
        "model": _LITTLE_DROPOUT,
        "training": dict(batch_tokens=3072) | _DIVERSE_TRAINING,
    },
    why_dropout=_WHY_LITTLE_DROPOUT,
)
_MORE_DIVERSE: Mapping[str, Any] = dict(
    changes={"model": _LITTLE_DROPOUT, "training": _DIVERSE_TRAINING},
    why_dropout=_WHY_LITTLE_DROPOUT,
)
DIVERSE_LEVELS = (
    LEVELS[0],
    replace(
        _DIVERSE,
        max_target_words=30_000,
        num_updates=1_800,
        expectation="words of the subject, and hardly any correct sentence. In docs/recipes.md, 1,500 pairs of news "
        "had BLEU 0.3 and chrF 20. More pairs help most.",
    ),
    _DIVERSE,
    replace(_DIVERSE, max_target_words=300_000, num_updates=5_400),
    replace(
        LEVELS[3],
        num_updates=5_400,
        expectation="fair translations of text like that of train, and poor ones of other text. In docs/recipes.md, "
        "news in English and German had BLEU 18 and chrF 47.",
        **_MORE_DIVERSE,
    ),
    replace(LEVELS[4], **_MORE_DIVERSE),
    replace(LEVELS[5], changes={"training": _DIVERSE_TRAINING}),
    *LEVELS[6:],
)
"""The levels of diverse text, in which a word is seldom repeated: there, a model has to learn first which words belong
together, and much dropout delays that for thousands of updates (`docs/recipes.md`)."""
DIVERSE = 0.73
"""Distinct-2 of 5,000 words (see `Facts.diversity`) from which text is diverse, in each language. Captions of Multi30k
have 0.67, short everyday sentences 0.79 to 0.84, news of Hausa, Yoruba and Wolof 0.81 to 0.87, AmericasNLP 0.84 to
0.89, news in English 0.91."""
WITH_CAPITALS = frozenset({"Latin", "Greek", "Cyrillic", "Armenian"})
"""The scripts in which a made-up name looks like a name."""
MUCH_LONGER = 1.3
"""How much longer than a sentence of `train` one of `valid` is, if pairs of diverse text are concatenated."""
VOCABULARY = ((12_000, 1_000), (50_000, 8_000), (360_000, 10_000), (3_000_000, 16_000), (15_000_000, 32_000))
"""Target words of the training pairs, and the vocabulary for both languages, its 256 bytes included; in between,
interpolated on logarithmic scales."""
DIVERSE_VOCABULARY = (VOCABULARY[0], (50_000, 4_000), (150_000, 4_000), *VOCABULARY[2:])
"""The same for diverse text."""
OWN_VOCABULARY_SHARE = 0.6
"""Size of each of two vocabularies, as a share of that of a shared one."""
TOKENS_PER_MINUTE: Mapping[str, Mapping[str, float]] = {
    "cpu": {"tiny": 1_300_000, "small": 530_000, "base": 30_000, "big": 8_000},
    "gpu": {"tiny": 20e6, "small": 20e6, "base": 8e6, "big": 3e6},
}
"""Rough speed of training on two CPU cores and on a GPU, in target tokens: it decides between presets, and how long a
smaller model is trained."""
LARGEST_ON_CPU = "small"
SMALLER: Values = {"model": {"dropout": 0.1}}
"""What a model that is smaller than its level's has instead: it sees the pairs less often."""
VOCABULARY_OF_SMALLER = 16_000
"""The most entries of such a model: with more, half of its time goes into them."""
CPU_MINUTES = 40.0
"""Minutes of two CPU cores that are planned for a direction, if the config has no `max_minutes`."""
SHARE_OF_UPDATES = 2 / 3
"""Of these minutes: the others are for validations, the tuning of the search and a large vocabulary."""


def filled(tree: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The tree of a config with the values of a preset for options that it does not set, and without `preset`.

    Values that would contradict those of the tree are left out: a size of the vocabulary for words or characters, one
    table for two vocabularies, the length of the run if the tree has a limit of steps, epochs or minutes, and tuning of
    a length penalty that it sets. With `init.run`, tokenizer and model are those of that run.
    """
    result = dict(tree) | {"preset": None}
    for section in ("training",) if begins_with_run(tree) else SECTIONS:
        given = tree.get(section, {})
        if not isinstance(given, Mapping):
            continue  # A ConfigError will say so.
        own = dict(values.get(section, {}))
        if section == "tokenizer" and given.get("algorithm", "bpe") in WITHOUT_SUBWORDS:
            own.pop("vocab_size", None)
        if section == "tokenizer" and given.get("algorithm", "bpe") != "bpe":
            own.pop("bpe_dropout", None)
        if section == "model" and _tokenizer_is_separate(result):
            own["tie_embeddings"] = "target"
        if section == "training" and any(given.get(name) is not None for name in _LIMITS):
            own |= dict.fromkeys(("max_steps", "max_epochs"))
        if section == "training" and _sets_tuned(tree):
            own.pop("tune_decoding", None)
        result[section] = own | dict(given)
    return result


def begins_with_run(tree: Mapping[str, Any]) -> bool:
    """Whether the tree of a config has `init.run`."""
    init = tree.get("init")
    return isinstance(init, Mapping) and init.get("run") is not None


def _sets_tuned(tree: Mapping[str, Any]) -> bool:
    decoding = tree.get("decoding")
    return isinstance(decoding, Mapping) and any(decoding.get(name) is not None for name in TUNED)


def _tokenizer_is_separate(tree: Mapping[str, Any]) -> bool:
    tokenizer = tree.get("tokenizer")
    return isinstance(tokenizer, Mapping) and tokenizer.get("shared") is False
