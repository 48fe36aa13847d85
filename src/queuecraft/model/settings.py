"""The settings of a QueueCraft, checked before anything is connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, InitVar, dataclass, field, fields
from os import PathLike
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypedDict
from urllib.parse import parse_qs

from queuecraft.model import address
from queuecraft.model.checks import (
    FLAG,
    FROM_ONE,
    FROM_ZERO,
    NAME,
    SECONDS,
    Check,
    instance,
    nearest,
    number,
    one_of,
    or_none,
    refusal,
    shown,
    truth,
    whole,
)
from queuecraft.model.credentials import Source
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.journal import PAYLOAD, REDACT, Journal, Payload, is_folder
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Policy, Retry
from queuecraft.model.queue import EXCHANGE_TYPES, Exchange, ExchangeType

RedisMode: TypeAlias = Literal["list", "pubsub", "stream"]
RedisDelivery: TypeAlias = Literal["at-least-once", "at-most-once"]


class SettingsOptions(TypedDict, total=False):
    """The settings, as keywords of `QueueCraft`."""

    type: str | None
    host: str | None
    port: int | None
    username: str | None
    password: str | None
    vhost: str | None
    credentials: Source | None
    exchange: str
    exchange_type: ExchangeType
    retry: Retry | NoRetry
    dead_letter: DeadLetter | NoDeadLetter
    ttl: float | None
    ack_timeout: float | None
    max_redeliveries: int
    concurrency: int
    prefetch: int | None
    batch_size: int
    compression: bool | str | None
    compression_threshold: int
    serializer: str
    publish_timeout: float
    on_outage: Literal["wait", "fail"]
    max_pending: int
    unroutable: Literal["error", "drop"]
    shutdown_timeout: float
    timeout: float
    heartbeat: float
    presence: float
    auto_reconnect: bool
    reconnect_delay: float
    reconnect_attempts: int | None
    redis_mode: RedisMode | None
    redis_delivery: RedisDelivery
    max_message_bytes: int
    delayed: DelayedSettings
    journal: str | PathLike[str] | Journal | None
    journal_payload: Payload
    journal_redact: Sequence[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, with its default. The address is a URL, or the fields it is
    made of.

    >>> Settings(concurrency=8).prefetch is None  # as many as run at once
    True
    >>> Settings(type="rabbitmq", host="rabbit", username="ada", password="a/b", vhost="/").url
    'amqp://ada:a%2Fb@rabbit/%2F'
    >>> Settings(publish_timeout=0)
    Traceback (most recent call last):
    queuecraft.ConfigError: publish_timeout=0: expected seconds above 0, ...
    """

    url: str = field(default=address.DEFAULT, repr=False)
    type: InitVar[str | None] = None
    host: InitVar[str | None] = None
    port: InitVar[int | None] = None
    username: InitVar[str | None] = None
    password: InitVar[str | None] = None
    vhost: InitVar[str | None] = None
    credentials: Source | None = field(default=None, repr=False)
    exchange: str = "events"
    exchange_type: ExchangeType = "topic"
    retry: Retry | NoRetry = field(default_factory=Retry)
    dead_letter: DeadLetter | NoDeadLetter = field(default_factory=DeadLetter)
    ttl: float | None = None
    ack_timeout: float | None = None
    max_redeliveries: int = 20
    concurrency: int = 1
    prefetch: int | None = None
    batch_size: int = 1
    compression: bool | str | None = None
    compression_threshold: int = 1024
    serializer: str = "json"
    publish_timeout: float = 30.0
    on_outage: Literal["wait", "fail"] = "wait"
    max_pending: int = 10_000
    unroutable: Literal["error", "drop"] = "error"
    shutdown_timeout: float = 30.0
    timeout: float = 10.0
    heartbeat: float = 30.0
    presence: float = 5.0
    auto_reconnect: bool = True
    reconnect_delay: float = 1.0
    reconnect_attempts: int | None = None
    redis_mode: RedisMode | None = None
    redis_delivery: RedisDelivery = "at-least-once"
    max_message_bytes: int = 16 * 1024 * 1024
    delayed: DelayedSettings = field(default_factory=DelayedSettings)
    journal: str | PathLike[str] | Journal | None = None
    journal_payload: Payload = "headers"
    journal_redact: Sequence[str] | None = None

    def __post_init__(
        self,
        type: str | None,
        host: str | None,
        port: int | None,
        username: str | None,
        password: str | None,
        vhost: str | None,
    ) -> None:
        parts = (type, host, port, username, password, vhost)
        given: dict[str, Any] = dict(zip(address.FIELDS, parts, strict=True))
        given |= {each.name: getattr(self, each.name) for each in fields(self)}
        if self.url == address.DEFAULT and any(part is not None for part in parts):
            del given["url"]  # not said, but left at its default
        if problems := wrong(given):
            raise refusal(problems)
        object.__setattr__(self, "url", address.compose(given)[0])

    @property
    def policy(self) -> Policy:
        """What deliveries get where nothing closer says otherwise."""
        return Policy(
            retry=self.retry,
            dead_letter=self.dead_letter,
            ttl=self.ttl,
            ack_timeout=self.ack_timeout,
            max_redeliveries=self.max_redeliveries,
        )

    @property
    def journal_settings(self) -> Journal | None:
        """How the journal is kept, if it is.

        >>> Settings(journal="./lake", journal_payload="full").journal_settings.payload
        'full'
        """
        if self.journal is None or isinstance(self.journal, Journal):
            return self.journal
        redact = tuple(self.journal_redact or ())
        return Journal(self.journal, payload=self.journal_payload, redact=redact)

    @property
    def default_exchange(self) -> Exchange:
        """Where events go that name no exchange of their own."""
        return Exchange(self.exchange, self.exchange_type)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Settings:
        """Settings from keywords, with unknown ones named.

        >>> Settings.of({"concurency": 2})
        Traceback (most recent call last):
        queuecraft.ConfigError: unknown setting 'concurency'; did you mean ...
        """
        known = {name: value for name, value in values.items() if name in NAMES}
        problems = [unknown(name) for name in values if name not in NAMES] + wrong(known)
        if problems:
            raise refusal(problems)
        return cls(**known)


