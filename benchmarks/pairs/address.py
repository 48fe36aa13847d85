"""Where a broker is, taken from the URL that QueueCraft gets."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from benchmarks.sent import EVENT, QUEUE


def redis_server(url: str) -> str:
    """
    >>> redis_server("redis://localhost:1/0?prefix=a")
    'redis://localhost:1/0'
    """
    return url.partition("?")[0]


def redis_key(url: str, name: str = QUEUE) -> str:
    """
    >>> redis_key("redis://localhost:1/0?prefix=a")
    '{a}:billing'
    """
    return f"{{{_prefix(url)}}}:{name}"


def kafka_servers(url: str) -> str:
    """
    >>> kafka_servers("kafka://localhost:1?prefix=a.")
    'localhost:1'
    """
    return urlsplit(url).netloc


def kafka_topic(url: str) -> str:
    """
    >>> kafka_topic("kafka://localhost:1?prefix=a.")
    'a.order.sent'
    """
    return f"{_prefix(url)}{EVENT}"


def kafka_group(url: str) -> str:
    """
    >>> kafka_group("kafka://localhost:1?prefix=a.")
    'a.billing'
    """
    return f"{_prefix(url)}{QUEUE}"


def _prefix(url: str) -> str:
    return parse_qs(urlsplit(url).query)["prefix"][0]
