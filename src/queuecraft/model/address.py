"""Where the broker is: a URL, or the fields it is made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from queuecraft.model.checks import Check, or_none, text, whole
from queuecraft.model.masking import HOST, SCHEME, masked

DEFAULT = "local://"


@dataclass(frozen=True, slots=True)
class Broker:
    """A type of broker: the schemes its URLs may have, the first of them when built from fields."""

    schemes: tuple[str, ...]
    example: str
    port: int | None = None
    vhosts: bool = False
    nameless: bool = False  # a password may stand without a user name

    @property
    def remote(self) -> bool:
        """Whether it is reached over the network."""
        return self.port is not None


_LOCAL = Broker(("local",), "local://")
_RABBITMQ = Broker(("amqp", "amqps"), "amqp://user:password@localhost:5672/shop", 5672, vhosts=True)
_RABBITMQS = Broker(("amqps",), "amqps://user:password@localhost:5671/shop", 5671, vhosts=True)

TYPES: Mapping[str, Broker] = MappingProxyType(
    {
        "local": _LOCAL,
        "rabbitmq": _RABBITMQ,
        "rabbitmqs": _RABBITMQS,
        "amqp": _RABBITMQ,
        "amqps": _RABBITMQS,
        "redis": Broker(
            ("redis", "rediss"), "redis://localhost:6379/0?mode=list", 6379, nameless=True
        ),
        "rediss": Broker(("rediss",), "rediss://localhost:6379/0?mode=list", 6379, nameless=True),
        "kafka": Broker(("kafka", "kafkas"), "kafka://one:9092,two:9092", 9092),
        "kafkas": Broker(("kafkas",), "kafkas://one:9093,two:9093", 9093),
    }
)
"""What `type` may say; those with an s at the end are encrypted."""

_FILE = re.compile(r"(~?/|\.{1,2}/)?[^:@?#%\\]+\.(?:db|sqlite|sqlite3)")
"""What can only be meant as a path, and may be shown."""

_IPV6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")


# -- the fields ------------------------------------------------------------------------------------


def _is_type(value: object) -> bool:
    return isinstance(value, str) and value.lower() in TYPES


def _are_hosts(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    hosts = [host.strip() for host in value.split(",")]
    return all(_IPV6.fullmatch(host) or _is_host(host) for host in hosts)


def _is_host(host: str) -> bool:
    found = HOST.fullmatch(host)
    return found is not None and (found[2] is None or 0 < int(found[2]) < 2**16)


FIELDS: Mapping[str, Check] = MappingProxyType(
    {
        "type": or_none(Check(_is_type, "one of " + ", ".join(map(repr, TYPES)))),
        "host": or_none(Check(_are_hosts, "a host, or several with commas between", "'localhost'")),
        "port": or_none(whole(1, "a whole number from 1 to 65535", "5672", most=65535)),
        "username": text("a text", "'guest'", secret=True),
        "password": text("a text", "'correct horse'", secret=True),
        "vhost": text("a text", "'/shop'"),
    }
)
"""What an address may be made of when there is no URL, or to complete one."""


def fault(url: object) -> str | None:
    """What is wrong with a URL, said without showing a secret; None if it will do.

    >>> fault("amqp://ada:s3cret@")
    "names no host: 'amqp://ada:***@'; expected a URL such as ..."
    """
    if not isinstance(url, str):
        return f"is {type(url).__name__}; expected a URL such as {DEFAULT!r}"
    scheme, found, _ = url.partition("://")
    if not found or not SCHEME.fullmatch(scheme):
        if (file := _FILE.fullmatch(url)) and url.isprintable():
            start = "" if file[1] else "./"
            return f"has no scheme; for the file {url!r} write 'local://{start}{quote(url)}'"
        # What was given is not shown: it may be a password.
        first, *more = (repr(TYPES[each].example) for each in ("local", "rabbitmq", "kafka"))
        return f"has no scheme; expected a URL such as {first}, {' or '.join(more)}"
    broker = TYPES.get(scheme.lower(), _LOCAL)
    picture = f"{masked(url)!r}"
    example = f"expected a URL such as {broker.example!r}"
    if not url.isprintable() or (broker.remote and " " in url):
        return f"has characters that cannot be printed: {picture}; percent-encode them; {example}"
    _, authority, rest = _parts(url)
    if scheme.lower() == "local" and "@" in authority:
        return f"names a user, and the embedded queue has none: {picture}; {example}"
    if not broker.remote:
        return None
    hosts = authority.rpartition("@")[2]
    if not hosts:
        return f"names no host: {picture}; {example}"
    if "@" in rest or not all(map(_is_host, hosts.split(","))):
        return (
            f"has a host or port that cannot be, or a name or password in which characters such "
            f"as / ? # @ are not percent-encoded: {picture}; {example}"
        )
    return None


def _parts(url: str) -> tuple[str, str, str]:
    """The scheme with its mark, the authority, and the rest: together the URL again."""
    scheme, mark, rest = url.partition("://")
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    return scheme + mark, authority, rest[len(authority) :]


# -- from fields to a URL --------------------------------------------------------------------------


def userinfo(url: str) -> tuple[str | None, str | None]:
    """The user name and the password in a URL, decoded.

    >>> userinfo("amqp://ada:a%2Fb@host")
    ('ada', 'a/b')
    >>> userinfo("redis://:s3cret@host")[0] is None
    True
    """
    name, colon, password = _parts(url)[1].rpartition("@")[0].partition(":")
    return unquote(name) or None, unquote(password) if colon else None


def bare(url: str) -> str:
    """The URL without user name and password.

    >>> bare("amqp://ada:s3cret@host/shop")
    'amqp://host/shop'
    """
    start, authority, rest = _parts(url)
    return start + authority.rpartition("@")[2] + rest


def signed(url: str, username: str | None, password: str | None) -> str:
    """The URL with a user name and a password, percent-encoded.

    >>> signed("amqp://host/shop", "ada", "a/b")
    'amqp://ada:a%2Fb@host/shop'
    """
    if username is None and password is None:
        return url
    start, authority, rest = _parts(bare(url))
    told = quote(username or "", safe="")
    if password is not None:
        told += ":" + quote(password, safe="")
    return f"{start}{told}@{authority}{rest}"


def beside(url: str, folder: str) -> str:
    """The URL of an embedded queue, its file taken from a folder if it says no absolute one.

    >>> beside("local://./queue.db", "/etc/shop"), beside("local://../queue.db", "conf")
    ('local:///etc/shop/./queue.db', 'local://./conf/../queue.db')
    >>> beside("local:///data/queue.db", "/etc/shop"), beside("local://", "/etc/shop")
    ('local:///data/queue.db', 'local://')
    """
    start, authority, rest = _parts(url)
    if start.lower() != "local://" or authority not in (".", "..") or folder == ".":
        return url
    inside = folder if folder.startswith(("/", "./", "../")) else f"./{folder}"
    return f"{start}{quote(inside.rstrip('/'))}/{authority}{rest}"


Label: TypeAlias = Callable[[str], str]
"""How a setting was named where it was given."""


def compose(
    given: Mapping[str, Any], label: Label = str, *, rotating: bool = False
) -> tuple[str, list[str]]:
    """The URL of what was given, each of it valid by itself, and what does not fit together.

    `rotating`: the password comes from elsewhere, at each connect.

    >>> compose({"type": "rabbitmq", "host": "rabbit", "username": "ada", "password": "a@b"})
    ('amqp://ada:a%40b@rabbit', [])
    >>> compose({"host": "rabbit"})[1]
    ["type is missing, and host needs it: expected one of 'local', ... (no default)"]
    """
    fields = {name: given[name] for name in FIELDS if given.get(name) is not None}
    if given.get("url") is not None:
        return _completed(given["url"], fields, label, rotating)
    if not fields:
        return DEFAULT, []
    if "type" not in fields:
        first = next(iter(fields))
        expected = ", ".join(map(repr, TYPES))
        return DEFAULT, [
            f"type is missing, and {label(first)} needs it: expected one of {expected} (no default)"
        ]
    return _built(fields, label, rotating)


def _built(fields: Mapping[str, Any], label: Label, rotating: bool) -> tuple[str, list[str]]:
    type_ = fields["type"].lower()
    broker = TYPES[type_]
    problems: list[str] = []
    for name in fields:
        if (name != "type" and not broker.remote) or (name == "vhost" and not broker.vhosts):
            instead = f"a URL such as {broker.example!r} says all there is"
            problems.append(f"{label(name)} has no meaning for type {type_!r}; {instead}")
    if not broker.remote:
        return broker.example, problems
    if "host" not in fields:
        problems.append(
            f"host is missing, and {label('type')} needs it: expected a text such as 'localhost' "
            "(no default), or the whole address as a URL"
        )
        return DEFAULT, problems
    url = f"{broker.schemes[0]}://{_authority(fields['host'], fields.get('port'))}"
    if "vhost" in fields:
        url += "/" + quote(fields["vhost"], safe="")
    username, password = fields.get("username"), fields.get("password")
    problems += _lacking(broker, username, password, label, rotating)
    return signed(url, username, password), problems


def _completed(
    url: str, fields: Mapping[str, Any], label: Label, rotating: bool
) -> tuple[str, list[str]]:
    """A URL, with the user name and the password that were given beside it."""
    problems: list[str] = []
    scheme = url.partition("://")[0].lower()
    if "type" in fields:
        wanted = TYPES[fields["type"].lower()]
        if scheme not in wanted.schemes:
            problems.append(
                f"{label('type')} is {fields['type']!r}, but {label('url')} begins with "
                f"'{scheme}://'; expected a URL such as {wanted.example!r}"
            )
    problems += [
        f"{label(name)} and {label('url')} both say where to go; keep one"
        for name in ("host", "port", "vhost")
        if name in fields
    ]
    username, password = userinfo(url)
    for name, in_url in (("username", username), ("password", password)):
        if name in fields and in_url is not None and in_url != fields[name]:
            problems.append(f"{label(name)} and the one in {label('url')} differ; keep one")
    if problems or not fields.keys() & {"username", "password"}:
        return url, problems
    broker = TYPES.get(scheme, Broker((scheme,), f"{scheme}://user:password@host", 1))
    if not broker.remote:
        which = " and ".join(label(name) for name in ("username", "password") if name in fields)
        return url, [f"{which}: '{scheme}://' needs none; leave it out"]
    username, password = fields.get("username", username), fields.get("password", password)
    return signed(url, username, password), _lacking(broker, username, password, label, rotating)


def _lacking(
    broker: Broker, username: str | None, password: str | None, label: Label, rotating: bool
) -> list[str]:
    """Half of a user name and a password is a slip, not an anonymous user."""
    if username is None and password is not None and not broker.nameless:
        needs = f"username is missing, and {label('password')} needs it"
    elif username is not None and password is None and not rotating:
        needs = f"password is missing, and {label('username')} needs it"
    else:
        return []
    return [f"{needs}: expected a text (no default), or credentials re-read at each connect"]


def _authority(hosts: str, port: int | None) -> str:
    told: list[str] = []
    for host in map(str.strip, hosts.split(",")):
        bracketed = f"[{host}]" if _IPV6.fullmatch(host) else host
        found = HOST.fullmatch(bracketed)
        alone = port is not None and found is not None and found[2] is None
        told.append(f"{bracketed}:{port}" if alone else bracketed)
    return ",".join(told)
