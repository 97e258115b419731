"""The section `training`: length, batches, loss, optimizer, validation, checkpoints and hardware."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mt_cli.config.base import Changeable, Section, if_complete


class TrainingConfig(Section):
    """Optimisation. Training stops when `max_steps`, `max_epochs`, `max_minutes` or `patience` is reached first."""

    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of initial weights, order of pairs and dropout; several seeds show how far scores vary by chance."""
    max_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Maximum number of updates."""
    max_epochs: Changeable[int | None] = Field(default=10, ge=1)
    """Maximum number of epochs; the default is `null` if `max_steps` or `max_minutes` is set."""
    max_minutes: Changeable[float | None] = Field(default=None, ge=1e-9, le=1_000_000_000)
    """Time for updates, validations, tuning of the search and scores; tuning and scores of an earlier end do not count.
    After 20 updates, `mt train` says how many fit; warm-up, schedule and validations follow. More are made if the
    machine is faster later. If scores need more than half of it, the run takes longer: use fewer pairs in `valid` and
    `test`."""
    patience: Changeable[int | None] = Field(default=None, ge=1)
    """Stop early: after this number of validations without a better `best_metric`; the warm-up does not count."""
    best_metric: Changeable[Literal["auto", "bleu", "chrf", "loss"]] = "auto"
    """Metric that selects the best checkpoint; `auto`: `bleu` if its tokenizer is `13a`, otherwise `chrf`."""
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = 4096
    """Size of a micro-batch: pairs times longest side. `auto`: up to 32,768 on a GPU, by its memory."""
    micro_batches_per_step: int = Field(default=1, ge=1)
    """Gradient accumulation: micro-batches of [each process](scaling.md) before an update, for little memory."""
    concatenated_pairs: float = Field(default=0.0, ge=0, le=1)
    """Share of pairs joined with another one in each epoch, for long sentences (Nguyen et al. 2021)."""
    inserted_words: float = Field(default=0.0, ge=0, le=1)
    """Share of pairs that get a made-up name or number on both sides in each epoch, to learn copying."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """AdamW, or Muon (Jordan et al. 2024) for the matrices of the layers and AdamW for the rest."""
    learning_rate: float = Field(default=1e-3, ge=1e-30, le=1e30)
    """Peak learning rate; Muon takes the same one, as its updates have the size of AdamW's (Liu et al. 2025)."""
    schedule: Literal["inverse_sqrt", "linear", "cosine", "constant"] = "inverse_sqrt"
    """Decay of the learning rate after the warm-up; `linear` and `cosine` reach zero at the end of the run."""
    warmup_steps: int = Field(default=400, ge=0)
    """Updates in which the learning rate rises to its peak; a decay begins halfway at the latest."""
    weight_decay: float = Field(default=0.0, ge=0, le=1_000_000)
    """Decoupled weight decay of matrices, except embeddings, for large models that fit `train` too closely."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Probability mass spread evenly over the vocabulary, more for few pairs."""
    r_drop: float | None = Field(default=None, ge=0, le=1_000_000)
    """Weight of R-Drop for few pairs (Wu et al. 2021: their alpha); a step takes 2.4 times as long."""
    max_grad_norm: float | None = Field(default=1.0, ge=1e-20, le=1e20)
    """Gradient clipping: maximum norm of the gradient, to which longer ones are scaled down."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Decay rate of a moving average of the weights, which is used, such as 0.999."""
    validate_every_steps: Changeable[int | None] = Field(default=None, ge=1)
    """Updates between validations, which also save; `null`: every epoch, more often with `max_minutes`."""
    save_every_minutes: Changeable[float | None] = Field(default=10, ge=1e-9, le=1_000_000_000)
    """Maximum time between saves, which a killed run loses; `null`: only at validations and at the end."""
    keep_last: Changeable[int] = Field(default=1, ge=0)
    """Earlier states to keep in case the last one is damaged, each three times the size of the model."""
    average_checkpoints: Changeable[int | None] = Field(default=None, ge=2)
    """Keep so many last and best checkpoints, and use their mean at the end if it is better."""
    tune_decoding: Changeable[bool] = False
    """At the end, choose length penalty and `no_repeat_ngram` on validation pairs, as `mt tune-decoding` does."""
    log_every_steps: Changeable[int] = Field(default=10, ge=1)
    """Updates between rows of `metrics.jsonl` and points in TensorBoard; more for long runs."""
    device: Changeable[str] = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """`auto` is CUDA, then MPS, then CPU; `cuda:1` for the second GPU of a machine."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Dtype of activations; `auto`: bf16 if the hardware is fast at it. `fp16` is for GPUs without bf16."""
    compile: Changeable[bool | Literal["auto"]] = "auto"
    """Capture steps on a GPU as CUDA graphs, and compile them with `torch.compile` (`auto`: in runs of four minutes or
    more). Needs bf16, no `attention_dropout` and a compiler (`mt doctor`); otherwise the run says the reason, and steps
    are eager."""
    num_threads: Changeable[int | None] = Field(default=None, ge=1, le=1024)
    """Number of CPU threads, on machines with other programs; `null`: PyTorch's default."""

    @model_validator(mode="before")
    @classmethod
    def _has_one_length(cls, tree: Any) -> Any:
        """Leave out the default of `max_epochs` if another option sets the length of the run."""
        if isinstance(tree, dict) and any(tree.get(name) is not None for name in ("max_steps", "max_minutes")):
            return {"max_epochs": None, **tree}
        return tree

    @property
    def tokens_per_batch(self) -> int:
        assert isinstance(self.batch_tokens, int), "auto is replaced before training"
        return self.batch_tokens

    @property
    def most_concatenated(self) -> int:
        return 2 if self.concatenated_pairs else 1

    @property
    def has_falling_rate(self) -> bool:
        """True if the learning rate falls to zero at the end, so that a longer run has other weights from the start."""
        return self.schedule in ("linear", "cosine")

    @if_complete
    def _ends(self) -> Iterator[str]:
        if self.max_steps is self.max_epochs is self.max_minutes is self.patience is None:
            yield "max_epochs: nothing ends this run; set max_steps, max_epochs, max_minutes or patience"
        elif self.has_falling_rate and self.max_steps is self.max_epochs is self.max_minutes is None:
            yield (f"schedule: {self.schedule} falls to zero at the end; set max_steps, max_epochs or max_minutes")
