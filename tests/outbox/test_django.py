"""The outbox in a transaction of Django; a program of its own, as Django's settings are global."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio
import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
)
django.setup()
from django.db import connection, transaction
from queuecraft import ConfigError, Event, QueueCraft
from queuecraft.outbox import Outbox

number = Event("number", int)
outbox = Outbox()
outbox.create(connection)
with transaction.atomic():
    outbox.publish(connection, number, 1)
try:
    with transaction.atomic():
        outbox.publish(connection, number, 2)
        raise ValueError
except ValueError:
    pass
try:
    outbox.publish(connection, number, 3)
except ConfigError as error:
    print(error.message)

async def relay():
    async with QueueCraft() as qc:
        await qc.admin.declare("numbers", "number")
        await outbox.relay(qc, "sqlite:///shop.db", once=True)
        print([each.payload for each in await qc.admin.peek("numbers")])

connection.close()
asyncio.run(relay())
"""


def test_a_message_is_part_of_a_transaction_of_django(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")},
        capture_output=True,
        encoding="utf-8",
        timeout=40,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    refusal, published = answer.stdout.splitlines()
    assert refusal.startswith("the connection is in no transaction")
    assert published == "[1]"
