"""`python -m tests.brokers install`: what `make test` does before the tests."""

from __future__ import annotations

import os
import sys

from tests.brokers import installation
from tests.brokers.rabbitmq import VARIABLE


def install() -> int:
    """Install the brokers that are missing; without them CI fails, others are told."""
    if os.environ.get(VARIABLE):
        return 0
    try:
        installation.ensure(installation.RABBITMQ)
    except installation.Unavailable as reason:
        print(f"RabbitMQ: {reason}", file=sys.stderr)
        if installation.in_ci():
            return 1
        print(f"Its tests will be SKIPPED. Or name a server in {VARIABLE}.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tests.brokers install")
    sys.exit(install())
