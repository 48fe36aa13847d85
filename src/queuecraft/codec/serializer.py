"""How a payload becomes bytes and back: what a format has to provide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

Encode: TypeAlias = Callable[[Any], bytes]
"""Turns one payload into its body."""

Decode: TypeAlias = Callable[[bytes], Any]
"""Turns one body into its payload."""

Check: TypeAlias = Callable[[Any, bytes], None]
"""Looks at a payload and its body, and raises `PayloadError` if they must not be sent."""


class Serializer(ABC):
    """A payload format. Add your own to `Serializers` and name it in the settings.

    `encoder` and `decoder` are called once per payload type, what they return once per message:
    do the work in the former, return something as close to the bare call as you can. A type the
    format cannot hold is a `ConfigError` there and then. Errors of the returned callables may be
    of any kind; the codec turns them into `PayloadError`.

    >>> class Text(Serializer):
    ...     name = "text"
    ...     content_type = "text/plain"
    ...
    ...     def encoder(self, payload_type):
    ...         return str.encode
    ...
    ...     def decoder(self, payload_type):
    ...         return bytes.decode
    >>> Text().decoder(str)(b"hello")
    'hello'
    """

    name: str
    """What the setting `serializer` calls it."""

    content_type: str
    """What messages carry, so that any receiver knows how to read them."""

    accepts: tuple[str, ...] = ()
    """Other content types it can read."""

    @abstractmethod
    def encoder(self, payload_type: Any) -> Encode:
        """The function that writes payloads of this type; `Any` or None: of any type."""

    @abstractmethod
    def decoder(self, payload_type: Any) -> Decode:
        """The function that reads bodies and validates them as this type."""

    def guard(self, payload_type: Any) -> Check | None:
        """A check after encoding, for formats that can lose a value without a word."""
        return None
