"""What somebody has said about a queue: that nobody is to consume it for now, or again."""

from __future__ import annotations

import msgspec


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue is paused since `at` (seconds since 1970), or, with `paused=False`, resumed.

    >>> Pause(queue="billing", reason="the bank is down", by="ada", at=1.0).text
    'paused by ada: the bank is down'
    """

    queue: str
    at: float
    paused: bool = True
    reason: str = ""
    by: str = ""

    @property
    def text(self) -> str:
        """Why a worker takes no messages."""
        who = f"paused by {self.by}" if self.by else "paused"
        return f"{who}: {self.reason}" if self.reason else who

    def written(self) -> bytes:
        """The message that says it."""
        return _encoder.encode(self)

    @classmethod
    def read(cls, body: bytes) -> Pause | None:
        """What a message says; None for one that cannot be read, as from another version."""
        try:
            return _decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # text that is none, too
            return None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Pause)
