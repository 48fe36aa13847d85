"""What is done on the server: scripts, each a whole by itself that nobody else gets in between."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from queuecraft.drivers.redis.client import Script

_FOLDER: Final = files(__name__)
_SENDING: Final = ("keys", "routes", "storing")
_ALL: Final = (*_SENDING, "consumers", "entries")


def _script(name: str, *needs: str) -> Script:
    parts = (*(needs or _ALL), name)
    return Script("\n".join((_FOLDER / f"{part}.lua").read_text("utf-8") for part in parts))


SEND: Final = _script("send", "send_usual", *_SENDING)

TAKE: Final = _script("take", "take_usual", *_SENDING, "consumers")
RELEASE: Final = _script("release", "keys")
PUT_BACK: Final = _script("put_back", "keys")
MOVE: Final = _script("move", *_SENDING, "held")

TAKE_ENTRIES: Final = _script("take_entries", *_ALL, "passed_over")
ACK_ENTRIES: Final = _script("ack_entries", "keys", "consumers", "pending")
RELEASE_ENTRIES: Final = _script("release_entries", "keys", "consumers", "pending")
MOVE_ENTRIES: Final = _script("move", *_SENDING, "consumers", "pending")

SEAL: Final = _script("seal", "keys")
DECLARE: Final = _script("declare", "keys")
DELETE: Final = _script("delete", "keys", "consumers")
PURGE: Final = _script("purge")
INSPECT: Final = _script("inspect")
PEEK: Final = _script("peek")

JOIN: Final = _script("join", "keys", "consumers", "entries", "passed_over")
LEAVE: Final = _script("leave", "keys", "consumers")
RENEW: Final = _script("renew", "keys")
REAP: Final = _script("reap", "keys", "consumers")
BURY: Final = _script("bury", "keys", "consumers")
