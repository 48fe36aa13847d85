"""Who sees what of a message: all of it, its shape alone, and some fields nobody."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queuecraft.codec.headers import RESERVED, TRACEPARENT, TRACESTATE
from queuecraft.http.excerpt import CUT, Excerpt, types_of
from queuecraft.model.errors import ConfigError
from queuecraft.observers.journal.redaction import Redaction

MASK = "•••"
PREVIEW = 200  # characters
LARGEST = 65_536  # characters of a payload, bytes of a body

_OURS = RESERVED | {TRACEPARENT, TRACESTATE}


@dataclass(frozen=True, slots=True)
class Body:
    """What is shown of the body of a message."""

    payload: Any = None
    payload_error: str | None = None
    body_base64: str | None = None
    truncated: bool = False


class Masks:
    """What is shown of messages. Operators see payloads, all others only their shape; the fields
    of `paths` are seen by nobody, in payloads and in headers, in whatever case they are written.

    >>> masks = Masks(["*.card_number"])
    >>> order = {"id": "o-1", "payment": {"card_number": "4111"}}
    >>> masks.body(order, None, b"", whole=True).payload
    {'id': 'o-1', 'payment': {'card_number': '•••'}}
    >>> masks.preview(order, None, whole=False)
    '{"id": "str", "payment": {"card_number": "str"}}'
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        if isinstance(paths, str) or not all(isinstance(each, str) for each in paths):
            raise ConfigError(f"mask={paths!r}: expected a list such as ['*.card_number']")
        for path in paths:
            if not path.strip() or not path.isprintable():
                raise ConfigError(f"mask={path!r}: expected a path such as '*.card_number'")
        self._redaction = Redaction(paths, MASK, any_case=True) if paths else None

    def __bool__(self) -> bool:
        return self._redaction is not None

    def body(self, payload: Any, unreadable: str | None, body: bytes, *, whole: bool) -> Body:
        """The payload, as far as it may be seen; of one that cannot be read, the bytes."""
        if unreadable is not None:
            # What cannot be read cannot be masked.
            shown = whole and not self
            return Body(
                payload_error=unreadable[:1000],
                body_base64=base64.b64encode(body[:LARGEST]).decode() if shown else None,
                truncated=shown and len(body) > LARGEST,
            )
        excerpt = Excerpt(characters=LARGEST, sealed=self._sealed)
        return Body(self._seen(excerpt.of(payload), whole), truncated=excerpt.cut)

    def preview(self, payload: Any, unreadable: str | None, *, whole: bool) -> str | None:
        """How the payload begins; None for one that cannot be read."""
        if unreadable is not None:
            return None
        excerpt = Excerpt(values=PREVIEW, characters=PREVIEW, sealed=self._sealed)
        seen = self._seen(excerpt.of(payload), whole)
        text = json.dumps(seen, ensure_ascii=False)
        return text if len(text) <= PREVIEW else text[: PREVIEW - 1] + CUT

    def headers(self, headers: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
        """The headers. Those that are an application's own are seen as its payloads are."""
        ours = {name: each for name, each in headers.items() if name.lower() in _OURS}
        own = {name: each for name, each in headers.items() if name not in ours}
        shown: dict[str, Any] = Excerpt(values=1000, characters=LARGEST).of(ours)
        seen = Excerpt(values=1000, characters=LARGEST, sealed=self._sealed).of(own)
        return {**shown, **self._seen(seen, whole)}

    @property
    def _sealed(self) -> str | None:
        return MASK if self else None

    def _seen(self, value: Any, whole: bool) -> Any:
        if not whole:
            return types_of(value)
        return value if self._redaction is None else self._redaction.mask(value)
