"""How a URL is shown: without its secrets."""

from __future__ import annotations

import re

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\[\]:@/?#\s,]+)(?::([0-9]{1,5}))?")
"""One host of an authority and its port."""

_HIDDEN = "***"
_SECRET = re.compile(r"pass|pwd|secret|token|key|cred|auth|sig|sasl|%", re.IGNORECASE)


def masked(url: str) -> str:
    """A URL for logs, errors and screens. Where it is not clear what is secret, more is hidden
    than has to be, never less.

    >>> masked("amqp://ada:s3cret@one,two:5673/shop?heartbeat=5&password=s3cret")
    'amqp://ada:***@one,two:5673/shop?heartbeat=5&password=***'
    >>> masked("amqp://ada:s3/cret")  # no host: this is the password
    'amqp://ada:***'
    >>> masked("s3cret")
    '***'
    """
    scheme, found, rest = url.partition("://")
    if not found or not SCHEME.fullmatch(scheme):
        return _HIDDEN
    # The last one: a password that was not percent-encoded may hold an "@", a "/" or a "?".
    userinfo, at, rest = rest.rpartition("@")
    hosts, path, query = _divided(rest)
    if at:
        name, colon, _ = userinfo.partition(":")
        at = f"{name}:{_HIDDEN}@" if colon else f"{_HIDDEN}@"
    for place, host in enumerate(hosts.split(",")):
        if host and not HOST.fullmatch(host):
            known = ",".join([*hosts.split(",")[:place], host.partition(":")[0]])
            return _printable(f"{scheme}://{at}{known}:{_HIDDEN}")
    return _printable(f"{scheme}://{at}{hosts}{path}{query}")


def _divided(rest: str) -> tuple[str, str, str]:
    """Hosts, path and query; what is secret in the query is hidden, and a fragment is left out."""
    rest, _, _ = rest.partition("#")
    rest, mark, query = rest.partition("?")
    hosts, slash, path = rest.partition("/")
    pairs = [_pair(each) for each in re.split("[&;]", query)]
    return hosts, slash + path, mark + "&".join(pairs) if query else ""


def _pair(pair: str) -> str:
    name, equals, _ = pair.partition("=")
    if not equals:
        return _HIDDEN if name else ""
    return f"{name}={_HIDDEN}" if _SECRET.search(name) else pair


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
