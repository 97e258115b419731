"""The sections of a run. Knows every option, its default and its limits; does not know what they do."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import Field, field_validator, model_validator

from mt_cli.config.corpora import CorpusConfig, Section

T = TypeVar("T")


class MayChange:
    """Mark of an option, or of all options of a section, that may change when a run resumes."""


Changeable = Annotated[T, MayChange()]
"""The type of an option with this mark."""


class TokenizerConfig(Section):
    """How text is cut into tokens."""

    algorithm: Literal["word_level", "bpe", "unigram", "char"] = "word_level"
    """Whole words and punctuation marks, byte-pair merges, a unigram language model, or characters."""
    vocab_size: int | None = Field(default=None, ge=8)
    """Entries of a vocabulary at most; None: no limit for words and characters, 8,000 for bpe and unigram."""
    min_frequency: int = Field(default=1, ge=1)
    """Words (with bpe: merges) seen less often get no entry."""
    byte_fallback: bool = True
    """With bpe and unigram: characters without an entry are written as their UTF-8 bytes, so that no text is unknown;
    256 entries of the vocabulary are bytes."""
    shared: bool = False
    """One vocabulary for both languages instead of one each."""
    lowercase: bool = False
    """Turn text into lower case; translations then come out in lower case."""
    nfkc: bool = False
    """Apply Unicode's NFKC normalisation (full-width letters, ligatures, ...)."""
    sample_pairs: int | None = Field(default=1_000_000, ge=1)
    """Pairs, a seeded sample, that the tokenizers are trained on; None: all. Of a stream: its first."""


