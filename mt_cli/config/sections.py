"""The sections of a config: every option with its default and limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator, model_validator

from mt_cli.config.corpora import CorpusConfig, Section
from mt_cli.config.writing import to_yaml

T = TypeVar("T")

WILL_BE_FILLED = {"is_complete": False}
"""The context of validation in which options need not fit together: values of a preset or of another run will replace
defaults."""


def _if_complete(check: Callable[[T], T]) -> Any:
    """A validator that checks whether options fit together, unless the context is `WILL_BE_FILLED`."""

    def validate(section: T, info: ValidationInfo) -> T:
        return section if info.context == WILL_BE_FILLED else check(section)

    return model_validator(mode="after")(validate)


RUN_NAME = re.compile(r"[\w][\w.-]{0,99}")
RUN_NAME_RULE = "letters, digits, dots, hyphens and underscores, at most 100, the first one no dot or hyphen"

_MAY_CHANGE = "may change when a run resumes"
Changeable = Annotated[T, _MAY_CHANGE]
"""The type of an option, or of a section of options, that may change when a run resumes."""


class TokenizerConfig(Section):
    """Tokenisation: how text is split into tokens."""

    algorithm: Literal["word_level", "bpe", "unigram", "char", "sentencepiece"] = "word_level"
    """Words and punctuation marks, byte-pair encoding, a unigram language model, or characters. `sentencepiece`: the
    SentencePiece models of an imported model, which `mt` does not train."""
    vocab_size: int | None = Field(default=None, ge=8, le=2**24)
    """Maximum size of a vocabulary; `null`: no limit for words and characters, 8,000 for bpe and unigram."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum frequency of a word (with bpe: of a merge) in the vocabulary."""
    byte_fallback: bool = True
    """With bpe and unigram: encode characters that are not in the vocabulary as UTF-8 bytes, so that no token is
    unknown. 256 entries of the vocabulary are bytes."""
    shared: bool = False
    """Use one vocabulary for both languages instead of one each."""
    lowercase: bool = False
    """Convert text to lower case. Translations are then in lower case."""
    nfkc: bool = False
    """Apply Unicode NFKC normalisation (full-width letters, ligatures, ...)."""
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)
    """With bpe, in training: probability of skipping a merge (BPE-dropout, Provilkov et al. 2020; 0.1 is usual). Words
    are segmented differently in each epoch."""
    unigram_alpha: float | None = Field(default=None, ge=0, le=10)
    """With unigram, in training: sample segmentations with their probabilities to the power of this number (subword
    regularization, Kudo 2018; 0.2 is usual). Words are segmented differently in each epoch. `null`: off."""
    sample_pairs: int | None = Field(default=1_000_000, ge=1)
    """Number of pairs in the seeded sample that the tokenizers are trained on; `null`: all pairs. For a stream: its
    first pairs."""

    @property
    def is_single(self) -> bool:
        """Whether both sides have one tokenizer. Two SentencePiece models may have the same entries and differ."""
        return self.shared and self.algorithm != "sentencepiece"

    @property
    def is_sampled(self) -> bool:
        """Whether training samples segmentations."""
        return self.bpe_dropout > 0 or self.unigram_alpha is not None

    @_if_complete
    def _samples_what_it_has(self) -> TokenizerConfig:
        if self.bpe_dropout and self.algorithm != "bpe":
            raise ValueError(f"bpe_dropout: {self.algorithm} has no merges to skip; set algorithm to bpe")
        if self.unigram_alpha is not None and self.algorithm != "unigram":
            raise ValueError(f"unigram_alpha: {self.algorithm} has no probabilities; set algorithm to unigram")
        return self