# -- what each setting may be ----------------------------------------------------------------------


def _is_url(value: object) -> bool:
    return address.fault(value) is None


def _is_compression(value: object) -> bool:
    return isinstance(value, (bool, str))


def _is_journal(value: object) -> bool:
    return isinstance(value, Journal) or is_folder(value)


def _is_source(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and "\0" not in value
    return callable(value) or isinstance(value, PathLike)


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "url": Check(_is_url, "a URL", secret=True, fault=address.fault),
        **address.FIELDS,
        "credentials": or_none(
            Check(_is_source, "a callable, or a file's path", "'/run/secrets/mq'", secret=True)
        ),
        "exchange": NAME,
        "exchange_type": one_of(*EXCHANGE_TYPES),
        "retry": instance(Retry, NoRetry, expected="Retry(…) or NoRetry()"),
        "dead_letter": instance(
            DeadLetter, NoDeadLetter, expected="DeadLetter(…) or NoDeadLetter()"
        ),
        "ttl": or_none(SECONDS),
        "ack_timeout": or_none(SECONDS),
        "max_redeliveries": FROM_ZERO,
        "concurrency": FROM_ONE,
        "prefetch": or_none(FROM_ONE),
        "batch_size": FROM_ONE,
        "compression": or_none(Check(_is_compression, "true for gzip, a name", "'zstd'", truth)),
        "compression_threshold": whole(0, "bytes from 0 on", "1024"),
        "serializer": Check(lambda value: isinstance(value, str), "its name", "'msgpack'"),
        "publish_timeout": SECONDS,
        "on_outage": one_of("wait", "fail"),
        "max_pending": FROM_ONE,
        "unroutable": one_of("error", "drop"),
        "shutdown_timeout": SECONDS,
        "timeout": SECONDS,
        "heartbeat": SECONDS,
        "presence": number(0, "seconds up to 60, 0 for never", "5", most=60),
        "auto_reconnect": FLAG,
        "reconnect_delay": SECONDS,
        "reconnect_attempts": or_none(FROM_ONE),
        "redis_mode": or_none(one_of("list", "pubsub", "stream")),
        "redis_delivery": one_of("at-least-once", "at-most-once"),
        "max_message_bytes": FROM_ONE,
        "delayed": instance(DelayedSettings, expected="DelayedSettings(…)"),
        "journal": or_none(Check(_is_journal, "a folder of this machine", "'./lake'")),
        "journal_payload": PAYLOAD,
        "journal_redact": or_none(REDACT),
    }
)

