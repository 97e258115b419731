"""Sections of a config: every option with its default and limits."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from mt_cli.config.base import MAY_CHANGE, Changeable, Section, if_complete, without_problems
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.config.writing import to_yaml

ALL_APOSTROPHES = "'’ʼ‘ʻ`´′ʹꞌ＇"
"""The apostrophe, and characters that are written in its place inside words."""
TUNED = ("length_penalty", "no_repeat_ngram")
"""Options of `decoding` that `training.tune_decoding` chooses."""
WITHOUT_SUBWORDS = ("word_level", "char")
"""Values of `tokenizer.algorithm` whose entries are whole words or characters."""
_MAX_LETTER = 4
RUN_NAME = re.compile(r"[\w][\w.-]{0,99}")
RUN_NAME_RULE = "letters, digits, dots, hyphens and underscores, at most 100, the first one no dot or hyphen"


def is_replacement(old: str, new: str) -> bool:
    """Whether `tokenizer.letters` may replace `old` by `new`: a letter or an apostrophe, by another one or nothing."""
    return old != new and _is_letter(old) and (not new or _is_letter(new))


def _is_letter(text: str) -> bool:
    """Whether a text is one composed letter, with its marks, or one apostrophe."""
    first, marks = text[:1], text[1:_MAX_LETTER]
    is_first = bool(first) and (unicodedata.category(first)[0] == "L" or first in ALL_APOSTROPHES)
    has_marks = len(text) <= _MAX_LETTER and all(unicodedata.category(mark) == "Mn" for mark in marks)
    return is_first and has_marks and unicodedata.is_normalized("NFC", text)


class TokenizerConfig(Section):
    """Tokenisation: how text is split into tokens."""

    algorithm: Literal["word_level", "bpe", "unigram", "char", "sentencepiece"] = "word_level"
    """Words and punctuation marks, byte-pair encoding, a unigram language model, or characters. Training
    `unigram` twice on the same text gives slightly different vocabularies, whatever the seed; a run keeps the one that
    it has. `sentencepiece`: models of an imported run, which `mt` does not train."""
    vocab_size: int | None = Field(default=None, ge=8, le=2**24)
    """Maximum size of a vocabulary; `null`: no limit for words and characters, 8,000 for bpe and unigram."""
    min_frequency: int = Field(default=1, ge=1)
    """Minimum frequency of a word (with bpe: of a merge) in the vocabulary."""
    byte_fallback: bool = True
    """With bpe and unigram: encode characters that are not in the vocabulary as UTF-8 bytes, so that no token is
    unknown. 256 entries of the vocabulary are bytes."""
    spacing: Literal["lossless", "sentencepiece"] = "lossless"
    """With bpe and unigram: how spaces are read. `lossless` keeps every space and `▁` of a text. `sentencepiece` puts
    one space between words and one before each text, as SentencePiece does, so that `mt export` can write the
    vocabulary as a SentencePiece model, for Argos Translate and other programs."""
    shared: bool = False
    """Use one vocabulary for both languages instead of one each."""
    lowercase: bool = False
    """Convert text to lower case. Translations are then in lower case."""
    nfkc: bool = False
    """Apply Unicode NFKC normalisation (full-width letters, ligatures, ...)."""
    normalize: tuple[Literal["nfc", "apostrophes", "joined_apostrophes"], ...] = Field(default=(), strict=False)
    """Make spellings equal in training and in translating, not in references. `nfc` composes letters and accents,
    `apostrophes` writes `'` for similar characters between letters, `joined_apostrophes` removes spaces around an
    apostrophe inside a word (`jach 'a`, `ch ' ama`). `mt data check` counts what each would change."""
    letters: dict[str, str] = Field(default_factory=dict)
    """Replace letters in training and in translating, not in references, where `train` is spelled unlike other text:
    `{ã: â}` (in lower and upper case, after `nfc`). An apostrophe may be left out: `{"'": ""}`. `mt data check` names
    such letters."""
    bpe_dropout: float = Field(default=0.0, ge=0, lt=1)
    """With bpe, in training: probability of skipping a merge (BPE-dropout, Provilkov et al. 2020; 0.1 is usual), so
    that words are segmented differently in each epoch."""
    sample_pairs: int | None = Field(default=1_000_000, ge=1)
    """Number of random pairs that the tokenizers are trained on; `null`: all pairs. For a stream: its first pairs."""

    @property
    def is_single(self) -> bool:
        """Whether both sides have one tokenizer. Two SentencePiece models may share a vocabulary and differ."""
        return self.shared and self.algorithm != "sentencepiece"

    @property
    def is_sampled(self) -> bool:
        """Whether training samples segmentations."""
        return self.bpe_dropout > 0

    @property
    def changes_of_spelling(self) -> tuple[str, ...]:
        """Names of the normalisations of texts, for signatures of scores."""
        nfc = ["nfc"] if self.letters and "nfc" not in self.normalize else []
        return (*nfc, *self.normalize, *(f"{old}>{new}" for old, new in self.letters.items()))

    @property
    def letters_in_both_cases(self) -> list[tuple[str, str]]:
        """Replacements of `letters` in lower and upper case, longer letters first."""
        swapped = [(old.swapcase(), new.swapcase()) for old, new in self.letters.items() if old.swapcase() != old]
        pairs = [pair for pair in (*self.letters.items(), *swapped) if is_replacement(*pair)]
        return sorted(dict.fromkeys(pairs), key=lambda pair: -len(pair[0]))

    @if_complete
    def _replaces_letters(self) -> Iterator[str]:
        for old, new in self.letters.items():
            if not is_replacement(old, new):
                yield (
                    f"letters: {old!r}: {new!r}: give two different letters (with their marks, composed) or "
                    "apostrophes, or one and nothing"
                )
        pairs = self.letters_in_both_cases
        olds = [old for old, _ in pairs]
        for old in olds:
            if olds.count(old) > 1 or any(old in new for _, new in pairs):
                yield f"letters: {old!r} is replaced twice, perhaps in its other case"

    @if_complete
    def _spaces_as_sentencepiece(self) -> Iterator[str]:
        if self.spacing == "lossless":
            return
        if self.algorithm not in ("bpe", "unigram"):
            yield f"spacing: sentencepiece: not with algorithm {self.algorithm}; set algorithm to bpe or unigram"
        for name, has_problem, value in (
            ("byte_fallback", not self.byte_fallback, "true"),
            ("lowercase", self.lowercase, "false"),
            ("nfkc", self.nfkc, "false"),
            ("normalize", bool(self.normalize), "[]"),
            ("letters", bool(self.letters), "{}"),
        ):
            if has_problem:
                yield f"{name}: not with spacing: sentencepiece; set it to {value}, or spacing to lossless"

    @if_complete
    def _samples_what_it_has(self) -> Iterator[str]:
        if self.bpe_dropout and self.algorithm != "bpe":
            yield f"bpe_dropout: {self.algorithm} has no merges to skip; set algorithm to bpe"


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
    """Layer norm at the end of the encoder and of the decoder; `null`: true with `norm_order: pre`, which needs it,
    and false with `post`. With `post`, true is PyTorch's `nn.Transformer`."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """Activation function of the feed-forward blocks. Marian calls `silu` swish; `swiglu` is its gated form."""
    positions: Literal["sinusoidal", "rotary", "fairseq"] = "sinusoidal"
    """Positional encoding: a table added to the embeddings, or rotation of queries and keys of self-attention.
    `fairseq`: the sinusoidal table of M2M100 and NLLB."""
    decoder_start: Literal["sos", "eos"] = "sos"
    """Token whose embedding the decoder begins with: [SOS], or [EOS] as in M2M100 and NLLB."""
    tie_embeddings: Literal["none", "target", "all"] = "target"
    """Tables that share weights: none, target embedding and output projection, or the source embedding as well."""
    qkv_bias: bool = True
    """Use biases in the query, key and value projections."""
    output_bias: bool = False
    """Use a bias in the output projection, as Marian does."""
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    """Dropout rate of embeddings and of each sub-layer's output. A CPU rounds rates to 1/256 (below 1/32: 1/65536)."""
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate of attention weights."""
    feed_forward_dropout: float = Field(default=0.0, ge=0, le=0.99)
    """Dropout rate inside the feed-forward blocks, after the activation."""

    @if_complete
    def _sizes_fit(self) -> Iterator[str]:
        if self.d_model % self.num_heads:
            yield f"num_heads: {self.num_heads} heads do not divide d_model {self.d_model}"
        elif self.positions == "rotary" and self.d_head % 2:
            yield f"positions: rotary turns pairs, but a head has {self.d_head} elements; change num_heads"
        if self.d_model % 2:
            yield f"d_model: {self.d_model} is odd; sines and cosines come in pairs"
        if self.norm_order == "pre" and self.final_norm is False:
            yield "final_norm: false does not work with pre-norm layers; remove it or set norm_order: post"

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.num_heads

    @property
    def ends_in_norm(self) -> bool:
        """Whether the encoder and the decoder end in a layer norm."""
        return self.norm_order == "pre" if self.final_norm is None else self.final_norm


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
    """Length in tokens of sequences that may not occur twice in a translation; 3 prevents loops of weak models."""
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
    """Unknown words in a translation: copy the source word that attention points at, keep `[UNK]`, or never generate
    it."""
    capitals: Literal["keep", "lower"] = "keep"
    """`lower`: lines in capitals, of three words or more, are translated in small letters, and their translations are
    written in capitals. `keep`: the model reads capitals."""
    batch_tokens: int = Field(default=16_384, ge=1)
    """Number of source tokens translated at once, padding and beams included. On a GPU: as many as fit in a quarter of
    its free memory, up to 262,144, and at least this number if it fits."""

    @property
    def greedy(self) -> DecodingConfig:
        """Copy for greedy search."""
        return self.model_copy(update={"beam_size": 1, "sample": False})

    @without_problems
    def _options_fit(self) -> Iterator[str]:
        fields = DecodingConfig.model_fields
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(self, name) != fields[name].default and not self.sample:
                yield f"{name}: used only by sampling; set sample to true (--sample)"
        if self.max_length is not None and self.max_length < self.min_length:
            yield f"max_length: {self.max_length} is less than min_length {self.min_length}"


class InitConfig(Section):
    """Start of training: random weights, or the weights of another run (fine-tuning)."""

    run: str | None = None
    """Directory of a trained run. Training begins with the weights of its best checkpoint and keeps its tokenizers;
    optimizer, schedule and data are new. Options of `tokenizer` and `model` come from that run, and may differ only in
    dropout and sampling."""
    vocabulary: Literal["keep", "extend"] = "keep"
    """Keep the vocabularies, or extend them by entries for tags, words, characters and subwords that they lack. The
    embedding of a new entry begins as the mean of the embeddings of the tokens that spelled it before."""
    freeze: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Parts of the model that are not trained: `embeddings`, `encoder`, `decoder`, or modules by their names in the
    model, such as `decoder.0` or `encoder.1.self_attention` (Houlsby et al. 2019, section 3.5, measure the loss)."""
    adapter_rank: int | None = Field(default=None, ge=1)
    """Train only low-rank adapters of this rank, added to the linear maps of attention and feed-forward blocks (with
    `vocabulary: extend`, the embeddings too). Checkpoints hold only what is trained (Hu et al. 2022, section 4)."""
    adapter_alpha: float = Field(default=16.0, ge=1e-6, le=1_000_000)
    """The output of an adapter is multiplied by `adapter_alpha / adapter_rank` (Hu et al. 2022, section 4.1)."""

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
    """BLEU's tokenizer, by sacreBLEU's names. `auto`: `zh` for Chinese, `char` for Japanese, Korean, Thai, Lao, Khmer,
    Burmese and Tibetan, `13a` for all others. `ja-mecab`, `ko-mecab` and FLORES need more packages."""
    num_resamples: int = Field(default=1000, ge=1, le=100_000)
    """Number of random samples of a test set for the confidence intervals of its scores and the p-values of `mt
    evaluate --against` (bootstrap resampling, Koehn 2004). A finished run keeps its intervals."""


