"""`python -m tests.brokers install`: what `make test` does before the tests."""

from __future__ import annotations

import os
import sys

from tests.brokers import installation, rabbitmq, redis


def install() -> int:
    """Install the brokers that are missing; without them CI fails, others are told."""
    brokers = (
        ("RabbitMQ", installation.RABBITMQ, rabbitmq.VARIABLE),
        ("Redis", installation.REDIS, redis.VARIABLE),
    )
    status = 0
    for name, programs, variable in brokers:
        if os.environ.get(variable):
            continue
        try:
            installation.ensure(programs)
        except installation.Unavailable as reason:
            print(f"{name}: {reason}", file=sys.stderr)
            if installation.in_ci():
                status = 1
            else:
                told = f"Its tests will be SKIPPED. Or name a server in {variable}."
                print(told, file=sys.stderr)
    return status


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.brokers install")
    sys.exit(install())