NAMES: tuple[str, ...] = tuple(CHECKS)

ADDRESS = frozenset({"url", *address.FIELDS, "credentials", "redis_mode"})
"""Settings that have to fit one another."""


def default(name: str) -> str:
    """The default of a setting, for a person to read.

    >>> default("publish_timeout")
    '30.0'
    """
    for each in fields(Settings):
        if each.name == name:
            make = each.default_factory
            return repr(each.default if make is MISSING else make())
    return "None"


def unknown(name: str) -> str:
    """What to say of a setting there is none of.

    >>> unknown("max_retries")
    "unknown setting 'max_retries'; did you mean retry=Retry(max_retries=…)?"
    """
    inside = name in (each.name for each in fields(Retry))
    hint = f"did you mean retry=Retry({name}=…)?" if inside else nearest(name, NAMES)
    return f"unknown setting {shown(name)}; {hint}"


def wrong(given: Mapping[str, Any]) -> list[str]:
    """What cannot work about settings, a line each.

    >>> wrong({"concurrency": 0})
    ['concurrency=0: expected a whole number from 1 on, such as 8 (default 1)']
    """
    bad = [name for name in CHECKS if name in given and not CHECKS[name].will_do(given[name])]
    problems = [CHECKS[name].complaint(given[name], default(name), name) for name in bad]
    return problems if ADDRESS.intersection(bad) else problems + misfits(given)[1]


def misfits(given: Mapping[str, Any], label: address.Label = str) -> tuple[str, list[str]]:
    """The URL of settings that are right one by one, and which of them do not fit together.

    >>> misfits({"url": "redis://one?mode=list", "redis_mode": "stream"})[1]
    ["redis_mode is 'stream', but url says mode=list; keep one"]
    """
    rotating = given.get("credentials") is not None
    url, problems = address.compose(given, label, rotating=rotating)
    if rotating and given.get("password") is not None:
        problems.append(f"{label('password')} and {label('credentials')} are both given; keep one")
    problems += _twice_told(given, label)
    if url.partition("://")[0].lower() in address.TYPES["redis"].schemes:
        check = CHECKS["redis_mode"]
        said = parse_qs(url.partition("?")[2]).get("mode", [])
        for mode in said:
            if not check.will_do(mode):
                what = f"{label('url')} says mode={shown(mode)}"
                problems.append(f"{what}: {check.wants(default('redis_mode'))}")
            elif given.get("redis_mode") not in (mode, None):
                what = f"{label('redis_mode')} is {given['redis_mode']!r}"
                problems.append(f"{what}, but {label('url')} says mode={mode}; keep one")
    return url, problems


def _twice_told(given: Mapping[str, Any], label: address.Label) -> list[str]:
    """What is said of the journal beside a `Journal(…)`, which says it all."""
    if not isinstance(given.get("journal"), Journal):
        return []
    said = {
        "journal_payload": given.get("journal_payload", "headers") != "headers",
        "journal_redact": bool(given.get("journal_redact")),
    }
    return [
        f"{label(name)} is given beside {label('journal')}, which is a Journal(…); keep one"
        for name, is_said in said.items()
        if is_said
    ]
