"""Names in paths: whatever a queue or a message is called, its page can be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor

if TYPE_CHECKING:
    from starlette.types import Scope

_SLASH = "\udc2f"  # for %2F: no server decodes a path to this


class NameConvertor(Convertor[str]):
    """One part of a path, in which a slash is written as %2F."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """As it was meant."""
        return value.replace(_SLASH, "/")

    def to_string(self, value: str) -> str:
        """As it is matched."""
        return value.replace("/", _SLASH)


class RestConvertor(NameConvertor):
    """All that is left of a path, with its slashes written either way."""

    regex = ".*"


def whole_names(scope: Scope) -> None:
    """Keep what is written %2F in one part of the path; servers make a plain slash of it, and the
    queue `a/b` could not be told from the page `b` of the queue `a`.

    >>> scope = {"path": "/api/queues/a/b", "raw_path": b"/api/queues/a%2Fb"}
    >>> whole_names(scope)
    >>> NameConvertor().convert(scope["path"].split("/")[3])
    'a/b'
    """
    raw: bytes = scope.get("raw_path") or b""
    if b"%2F" not in raw.upper():
        return
    text = raw.decode("latin-1")
    if unquote(text) == scope["path"]:  # or else somebody before us has changed it
        parts = (part.replace("/", _SLASH) for part in map(unquote, text.split("/")))
        scope["path"] = "/".join(parts)


register_url_convertor("name", NameConvertor())
register_url_convertor("rest", RestConvertor())
