"""Base class of sections, checks of options that must fit together, and options that may change on resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator, model_validator

T = TypeVar("T")
WILL_BE_FILLED = {"is_complete": False}
"""Validation context of a config that is not complete: options need not fit together yet, because values of
another run will replace defaults."""
_TOO_LARGE = 2**31


class Section(BaseModel):
    """A section of a config: immutable, complete, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _fits_a_machine(cls, value: object) -> object:
        if type(value) is int and abs(value) >= _TOO_LARGE:
            raise ValueError(f"it should be less than {_TOO_LARGE:,}")
        return value


def without_problems(check: Callable[[T], Iterable[str]], only_if_complete: bool = False) -> Any:
    """Make a validator from a function that yields the problems of a section, one line per problem."""

    def validate(section: T, info: ValidationInfo) -> T:
        is_skipped = only_if_complete and info.context == WILL_BE_FILLED
        if not is_skipped and (problems := [*check(section)]):
            raise ValueError("\n".join(problems))
        return section

    return model_validator(mode="after")(validate)


if_complete = partial(without_problems, only_if_complete=True)
"""Like `without_problems`, but skip the check if the validation context is `WILL_BE_FILLED`."""


def _numbers_as_text(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(str(name) if type(name) is int else name for name in value)
    return value


TwoTexts = Annotated[tuple[str, str], Field(strict=False)]
TwoColumns = Annotated[
    tuple[str, str],
    Field(strict=False),
    BeforeValidator(_numbers_as_text, json_schema_input_type=tuple[str | int, str | int]),
]
"""Two columns by name or number; numbers become text."""
MAY_CHANGE = "may change when a run resumes"
Changeable = Annotated[T, MAY_CHANGE]
"""The type of an option, or of a section of options, that may change when a run resumes."""