class ModelConfig(Section):
    """The Transformer's shape."""

    d_model: int = Field(default=256, ge=2, le=2**16)
    """Width of embeddings and layers."""
    d_ff: int = Field(default=1024, ge=1, le=2**20)
    """Width inside the feed-forward blocks."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads; must divide `d_model`."""
    num_encoder_layers: int = Field(default=3, ge=1, le=1000)
    """Encoder depth."""
    num_decoder_layers: int = Field(default=3, ge=1, le=1000)
    """Decoder depth."""
    norm_order: Literal["pre", "post"] = "pre"
    """Layer norm before each sub-layer, or after each residual addition as in the 2017 paper."""
    final_norm: bool | None = None
    """A layer norm at the end of the encoder and of the decoder; None: with `norm_order: pre`, which needs it. With
    `post`, true makes the model that of PyTorch's `nn.Transformer`."""
    activation: Literal["relu", "gelu", "swiglu"] = "relu"
    """Non-linearity of the feed-forward blocks."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """How a token's position enters."""
    max_positions: int = Field(default=1024, ge=1, le=2**20)
    """Entries of the table of learned positions; sinusoidal ones have no limit."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Which tables are one: none, target embedding and output projection, or the source embedding as well."""
    qkv_bias: bool = True
    """Biases in the query, key and value projections."""
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    """Share of units dropped from embeddings and from each sub-layer's output."""
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Share of attention weights dropped."""
    feed_forward_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Share of units dropped inside the feed-forward blocks, after the non-linearity."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> ModelConfig:
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} heads do not divide d_model {self.d_model}")
        if self.d_model % 2:
            raise ValueError(f"d_model: {self.d_model} is odd; sines and cosines come in pairs")
        if self.norm_order == "pre" and self.final_norm is False:
            raise ValueError(
                "final_norm: false leaves the sums of pre-norm layers as they are, larger the more layers there are; "
                "leave it out, or set norm_order to post"
            )
        return self

    @property
    def ends_in_norm(self) -> bool:
        """Whether there is a norm at the end of the encoder and of the decoder."""
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm


class TrainingConfig(Section):
    """The optimisation. Training stops at the first of `max_*` and `patience` that is reached."""

    seed: int = Field(default=1, ge=0, lt=2**31)
    """Of initial weights, order of pairs, dropout and held-out share."""
    max_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Stop after this many optimizer updates."""
    max_epochs: Changeable[int | None] = Field(default=10, ge=1)
    """Stop after this many passes over the pairs."""
    max_minutes: Changeable[float | None] = Field(default=None, gt=0)
    """Stop after this much time, validation included."""
    patience: Changeable[int | None] = Field(default=None, ge=1)
    """Stop after this many validations in a row, those during the warm-up not counted, without a better
    `best_metric`."""
    best_metric: Changeable[Literal["auto", "bleu", "chrf", "loss"]] = "auto"
    """What the best checkpoint is best at, on the validation pairs; of equal ones the lower loss decides. `auto`:
    `chrf` if the target language has no words that BLEU could count as they stand, else `bleu`."""
    batch_tokens: int | str = 4096
    """Size of a micro-batch: its number of pairs times its longest side, padding included. `auto`: on a GPU the
    largest that fits, from 4,096 to 131,072 and a hundredth of an epoch; elsewhere 4,096. The run's config has it."""
    micro_batches_per_step: int = Field(default=1, ge=1)
    """Batches whose gradients are added up before one update."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """Peak learning rate of AdamW."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """How the rate falls after the warm-up; linear and cosine reach zero at the last step."""
    warmup_steps: int = Field(default=400, ge=0)
    """Updates during which the rate rises from zero to its peak."""
    adam_betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = (0.9, 0.98)
    """Decay of AdamW's averages of the gradient and of its square."""
    adam_epsilon: float = Field(default=1e-9, ge=1e-20)
    """Added to AdamW's denominator."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay of weight matrices; biases, norms and embeddings do not decay."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Probability mass that the objective spreads evenly over the vocabulary."""
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    """Longer gradients are scaled down to this norm."""
    validate_every_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Updates between validations, which also save; None: at the end of every epoch."""
    save_every_minutes: Changeable[float | None] = Field(default=10, gt=0)
    """Save at least this often, between validations too; None: only with them and at the end."""
    keep_last: Changeable[int] = Field(default=1, ge=0)
    """Saved states kept beside the last one, should that be damaged; each has three times the size of the model."""
    max_bad_steps: Changeable[int] = Field(default=10, ge=1)
    """After so many steps in a row whose loss or gradient is not finite (each is skipped), training goes back to the
    last good state with half the learning rate; twice at most."""
    log_every_steps: Changeable[int] = Field(default=10, ge=1)
    """Updates between two rows of `metrics.jsonl` and points in TensorBoard."""
    num_samples: Changeable[int] = Field(default=5, ge=0)
    """Sentences whose translations every validation writes to `samples.txt` and TensorBoard; the first two are also
    printed."""
    device: Changeable[str] = "auto"
    """`auto` (CUDA, then MPS, then CPU), `cpu`, `cuda`, `cuda:1`, `mps`."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Number format of activations; weights are kept in fp32. `auto`: bf16 where the hardware is fast at it."""
    num_threads: Changeable[int | None] = Field(default=None, ge=1, le=1024)
    """CPU threads; None: PyTorch's own choice."""

    @field_validator("batch_tokens", mode="before")
    @classmethod
    def _batch_has_a_size(cls, value: object) -> object:
        if value != "auto" and (type(value) is not int or value < 1):
            raise ValueError(f"found {value!r}; it should be a number of tokens, at least 1, or auto")
        return value

    @property
    def tokens_per_batch(self) -> int:
        """`batch_tokens`, where it is known."""
        assert isinstance(self.batch_tokens, int), "auto is replaced before training"
        return self.batch_tokens

    @field_validator("device")
    @classmethod
    def _device_exists(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
            raise ValueError(f"unknown device {value!r}; use auto, cpu, cuda, cuda:1 or mps")
        return value

    @model_validator(mode="after")
    def _ends(self) -> TrainingConfig:
        if self.max_steps is self.max_epochs is self.max_minutes is self.patience is None:
            raise ValueError("max_epochs: nothing ends this run; set max_steps, max_epochs, max_minutes or patience")
        if self.schedule in ("linear", "cosine") and self.max_steps is self.max_epochs is None:
            raise ValueError(f"schedule: {self.schedule} falls to zero at the last step; set max_steps or max_epochs")
        return self


class DecodingConfig(Section):
    """How translations are searched, in tests and in `mt translate`. Validation is greedy."""

    beam_size: int = Field(default=4, ge=1, le=1000)
    """Hypotheses kept per sentence; 1 is greedy search."""
    length_penalty: float = Field(default=1.0, ge=0, le=10)
    """0 prefers short translations, larger values longer ones (Wu et al. 2016, equation 14: their alpha)."""
    max_length_ratio: float = Field(default=3.0, gt=0, le=100)
    """A translation has at most this many times the source's tokens, plus 10."""
    min_length: int = Field(default=0, ge=0)
    """Tokens that a translation has at least, as far as it may be so long."""
    max_length: int | None = Field(default=None, ge=1)
    """Tokens that a translation has at most; None: `max_length_ratio` alone decides."""
    no_repeat_ngram: int | None = Field(default=None, ge=1)
    """No sequence of so many tokens comes twice in a translation."""
    sample: bool = False
    """Draw each token by lot instead of searching; the same sentence and seed give the same draw."""
    temperature: float = Field(default=1.0, ge=0.001, le=100)
    """With `sample`: probabilities are raised to the power of 1 / temperature; below 1, likely tokens gain."""
    top_k: int | None = Field(default=None, ge=1)
    """With `sample`: only this many of the likeliest tokens are drawn from."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """With `sample`: only the likeliest tokens that together have this probability are drawn from."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """With `sample`: what the draw depends on, beside the sentence."""
    unk: Literal["copy", "keep", "avoid"] = "copy"
    """An unknown word in a translation is replaced by the source word that attention points at, kept as `[UNK]`, or
    never produced."""
    batch_tokens: int = Field(default=16_384, ge=1)
    """Source tokens translated at once, padding and beams included."""

    @property
    def greedy(self) -> DecodingConfig:
        """The same without beams or chance."""
        return self.model_copy(update={"beam_size": 1, "sample": False})

    @model_validator(mode="after")
    def _options_fit(self) -> DecodingConfig:
        fields = DecodingConfig.model_fields
        of_sampling = ("temperature", "top_k", "top_p", "seed")
        changed = [name for name in of_sampling if getattr(self, name) != fields[name].default]
        if changed and not self.sample:
            raise ValueError(f"{changed[0]}: only sampling asks for it; set sample to true (--sample)")
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(f"max_length: {self.max_length} is less than min_length {self.min_length}")
        return self


class EvaluationConfig(Section):
    """How translations are scored, in validation, at the end and by `mt evaluate`."""

    bleu_tokenizer: Literal[
        "auto", "13a", "char", "zh", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
    ] = "auto"
    """What BLEU counts, by sacreBLEU's names. `auto`: `zh` for Chinese, `char` for Japanese, Korean, Thai, Lao, Khmer,
    Burmese and Tibetan, `13a` for all others. `ja-mecab`, `ko-mecab` and the FLORES ones need further packages."""


class Config(Section):
    """A whole run."""

    name: str
    """The run's directory below `runs`."""
    corpus: CorpusConfig
    """Parallel text."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """Text to tokens."""
    model: ModelConfig = ModelConfig()
    """The network."""
    training: TrainingConfig = TrainingConfig()
    """The optimisation."""
    decoding: Changeable[DecodingConfig] = DecodingConfig()
    """The search."""
    evaluation: Changeable[EvaluationConfig] = EvaluationConfig()
    """The scores."""

    @field_validator("name")
    @classmethod
    def _name_stays_in_runs(cls, value: str) -> str:
        if not re.fullmatch(r"[\w][\w.-]{0,99}", value):
            raise ValueError(
                f"{value!r} cannot name a directory below runs; "
                "use letters, digits, dots, hyphens and underscores, beginning with a letter or digit"
            )
        return value

    @model_validator(mode="after")
    def _sections_fit(self) -> Config:
        if self.model.tie_embeddings == "all" and not self.tokenizer.shared:
            raise ValueError("model.tie_embeddings: all needs one vocabulary; set tokenizer.shared to true")
        if self.model.positions == "learned" and self.corpus.max_tokens >= self.model.max_positions:
            raise ValueError(
                f"model.max_positions: {self.model.max_positions} learned positions do not hold "
                f"corpus.max_tokens {self.corpus.max_tokens} and a special token"
            )
        if self.corpus.is_streaming:
            if self.training.validate_every_steps is None:
                raise ValueError("training.validate_every_steps: missing; an epoch of a stream may never end")
            if self.training.schedule in ("linear", "cosine") and self.training.max_steps is None:
                raise ValueError("training.max_steps: missing; without it a stream does not say where the rate ends")
            if self.tokenizer.sample_pairs is None:
                raise ValueError("tokenizer.sample_pairs: missing; a stream has no end that all of it could reach")
        return self

    def to_yaml(self) -> str:
        """The complete config, which reads back as an equal one."""
        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110))


def may_change(key: str) -> bool:
    """Whether the option with this dotted key may change when a run resumes."""
    section: Any = Config
    for name in key.split("."):
        field = getattr(section, "model_fields", {}).get(name)
        if field is None or any(isinstance(mark, MayChange) for mark in field.metadata):
            return field is not None
        section = field.annotation
    return False
