"""What sections share: checks of complete sections alone, pairs of names, and options that may change on resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

T = TypeVar("T")
WILL_BE_FILLED = {"is_complete": False}
"""The context of validation in which options need not fit together: values of a preset or of another run will replace
defaults."""


def without_problems(check: Callable[[T], Iterable[str]]) -> Any:
    """A validator with a function that yields, a line each, the problems of a section."""
    return model_validator(mode="after")(lambda section: _checked(section, check))


def if_complete(check: Callable[[T], Iterable[str]]) -> Any:
    """Like `without_problems`, for options that do not fit together; if the context is `WILL_BE_FILLED`, no check."""

    def validate(section: T, info: ValidationInfo) -> T:
        return section if info.context == WILL_BE_FILLED else _checked(section, check)

    return model_validator(mode="after")(validate)


def _checked(section: T, check: Callable[[T], Iterable[str]]) -> T:
    if problems := [*check(section)]:
        raise ValueError("\n".join(problems))
    return section


def _numbers_as_text(value: Any) -> Any:
    """Names of which some are numbers, as texts."""
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
