"""Why a payload was refused, in one short line that does not repeat the payload."""

from __future__ import annotations

from typing import Any, cast

from queuecraft.model.errors import PayloadError

LIMIT = 500
"""No message is longer: it goes into logs, headers and dashboards."""


def reason(error: BaseException) -> str:
    """What an exception says, on one line; pydantic's without the values it would quote.

    >>> reason(ValueError("first\\nsecond"))
    'first second'
    >>> reason(RecursionError())
    'RecursionError'
    """
    text = _pydantic_reason(error) or str(error)
    return shorten(" ".join(text[: 4 * LIMIT].split())) or type(error).__name__


def refused(what: str, error: BaseException) -> PayloadError:
    """The error to raise when `what` failed because of `error`.

    >>> str(refused("cannot read the payload as Order", ValueError("bad id")))
    'cannot read the payload as Order: bad id'
    """
    return PayloadError(shorten(f"{shorten(what, LIMIT // 2)}: {reason(error)}"))


def shorten(text: str, limit: int = LIMIT) -> str:
    """At most `limit` characters of a text.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _pydantic_reason(error: BaseException) -> str | None:
    errors = getattr(error, "errors", None)
    if not type(error).__module__.startswith("pydantic") or not callable(errors):
        return None
    found = cast(
        "list[dict[str, Any]]",
        errors(include_url=False, include_input=False, include_context=False),
    )
    told = [f"{one['msg']} - at `{'.'.join(map(str, one['loc'])) or '$'}`" for one in found[:3]]
    if len(found) > len(told):
        told.append(f"and {len(found) - len(told)} more")
    return "; ".join(told)
