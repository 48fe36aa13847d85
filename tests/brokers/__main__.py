"""`python -m tests.brokers install`: what `make test` does before the tests."""

from __future__ import annotations

import os
import sys

from tests.asyncapi import official
from tests.brokers import installation, kafka, postgres, rabbitmq, redis
from tests.brokers.distribution import Distribution


def install() -> int:
    """Install the brokers and the browser that are missing; CI fails without, others are told."""
    brokers = (
        ("RabbitMQ", lambda: installation.ensure(installation.RABBITMQ), rabbitmq.VARIABLE),
        ("Redis", lambda: installation.ensure(installation.REDIS), redis.VARIABLE),
        ("Kafka", Distribution.get, kafka.VARIABLE),
        ("PostgreSQL", lambda: installation.ensure(postgres.POSTGRES), postgres.VARIABLE),
        ("Chromium", lambda: installation.ensure([installation.CHROMIUM]), None),
    )
    try:
        official.install()
    except installation.Unavailable as reason:
        print(f"AsyncAPI's own parser: {reason}\nIts tests will be SKIPPED.", file=sys.stderr)
    status = 0
    for name, get, variable in brokers:
        if variable is not None and os.environ.get(variable):
            continue
        try:
            get()
        except installation.Unavailable as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            if installation.in_ci():
                status = 1
            else:
                server = "" if variable is None else f" Or name a server in {variable}."
                print(f"Its tests will be SKIPPED.{server}", file=sys.stderr)
    return status


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.brokers install")
    sys.exit(install())
