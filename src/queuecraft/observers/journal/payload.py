"""What of a payload is written down."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple

from queuecraft.codec import Codec
from queuecraft.model.envelope import Outgoing
from queuecraft.model.errors import QueueError
from queuecraft.model.journal import Journal
from queuecraft.observers.journal.redaction import Redaction


class Written(NamedTuple):
    """A payload as its row has it: as text, or in base64 where it is none."""

    text: str | None = None
    base64: str | None = None
    content_encoding: str | None = None


class Payloads:
    """Payloads for rows, as far as the settings allow."""

    def __init__(self, journal: Journal, codec: Codec) -> None:
        self.wanted = journal.payload == "full"
        self._redaction = Redaction(journal.redact) if journal.redact else None
        self._unpack = codec.decoder(bytes)

    def of(self, message: Outgoing) -> Written:
        """The body as it was sent; with fields to redact, unpacked and masked, or left out."""
        if not self.wanted:
            return Written(content_encoding=message.content_encoding)
        if self._redaction is None:
            return _written(message.body, message.content_encoding)
        masked = self._masked(message, self._redaction)
        if masked is None:
            return Written(content_encoding=message.content_encoding)
        return _written(masked, None)

    def _masked(self, message: Outgoing, redaction: Redaction) -> bytes | None:
        kind = message.content_type
        if kind is not None and "json" not in kind.lower():
            return None
        try:
            body = self._unpack(message.body, kind, message.content_encoding)
        except QueueError:  # an encoding we do not know, or more than a message may have
            return None
        return redaction.apply(body)


def _written(body: bytes, encoding: str | None) -> Written:
    try:
        return Written(str(body, "utf-8"), None, encoding)
    except UnicodeDecodeError:
        return Written(None, b64encode(body).decode("ascii"), encoding)
