"""The type variables and aliases that the values share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    # The default makes `Message`, `Event` and `Queue` without brackets mean "of anything".
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")
    R = TypeVar("R")

HeaderValue: TypeAlias = str | int | float | bool | bytes | None
Headers: TypeAlias = Mapping[str, HeaderValue]