class ModelConfig(Section):
    """The architecture of the Transformer."""

    d_model: int = Field(default=256, ge=2, le=2**16)
    """Width of embeddings and layers."""
    d_ff: int = Field(default=1024, ge=1, le=2**20)
    """Width of the hidden layer of the feed-forward blocks."""
    num_heads: int = Field(default=4, ge=1)
    """Number of attention heads; must divide `d_model`."""
    num_encoder_layers: int = Field(default=3, ge=1, le=1000)
    """Number of encoder layers."""
    num_decoder_layers: int = Field(default=3, ge=1, le=1000)
    """Number of decoder layers."""
    norm_order: Literal["pre", "post"] = "pre"
    """Layer norm before each sub-layer, or after each residual addition as in the 2017 paper."""
    final_norm: bool | None = None
    """Layer norm at the end of the encoder and of the decoder; `null`: true with `norm_order: pre`, which
    needs it, and false with `post`. With `post`, true gives the model of PyTorch's `nn.Transformer`."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """Activation function of the feed-forward blocks. Marian calls `silu` swish; `swiglu` is its gated form."""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """Positional encoding: a table added to the embeddings, or queries and keys of self-attention rotated by their
    position."""
    max_positions: int = Field(default=1024, ge=1, le=2**20)
    """Size of the table of learned positions; the other kinds have no limit."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Which tables share weights: none, target embedding and output projection, or the source embedding as well."""
    qkv_bias: bool = True
    """Use biases in the query, key and value projections."""
    output_bias: bool = False
    """Use a bias in the output projection, as Marian does."""
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    """Dropout rate of embeddings and of each sub-layer's output."""
    embedding_dropout: float | None = Field(default=None, ge=0, le=0.99)
    """Dropout rate of embeddings; `null`: `dropout`."""
    word_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Share of source and target tokens whose whole embedding is dropped (Gal and Ghahramani 2016, section 4.2)."""
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate of attention weights."""
    feed_forward_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate inside the feed-forward blocks, after the activation."""

    @_if_complete
    def _sizes_fit(self) -> ModelConfig:
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads: {self.num_heads} heads do not divide d_model {self.d_model}")
        if self.d_model % 2:
            raise ValueError(f"d_model: {self.d_model} is odd; sines and cosines come in pairs")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(f"positions: rotary turns pairs, but a head has {self.d_head} elements; change num_heads")
        if self.norm_order == "pre" and self.final_norm is False:
            raise ValueError("final_norm: false does not work with pre-norm layers; remove it or set norm_order: post")
        return self

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def ends_in_norm(self) -> bool:
        """Whether the encoder and the decoder end in a layer norm."""
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm


class TrainingConfig(Section):
    """Optimisation. It stops at the first limit reached of `max_steps`, `max_epochs`, `max_minutes` and `patience`."""

    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of initial weights, order of pairs, dropout and held-out share."""
    max_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Maximum number of optimizer updates."""
    max_epochs: Changeable[int | None] = Field(default=10, ge=1)
    """Maximum number of passes over the training pairs. The default applies only if neither `max_steps` nor
    `max_minutes` is set; otherwise it is `null`."""
    max_minutes: Changeable[float | None] = Field(default=None, ge=1e-9, le=1_000_000_000)
    """Maximum training time, validation included. The learning rate of `linear` and `cosine` then follows the clock, so
    that the exact result depends on the speed of the machine."""
    patience: Changeable[int | None] = Field(default=None, ge=1)
    """Stop after this number of validations in a row without a better `best_metric`. Validations during the warm-up do
    not count."""
    best_metric: Changeable[Literal["auto", "bleu", "chrf", "loss"]] = "auto"
    """The metric on the validation pairs that selects the best checkpoint; ties go to the lower loss. `auto`: `chrf` if
    the target language has no words that BLEU could count, otherwise `bleu`."""
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = 4096
    """Size of a micro-batch: number of pairs times longest side, padding included. `auto`: on a GPU the largest size
    that fits in memory, from 4,096 to 131,072 and at most a hundredth of an epoch; on other devices 4,096. The config
    of the run records the size."""
    micro_batches_per_step: int = Field(default=1, ge=1)
    """Number of micro-batches whose gradients each process accumulates before an update; N processes make updates of N
    times as many (`docs/scaling.md`)."""
    micro_batches_growth_steps: int | None = Field(default=None, ge=2, le=1_000_000)
    """Number of updates over which the micro-batches of an update grow evenly from one to `micro_batches_per_step`
    (Smith et al. 2018, "Don't Decay the Learning Rate, Increase the Batch Size"); `null`: all updates are equal."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon (Jordan et al. 2024) for the matrices of the layers and AdamW for everything else."""
    learning_rate: float = Field(default=1e-3, ge=1e-30, le=1e30)
    """Peak learning rate."""
    muon_learning_rate: float | None = Field(default=None, ge=1e-30, le=1e30)
    """With `optimizer: muon`: its own peak learning rate; `null`: `learning_rate`, which fits both because the updates
    of Muon are scaled to the size of AdamW's (Liu et al. 2025)."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """Decay of the learning rate after the warm-up; linear and cosine reach zero at the first of `max_steps`,
    `max_epochs` and `max_minutes`."""
    warmup_steps: int = Field(default=400, ge=0)
    """Number of updates during which the learning rate rises from zero to its peak. If they take more than half of
    the run, the decay of linear and cosine begins at half of it, and the lower of the two rates counts."""
    adam_betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = (0.9, 0.98)
    """AdamW's decay rates for the averages of the gradient and of its square."""
    adam_epsilon: float = Field(default=1e-9, ge=1e-20, le=1_000_000)
    """Added to AdamW's denominator."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000_000)
    """Decoupled weight decay of matrices; biases, norms and embeddings do not decay."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Probability mass spread evenly over the vocabulary."""
    r_drop: float | None = Field(default=None, ge=0, le=1_000_000)
    """Weight of R-Drop, which computes each batch twice with different dropout and draws the two distributions together
    (Wu et al. 2021: their alpha). It doubles the time of a step; `null`: off."""
    r_drop_start_step: int = Field(default=1, ge=1)
    """First update with R-Drop; earlier ones compute each batch once."""
    max_grad_norm: float | None = Field(default=1.0, ge=1e-20, le=1e20)
    """Maximum norm of the gradient; longer gradients are scaled down to it."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Decay rate of an exponential moving average of the weights, such as 0.999, which is then what is validated, saved
    as the best and used to translate; `null`: no average. It averages over about 1 / (1 - `ema_decay`) updates."""
    validate_every_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Number of updates between validations, which also save; `null`: at the end of every epoch."""
    save_every_minutes: Changeable[float | None] = Field(default=10, ge=1e-9, le=1_000_000_000)
    """Maximum time between saves; `null`: save only at validations and at the end."""
    keep_last: Changeable[int] = Field(default=1, ge=0)
    """Number of earlier states to keep in case the last one is damaged. Each has three times the size of the model."""
    keep_validated: Changeable[int] = Field(default=0, ge=0)
    """Number of validated checkpoints to keep for `mt average`: this many of the last ones, and of the best ones. Each
    has the size of the model."""
    average_checkpoints: Changeable[int | None] = Field(default=None, ge=2)
    """At the end, average this number of the last validated checkpoints, and of the best ones (they are then kept).
    The better mean becomes the best checkpoint if its validation is better than that of any step; `null`: no mean."""
    max_bad_steps: Changeable[int] = Field(default=10, ge=1)
    """After this number of steps in a row with a loss or gradient that is not finite (such steps are skipped), training
    returns to the last good state with half the learning rate, at most twice."""
    log_every_steps: Changeable[int] = Field(default=10, ge=1)
    """Number of updates between rows of `metrics.jsonl` and points in TensorBoard."""
    num_samples: Changeable[int] = Field(default=5, ge=0)
    """Number of sentences whose translations each validation writes to `samples.txt` and TensorBoard. The first two are
    also printed."""
    num_pictures: Changeable[int] = Field(default=2, ge=0)
    """Number of these sentences whose cross-attention each validation draws in TensorBoard: the first ones with at most
    60 tokens."""
    device: Changeable[str] = "auto"
    """`auto` (CUDA, then MPS, then CPU), `cpu`, `cuda`, `cuda:1`, `mps`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of activations; weights are always fp32. `auto`: bf16 if the hardware is fast at it. `fp16`, for
    GPUs that lack bf16, scales the loss (Micikevicius et al. 2018, section 3.2) and skips a step whose gradient
    overflows; it is slow on CPUs."""
    recompute_layers: Changeable[bool] = False
    """Compute the hidden states inside a layer again in the backward pass instead of keeping them (activation
    checkpointing, Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"). The result is the same; it needs
    less memory and takes longer."""
    shard_model: Changeable[bool] = False
    """Each of several processes keeps only its share of the weights, gradients and moments of AdamW, for models that do
    not fit in the memory of one device (ZeRO stage 3, Rajbhandari et al. 2020; `docs/scaling.md`). The result is the
    same up to rounding; the traffic between processes is larger. One process alone ignores it."""
    num_threads: Changeable[int | None] = Field(default=None, ge=1, le=1024)
    """Number of CPU threads; `null`: PyTorch's default."""

    @field_validator("batch_tokens", mode="before")
    @classmethod
    def _batch_has_a_size(cls, value: object) -> object:
        if value != "auto" and (type(value) is not int or value < 1):
            raise ValueError(f"found {value!r}; it should be a number of tokens, at least 1, or auto")
        return value

    @model_validator(mode="before")
    @classmethod
    def _has_one_length(cls, tree: Any) -> Any:
        """Leave out the default of `max_epochs` if another option sets the length of the run."""
        if isinstance(tree, dict) and any(tree.get(name) is not None for name in ("max_steps", "max_minutes")):
            return {"max_epochs": None, **tree}
        return tree

    @property
    def tokens_per_batch(self) -> int:
        """`batch_tokens` as a number."""
        assert isinstance(self.batch_tokens, int), "auto is replaced before training"
        return self.batch_tokens

    def num_micro_batches(self, step: int) -> int:
        """The number of micro-batches of step 1, 2, ..."""
        largest, growth = self.micro_batches_per_step, self.micro_batches_growth_steps
        return largest if growth is None else min(largest, 1 + largest * (step - 1) // growth)

    @property
    def num_validated_kept(self) -> int:
        """How many of the last, and of the best, validated checkpoints are kept."""
        return max(self.keep_validated, self.average_checkpoints or 0)

    @field_validator("device")
    @classmethod
    def _device_exists(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", value):
            raise ValueError(f"unknown device {value!r}; use auto, cpu, cuda, cuda:1 or mps")
        return value

    @_if_complete
    def _ends(self) -> TrainingConfig:
        if self.muon_learning_rate is not None and self.optimizer != "muon":
            raise ValueError("muon_learning_rate: used only by Muon; set optimizer to muon")
        if self.shard_model and self.optimizer == "muon":
            raise ValueError("shard_model: Muon needs whole matrices; set optimizer to adamw")
        if self.shard_model and self.precision == "fp16":
            raise ValueError("shard_model: the loss of sharded models is not scaled; set precision to bf16 or fp32")
        if self.max_steps is self.max_epochs is self.max_minutes is self.patience is None:
            raise ValueError("max_epochs: nothing ends this run; set max_steps, max_epochs, max_minutes or patience")
        if self.schedule in ("linear", "cosine") and self.max_steps is self.max_epochs is self.max_minutes is None:
            raise ValueError(
                f"schedule: {self.schedule} falls to zero at the end; set max_steps, max_epochs or max_minutes"
            )
        return self


class DecodingConfig(Section):
    """Search, in tests and in `mt translate`. Validation uses greedy search."""

    beam_size: int = Field(default=4, ge=1, le=1000)
    """Number of hypotheses kept per sentence; 1 is greedy search."""
    length_penalty: float = Field(default=1.0, ge=0, le=10)
    """0 favours short translations, larger values longer ones (Wu et al. 2016, equation 14: their alpha)."""
    max_length_ratio: float = Field(default=3.0, gt=0, le=100)
    """Maximum length of a translation as a multiple of the number of source tokens, plus 10."""
    min_length: int = Field(default=0, ge=0)
    """Minimum length of a translation in tokens, unless a maximum length is smaller."""
    max_length: int | None = Field(default=None, ge=1)
    """Maximum length of a translation in tokens; `null`: only `max_length_ratio` limits it."""
    no_repeat_ngram: int | None = Field(default=None, ge=1)
    """Length in tokens of sequences that may not occur twice in a translation."""
    sample: bool = False
    """Sample each token instead of searching. The same sentence and seed give the same sample."""
    temperature: float = Field(default=1.0, ge=0.001, le=100)
    """With `sample`: probabilities are raised to the power of 1/temperature; values below 1 favour likely tokens."""
    top_k: int | None = Field(default=None, ge=1)
    """With `sample`: sample only from this number of the most likely tokens."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """With `sample`: sample only from the smallest set of likely tokens with this total probability."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """With `sample`: seed of the random numbers, which also depend on the sentence."""
    unk: Literal["copy", "keep", "avoid"] = "copy"
    """Replace an unknown word in a translation with the source word that attention points at, keep it as `[UNK]`, or
    never generate it."""
    batch_tokens: int = Field(default=16_384, ge=1)
    """Number of source tokens translated at once, padding and beams included."""

    @property
    def greedy(self) -> DecodingConfig:
        """A copy for greedy search."""
        return self.model_copy(update={"beam_size": 1, "sample": False})

    @model_validator(mode="after")
    def _options_fit(self) -> DecodingConfig:
        fields = DecodingConfig.model_fields
        of_sampling = ("temperature", "top_k", "top_p", "seed")
        changed = [name for name in of_sampling if getattr(self, name) != fields[name].default]
        if changed and not self.sample:
            raise ValueError(f"{changed[0]}: used only by sampling; set sample to true (--sample)")
        if self.max_length is not None and self.max_length < self.min_length:
            raise ValueError(f"max_length: {self.max_length} is less than min_length {self.min_length}")
        return self


class InitConfig(Section):
    """What training begins with: random weights, or those of another run (fine-tuning)."""

    run: str | None = None
    """Directory of a trained run. Training begins with the weights of its best checkpoint and keeps its tokenizers;
    optimizer, schedule and data are new. Options of `tokenizer` and `model` are then those of that run, and may differ
    only in dropout and sampling."""
    vocabulary: Literal["keep", "extend"] = "keep"
    """Keep the vocabularies, or extend them by entries for tags, words, characters and subwords with such characters
    that they lack. The embedding of a new entry begins as the mean of those of the tokens that spelled it before."""
    max_new_entries: int = Field(default=4000, ge=1)
    """Maximum number of entries that `extend` adds to a vocabulary, besides tags."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Parts of the model that are not trained: `embeddings`, `encoder`, `decoder`, or modules by their names in the
    model, such as `decoder.0` or `encoder.1.self_attention` (Houlsby et al. 2019, section 3.5, measure how much is lost
    by it)."""
    adapter_rank: int | None = Field(default=None, ge=1)
    """Train only low-rank adapters of this rank, added to the linear maps of attention and feed-forward blocks, and
    nothing else (with `vocabulary: extend`, the embeddings too). Checkpoints hold only what is trained (Hu et al. 2022,
    section 4)."""
    adapter_alpha: float = Field(default=16.0, ge=1e-6, le=1_000_000)
    """The output of an adapter is multiplied by `adapter_alpha / adapter_rank` (Hu et al. 2022, section 4.1)."""
    replay: float | None = Field(default=None, ge=1e-6, lt=1)
    """Share of the training pairs of an epoch that are pairs of that run, against forgetting (rehearsal, Robins 1995;
    mixed fine-tuning, Chu et al. 2017). They are added to `corpus.train`. If the languages are the same, its test set
    is added to `corpus.extra_tests`; if not, all corpora need tags."""

    @model_validator(mode="after")
    def _has_a_run(self) -> InitConfig:
        defaults = {name: field.default for name, field in InitConfig.model_fields.items()}
        changed = [name for name, default in defaults.items() if getattr(self, name) != default]
        if changed and self.run is None:
            raise ValueError(f"{changed[0]}: needs another run to begin with; set init.run")
        return self


class EvaluationConfig(Section):
    """Scores of translations in validation, at the end, and in `mt evaluate`."""

    bleu_tokenizer: Literal[
        "auto", "13a", "char", "zh", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
    ] = "auto"
    """BLEU's tokenizer, by sacreBLEU's names. `auto`: `zh` for Chinese, `char` for Japanese, Korean, Thai, Lao, Khmer,
    Burmese and Tibetan, `13a` for all others. `ja-mecab`, `ko-mecab` and FLORES need more packages."""
    num_resamples: int = Field(default=1000, ge=1, le=100_000)
    """Number of random samples of a test set from which the confidence intervals of its scores are computed, and the
    p-values of `mt evaluate --against` (bootstrap resampling, Koehn 2004). A finished run keeps its intervals if the
    number changes."""


class Config(Section):
    """The config of a run."""

    name: str
    """Name of the run's directory in `runs`."""
    corpus: CorpusConfig
    """The parallel text."""
    preset: Literal["tiny", "small", "base", "big", "auto"] | None = None
    """Values for options of `tokenizer`, `model` and `training` that the config does not set: those of a size of model,
    or `auto`, chosen by the training pairs, the languages, the device and `max_minutes`. The config of the run has the
    values themselves."""
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

    @_if_complete
    def _sections_fit(self) -> Config:
        if self.model.tie_embeddings == "all" and not self.tokenizer.shared:
            raise ValueError("model.tie_embeddings: all needs one vocabulary; set tokenizer.shared to true")
        if self.model.positions == "learned" and self.corpus.max_tokens >= self.model.max_positions:
            raise ValueError(
                f"model.max_positions: {self.model.max_positions} learned positions are too few for "
                f"corpus.max_tokens {self.corpus.max_tokens} and a special token"
            )
        if self.corpus.is_streaming:
            if self.training.validate_every_steps is None:
                raise ValueError("training.validate_every_steps: missing; an epoch of a stream may never end")
            has_end = self.training.max_steps is not None or self.training.max_minutes is not None
            if self.training.schedule in ("linear", "cosine") and not has_end:
                raise ValueError("training.max_steps: missing; the schedule of a stream needs it or max_minutes")
            if self.tokenizer.sample_pairs is None:
                raise ValueError("tokenizer.sample_pairs: missing; a stream needs a number")
        return self

    def to_yaml(self) -> str:
        """The complete config as YAML."""
        return to_yaml(self.model_dump(mode="json"))


def may_change(key: str) -> bool:
    """Whether the option with this dotted key may change when a run resumes."""
    section: Any = Config
    for name in key.split("."):
        field = getattr(section, "model_fields", {}).get(name)
        if field is None or _MAY_CHANGE in field.metadata:
            return field is not None
        section = field.annotation
    return False
