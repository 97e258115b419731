"""What sections share: checks of complete sections alone, and options that may change when a run resumes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import ValidationInfo, model_validator

T = TypeVar("T")
WILL_BE_FILLED = {"is_complete": False}
"""The context of validation in which options need not fit together: values of a preset or of another run will replace
defaults."""


def if_complete(check: Callable[[T], T]) -> Any:
    """A validator that checks whether options fit together, unless the context is `WILL_BE_FILLED`."""

    def validate(section: T, info: ValidationInfo) -> T:
        return section if info.context == WILL_BE_FILLED else check(section)

    return model_validator(mode="after")(validate)


MAY_CHANGE = "may change when a run resumes"
Changeable = Annotated[T, MAY_CHANGE]
"""The type of an option, or of a section of options, that may change when a run resumes."""