class Config(Section):
    """The config of a run."""

    name: str
    """Name of the run's directory in `runs`."""
    corpus: CorpusConfig
    """The parallel text."""
    preset: Literal["tiny", "small", "base", "big"] | None = None
    """Size of model: values for options of `tokenizer`, `model` and `training` that the config does not set. The config
    of the run has the values themselves. `mt init` chooses values for your text."""
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
            if self.training.schedule in ("linear", "cosine") and not has_end:
                yield "training.max_steps: missing; the schedule of a stream needs it or max_minutes"
            if self.tokenizer.sample_pairs is None:
                yield "tokenizer.sample_pairs: missing; a stream needs a number"

    def _augmentation_fits(self) -> Iterator[str]:
        algorithm = self.tokenizer.algorithm
        if self.init.run is not None and "algorithm" not in self.tokenizer.model_fields_set:
            return  # The parent decides the algorithm.
        if self.training.inserted_words and algorithm in WITHOUT_SUBWORDS:
            yield f"training.inserted_words: {algorithm} has no subwords for made-up words; use bpe or unigram"
        if self.training.concatenated_pairs and algorithm == "char":
            yield "training.concatenated_pairs: not with tokenizer.algorithm char, as no space would stand between them"

    @property
    def changes_texts(self) -> bool:
        """Whether texts of training pairs are changed in each epoch."""
        return self.training.inserted_words > 0 or not self.corpus.augment.is_off

    @property
    def greedy_decoding(self) -> DecodingConfig:
        """Search of validations, which does not depend on what `training.tune_decoding` chooses later."""
        greedy = self.decoding.greedy
        return greedy.model_copy(update={"no_repeat_ngram": None}) if self.training.tune_decoding else greedy

    def to_yaml(self) -> str:
        """Complete config as YAML."""
        return to_yaml(self.model_dump(mode="json"))


def may_change(key: str) -> bool:
    """Whether the option with this dotted key may change when a run resumes."""
    section: Any = Config
    for name in key.split("."):
        field = getattr(section, "model_fields", {}).get(name)
        if field is None or MAY_CHANGE in field.metadata:
            return field is not None
        section = field.annotation
    return False
