"""The section `training`: length, batches, loss, optimizer, validation, checkpoints and hardware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from mt_cli.config.base import Changeable, Section, if_complete


def _checked_switch(value: object) -> object:
    if value != "auto" and type(value) is not bool:
        raise ValueError(f"found {value!r}; it should be true, false or auto")
    return value


class TrainingConfig(Section):
    """Optimisation. Training stops when `max_steps`, `max_epochs`, `max_minutes` or `patience` is reached first."""

    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of initial weights, order of pairs, dropout and held-out share."""
    max_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Maximum number of optimizer updates."""
    max_epochs: Changeable[int | None] = Field(default=10, ge=1)
    """Maximum number of passes over the training pairs. The default is `null` if `max_steps` or `max_minutes` is
    set."""
    max_minutes: Changeable[float | None] = Field(default=None, ge=1e-9, le=1_000_000_000)
    """Maximum training time, validations included; averaging, tuning and the final test come after it. `linear` and
    `cosine` schedules then follow the clock, so the exact result depends on the speed of the machine."""
    patience: Changeable[int | None] = Field(default=None, ge=1)
    """Stop after this number of validations in a row without a better `best_metric`. Validations during the warm-up
    do not count. A note says so if the run is too short for that."""
    best_metric: Changeable[Literal["auto", "bleu", "chrf", "loss"]] = "auto"
    """Metric on the validation pairs that selects the best checkpoint; ties go to the lower loss. `auto`: `bleu` if
    its tokenizer for the target language is `13a`, otherwise `chrf`."""
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = 4096
    """Size of a micro-batch: number of pairs times longest side, padding included. `auto`: the largest size from
    4,096 to 32,768 that fits in two thirds of the memory of a GPU, at most a hundredth of an epoch; 4,096 on other
    devices. The config of the run records the size."""
    micro_batches_per_step: int = Field(default=1, ge=1)
    """Number of micro-batches whose gradients each process accumulates before an update (`docs/scaling.md`)."""
    concatenated_pairs: float = Field(default=0.0, ge=0, le=1)
    """Share of the pairs of an epoch that are concatenated with another pair of the same corpus, anew in each epoch,
    unless a side becomes longer than `corpus.max_tokens`. It helps with sentences longer than those of training
    (Nguyen et al. 2021, "Data Augmentation by Concatenation for Low-Resource Translation"). Reports count two
    concatenated pairs as one."""
    inserted_words: float = Field(default=0.0, ge=0, le=1)
    """Share of the pairs of an epoch that get a made-up name or number on both sides, at about the same place, anew
    in each epoch. The model learns to copy unknown words. Needs subwords (bpe, unigram)."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon (Jordan et al. 2024) for the matrices of the layers and AdamW for everything else."""
    learning_rate: float = Field(default=1e-3, ge=1e-30, le=1e30)
    """Peak learning rate, of Muon too, whose updates are scaled to the size of AdamW's (Liu et al. 2025)."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """Decay of the learning rate after the warm-up. `linear` and `cosine` reach zero at the first of `max_steps`,
    `max_epochs` and `max_minutes`."""
    warmup_steps: int = Field(default=400, ge=0)
    """Number of updates during which the learning rate rises from zero to its peak. If the warm-up takes
    more than half of the run, `linear` and `cosine` begin to decay halfway, and the lower of the two rates counts."""
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
    """Weight of R-Drop (Wu et al. 2021: their alpha), which computes each batch twice with different dropout and
    draws the two distributions together. A step takes 2.4 times as long. `null`: off."""
    max_grad_norm: float | None = Field(default=1.0, ge=1e-20, le=1e20)
    """Maximum norm of the gradient; longer gradients are scaled down to it."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Decay rate of an exponential moving average of the weights, such as 0.999, over about 1 / (1 - `ema_decay`)
    updates. The average is validated, saved as the best and used to translate. `null`: no average."""
    validate_every_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Number of updates between validations, which also save; `null`: at the end of every epoch."""
    save_every_minutes: Changeable[float | None] = Field(default=10, ge=1e-9, le=1_000_000_000)
    """Maximum time between saves; `null`: save only at validations and at the end."""
    keep_last: Changeable[int] = Field(default=1, ge=0)
    """Number of earlier states to keep in case the last one is damaged. Each has three times the size of the
    model."""
    average_checkpoints: Changeable[int | None] = Field(default=None, ge=2)
    """Keep the weights of this number of the last and of the best validated checkpoints, each of the size of the model,
    also for `mt average`. At the end, compute the means of both. The better mean becomes the best checkpoint if it
    scores higher than every step. `null`: off."""
    tune_decoding: Changeable[bool] = False
    """At the end, choose the length penalty (1, 1.5, 2, 3, 4) and `no_repeat_ngram` (off, 3) with the best
    `best_metric` on validation pairs, and write them into the config of the run. Translations may be at most a
    quarter longer than references. Takes at most a quarter of the training time, or two minutes. For models of few
    pairs, whose translations are too short or repeat themselves; not for greedy search and sampling. For a finished
    run, use `mt tune-decoding`."""
    max_bad_steps: Changeable[int] = Field(default=10, ge=1)
    """After this number of steps in a row whose loss or gradient is not finite (they are skipped), training returns
    to the last good state with half the learning rate, at most twice."""
    log_every_steps: Changeable[int] = Field(default=10, ge=1)
    """Number of updates between rows of `metrics.jsonl` and points in TensorBoard."""
    num_samples: Changeable[int] = Field(default=5, ge=0)
    """Number of sentences whose translations each validation writes to `samples.txt` and TensorBoard. The first two
    are printed, too."""
    device: Changeable[str] = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """`auto` (CUDA, then MPS, then CPU), `cpu`, `cuda`, `cuda:1`, `mps`."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Number format of activations; weights are always fp32. `auto`: bf16 if the hardware is fast at it. `fp16`, for
    GPUs without bf16, scales the loss (Micikevicius et al. 2018, section 3.2) and skips steps whose gradient
    overflows; it is slow on CPUs."""
    compile: Changeable[Annotated[bool | Literal["auto"], BeforeValidator(_checked_switch)]] = "auto"
    """Capture steps on a GPU as CUDA graphs, which launch all kernels at once, and compile them with `torch.compile`.
    Small models train several times as fast; results are the same up to rounding and the draws of dropout. `auto`:
    compile the loss, and also the layers if the whole run takes four minutes or more, because that takes half a minute
    and saves about a sixth of each step. `true`: always compile both. `false`: eager steps. Needs bf16, no
    `attention_dropout` and a compiler (`mt doctor`); otherwise the run says the reason, and steps are eager."""
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

    @property
    def most_concatenated(self) -> int:
        """Maximum number of pairs that become one."""
        return 2 if self.concatenated_pairs else 1

    @if_complete
    def _ends(self) -> Iterator[str]:
        if self.max_steps is self.max_epochs is self.max_minutes is self.patience is None:
            yield "max_epochs: nothing ends this run; set max_steps, max_epochs, max_minutes or patience"
        elif self.schedule in ("linear", "cosine") and self.max_steps is self.max_epochs is self.max_minutes is None:
            yield (f"schedule: {self.schedule} falls to zero at the end; set max_steps, max_epochs or max_minutes")
