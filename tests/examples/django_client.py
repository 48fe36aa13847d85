"""The Django example as a program of its own, as Django's settings are global: what a test client
sees, what waits in the outbox, and what relay and workers make of it. Told as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from examples.django_app.events import outbox
from examples.django_app.workers import make
from queuecraft import QueueCraft
from tests.features.life import running, until


def asked(method: str, path: str, **data: str) -> list[Any]:
    """The status, and what is said."""
    from django.test import Client

    answer = getattr(Client(SERVER_NAME="localhost"), method)(path, data)
    return [answer.status_code, answer.json() if "json" in answer["Content-Type"] else None]


def waiting() -> int:
    from django.db import connection

    return outbox.waiting(connection)


def place() -> dict[str, Any]:
    """What customers do."""
    return {
        "placed": asked("post", "/orders/o-1", cents="950"),
        "again": asked("post", "/orders/o-1", cents="950"),
        "nonsense": asked("post", "/orders/o-2"),
        "missing": asked("get", "/orders/o-9"),
        "before": asked("get", "/orders/o-1"),
        "waiting": waiting(),
    }


async def work(qc: QueueCraft) -> None:
    """What relay and workers do, until both messages of the order are handled."""
    async with qc, running(*qc.workers):
        await outbox.relay(qc, f"sqlite:///{os.environ['SHOP_DATABASE']}", once=True)
        await until(lambda: qc.get_metrics().messages_succeeded == 2)


async def declare(qc: QueueCraft) -> None:
    """What a first start of the workers does."""
    async with qc:
        pass


def main(*, away: bool) -> None:
    workers = make()  # which sets up Django
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("makemigrations", check=True, verbosity=0)  # the model has its migration
    if away:
        told = place()
    else:
        asyncio.run(declare(make()))
        told = place()
        asyncio.run(work(workers))
        told |= {"after": asked("get", "/orders/o-1"), "left": waiting()}
    print(json.dumps(told))


if __name__ == "__main__":
    main(away="away" in sys.argv)
