"""Sections of a config: every option with its default and limits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from mt_cli.config.base import MAY_CHANGE, Changeable, Section, if_complete, without_problems
from mt_cli.config.corpora import AugmentConfig, CorpusConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.config.writing import to_yaml

TUNED = ("length_penalty", "no_repeat_ngram")
"""Options of `decoding` that `training.tune_decoding` chooses."""
WITHOUT_SUBWORDS = ("word_level", "char")
"""Values of `tokenizer.algorithm` whose entries are whole words or characters."""
MOST_NAMED = 3
"""Largest number of replaced letters that a signature or a list of obstacles names one by one."""
LETTER = r"^[\p{L}'’‘`´′＇]\p{Mn}{0,3}$"
"""One letter with its marks, or an apostrophe."""
_Letter = Annotated[str, Field(pattern=LETTER)]
RUN_NAME = re.compile(r"[\w][\w.-]{0,99}")
RUN_NAME_RULE = "letters, digits, dots, hyphens and underscores, at most 100, the first one no dot or hyphen"


class TokenizerConfig(Section):
    """Tokenisation: how text is split into tokens. Vocabularies are learned from at most a million pairs."""

    algorithm: Literal["word_level", "bpe", "unigram", "char", "sentencepiece"] = "word_level"
    """Words, byte-pair encoding, unigram model, or characters; `sentencepiece`: models of an imported run."""
    vocab_size: int | None = Field(default=None, ge=8, le=2**24)
    """Maximum vocabulary size; `null`: no limit for words and characters, 8,000 for bpe and unigram, with 256 bytes."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum frequency of a word (with bpe: of a merge) in the vocabulary; 2 teaches a word-level model `[UNK]`."""
    spacing: Literal["lossless", "sentencepiece"] = "lossless"
    """With bpe and unigram: keep all spaces, or read them like SentencePiece, as `mt export` to Argos needs."""
    shared: bool = False
    """Use one vocabulary for both languages instead of one each, if they share a script or many names."""
    normalize: tuple[Literal["nfkc", "apostrophes", "joined_apostrophes", "lowercase"], ...] = Field(
        default=(), strict=False
    )
    """Make [spellings](languages.md#spellings) equal, in training and translating but not in references."""
    letters: dict[_Letter, _Letter | Literal[""]] = Field(default_factory=dict)
    """Replace letters or apostrophes, in both cases: `{ã: â}`, `{"'": ""}`; `mt data check` names candidates."""
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability of skipping a merge of bpe in training (Provilkov et al. 2020); 0.1 is usual."""

    @property
    def is_single(self) -> bool:
        """True if both sides have one tokenizer. Two SentencePiece models may share a vocabulary and differ."""
        return self.shared and self.algorithm != "sentencepiece"

    @property
    def changes_of_spelling(self) -> tuple[str, ...]:
        """Names of the chosen normalisations of texts, for signatures of scores; many letters have a digest."""
        letters = [f"{old}>{new}" for old, new in self.letters.items()]
        if len(letters) > MOST_NAMED:
            digest = hashlib.sha256("\n".join(sorted(letters)).encode()).hexdigest()
            letters = [f"letters.{len(letters)}.{digest[:8]}"]
        return (*self.normalize, *letters)

    @if_complete
    def _replaces_letters_once(self) -> Iterator[str]:
        replaced = {case for old in self.letters for case in (old, old.swapcase())}
        for new in self.letters.values():
            if new in replaced:
                yield f"letters: {new!r} would be replaced itself"

    @if_complete
    def _spaces_as_sentencepiece(self) -> Iterator[str]:
        if self.spacing == "lossless":
            return
        if self.algorithm not in ("bpe", "unigram"):
            yield f"spacing: sentencepiece: not with algorithm {self.algorithm}; set algorithm to bpe or unigram"
        for name in ("normalize", "letters"):
            if getattr(self, name) != TokenizerConfig.model_fields[name].get_default(call_default_factory=True):
                yield f"{name}: not with spacing: sentencepiece; remove it, or set spacing to lossless"

    @if_complete
    def _samples_what_it_has(self) -> Iterator[str]:
        if self.bpe_dropout and self.algorithm != "bpe":
            yield f"bpe_dropout: {self.algorithm} has no merges to skip; set algorithm to bpe"


class ModelConfig(Section):
    """The architecture of the Transformer."""

    d_model: int = Field(default=256, ge=2, le=2**16)
    """Width of embeddings and layers."""
    d_ff: int = Field(default=1024, ge=1, le=2**20)
    """Width of the feed-forward blocks."""
    num_heads: int = Field(default=4, ge=1)
    """Number of attention heads; divides `d_model`."""
    num_encoder_layers: int = Field(default=3, ge=1, le=1000)
    """Number of encoder layers."""
    num_decoder_layers: int = Field(default=3, ge=1, le=1000)
    """Number of decoder layers."""
    norm_order: Literal["pre", "post"] = "pre"
    """Layer norm before each sub-layer and after the last, or after each residual addition (Vaswani et al. 2017)."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """Activation of the feed-forward blocks; `swiglu` is the gated form of `silu` (swish)."""
    positions: Literal["sinusoidal", "rotary", "fairseq"] = "sinusoidal"
    """Table added to the embeddings, or rotary embedding; `fairseq`: the table of imported M2M100 and NLLB models."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Tables that share weights: none, target embedding and output projection, or the source embedding as well."""
    qkv_bias: bool = True
    """Use biases in the query, key and value projections; many recent models have none."""
    output_bias: bool = False
    """Use a bias in the output projection, as imported Marian models do."""
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    """Dropout rate of embeddings and of each sub-layer's output."""
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate of attention maps, for few pairs."""
    feed_forward_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate inside the feed-forward blocks, for few pairs."""

    @if_complete
    def _sizes_fit(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield f"num_heads: {self.num_heads} heads do not divide d_model {self.d_model}"
        elif self.positions == "rotary" and self.d_head % 2:
            yield f"positions: rotary turns pairs, but a head has {self.d_head} elements; change num_heads"
        if self.d_model % 2:
            yield f"d_model: {self.d_model} is odd; sines and cosines come in pairs"

    @property
    def d_head(self) -> int:
        return self.d_model // self.num_heads


class DecodingConfig(Section):
    """Search, in tests and in `mt translate`. Validation uses greedy search."""

    beam_size: int = Field(default=4, ge=1, le=1000)
    """Number of hypotheses kept per sentence; 1 is greedy search."""
    length_penalty: float = Field(default=1.0, ge=0, le=10)
    """0 favours short translations, larger values longer ones (Wu et al. 2016: their alpha)."""
    max_length_ratio: float = Field(default=3.0, gt=0, le=100)
    """Maximum tokens of a translation per source token, plus 10; lower values cut loops short."""
    no_repeat_ngram: int | None = Field(default=None, ge=1)
    """Length of token sequences that may not occur twice in a translation; 3 prevents loops."""
    sample: bool = False
    """Sample each token instead of searching; the same sentence and seed give the same sample."""
    temperature: float = Field(default=1.0, ge=0.001, le=100)
    """With `sample`: below 1 favours likely tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """With `sample`: total probability of the most likely tokens to sample from; 0.9 avoids nonsense."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """With `sample`: seed, beside the sentence, for other samples."""
    unk: Literal["copy", "keep", "avoid"] = "copy"
    """Unknown words: copy the source word that attention points at, keep `[UNK]`, or never generate it."""
    capitals: Literal["keep", "lower"] = "keep"
    """`lower`: translate lines in capitals as if they were in lower case, and write capitals again."""
    batch_tokens: int = Field(default=16_384, ge=1)
    """Source tokens translated at once, with padding and beams, less for little memory; GPUs take up to 262,144."""

    @property
    def greedy(self) -> DecodingConfig:
        return self.model_copy(update={"beam_size": 1, "sample": False})

    @without_problems
    def _options_fit(self) -> Iterator[str]:
        fields = DecodingConfig.model_fields
        for name in ("temperature", "top_p", "seed"):
            if getattr(self, name) != fields[name].default and not self.sample:
                yield f"{name}: used only by sampling; set sample to true (--sample)"


class InitConfig(Section):
    """Start of training: random weights, or the weights of another run (fine-tuning)."""

    run: str | None = None
    """Run whose best weights, tokenizers and model options this one begins with; only dropout may differ."""
    vocabulary: Literal["keep", "extend"] = "keep"
    """Keep the vocabularies, or extend them by tags, words, characters and subwords that they lack."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Modules that are not trained: `embeddings`, `encoder`, `decoder`, or by name, such as `encoder.1`."""
    adapter_rank: int | None = Field(default=None, ge=1)
    """Train only low-rank adapters of this rank (Hu et al. 2022, section 4)."""

    @without_problems
    def _has_a_run(self) -> Iterator[str]:
        for name, field in InitConfig.model_fields.items():
            if getattr(self, name) != field.default and self.run is None:
                yield f"{name}: needs another run to begin with; set init.run"


class EvaluationConfig(Section):
    """Scores of translations in validation, at the end, and in `mt evaluate`."""

    bleu_tokenizer: Literal[
        "auto", "13a", "char", "zh", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
    ] = "auto"
    """Tokenizer of sacreBLEU; `auto`: `zh` for Chinese, `char` for languages without spaces, otherwise `13a`."""


class Config(Section):
    """The config of a run."""

    name: str
    """Name of the run's directory in `runs`."""
    corpus: CorpusConfig
    """The parallel text."""
    preset: Literal["tiny", "small", "base", "big"] | None = None
    """Size of model, with values for options that the config does not set."""
    init: InitConfig = InitConfig()
    """Where training begins."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """Tokenisation of text."""
    model: ModelConfig = ModelConfig()
    """Architecture of the model."""
    training: TrainingConfig = TrainingConfig()
    """Optimisation of the weights."""
    decoding: Changeable[DecodingConfig] = DecodingConfig()
    """Search for translations."""
    evaluation: Changeable[EvaluationConfig] = EvaluationConfig()
    """Scoring of translations."""

    @field_validator("name")
    @classmethod
    def _name_stays_in_runs(cls, value: str) -> str:
        if not RUN_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a directory name; use {RUN_NAME_RULE}")
        return value

    @if_complete
    def _sections_fit(self) -> Iterator[str]:
        if self.model.tie_embeddings == "all" and not self.tokenizer.shared:
            yield "model.tie_embeddings: all needs one vocabulary; set tokenizer.shared to true"
        yield from self._augmentation_fits()
        if self.corpus.is_streaming:
            if self.training.validate_every_steps is None:
                yield "training.validate_every_steps: missing; an epoch of a stream may never end"
            has_end = self.training.max_steps is not None or self.training.max_minutes is not None
            if self.training.has_falling_rate and not has_end:
                yield "training.max_steps: missing; the schedule of a stream needs it or max_minutes"

    def _augmentation_fits(self) -> Iterator[str]:
        algorithm = self.tokenizer.algorithm
        if self.init.run is not None and "algorithm" not in self.tokenizer.model_fields_set:
            return  # The parent decides the algorithm.
        if self.corpus.terms and algorithm == "word_level":
            yield "corpus.terms: word_level has no subwords for terms that are not in the corpus; use bpe or unigram"
        if self.corpus.terms and not self.tokenizer.shared:
            yield "corpus.terms: sources have words of the target language; set tokenizer.shared to true"
        if self.training.inserted_words and algorithm in WITHOUT_SUBWORDS:
            yield f"training.inserted_words: {algorithm} has no subwords for made-up words; use bpe or unigram"
        if self.training.concatenated_pairs and algorithm == "char":
            yield "training.concatenated_pairs: not with tokenizer.algorithm char, as no space would stand between them"

    @property
    def changes_texts(self) -> bool:
        augment = self.corpus.augment != AugmentConfig()
        return self.training.inserted_words > 0 or augment or self.corpus.terms

    @property
    def greedy_decoding(self) -> DecodingConfig:
        """Search of validations, which does not depend on what `training.tune_decoding` chooses later."""
        greedy = self.decoding.greedy
        return greedy.model_copy(update={"no_repeat_ngram": None}) if self.training.tune_decoding else greedy

    def to_yaml(self) -> str:
        return to_yaml(self.model_dump(mode="json"))


def may_change(key: str) -> bool:
    """True if the option with this dotted key may change when a run resumes."""
    section: Any = Config
    for name in key.split("."):
        field = getattr(section, "model_fields", {}).get(name)
        if field is None or MAY_CHANGE in field.metadata:
            return field is not None
        section = field.annotation
    return False
