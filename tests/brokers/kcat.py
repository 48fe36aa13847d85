"""A client of Kafka that is not ours: what it finds is there, and it finds what is there."""

from __future__ import annotations

import subprocess

from tests.brokers.installation import KCAT
from tests.brokers.kafka import client
from tests.brokers.process import ProcessFailed

PATIENCE = 20.0


class Kcat:
    """The program `kcat`.

    kcat(kafka_url, "-P", "-t", "orders", text="o-1\\n")
    kcat(kafka_url, "-C", "-t", "orders", "-o", "beginning", "-e")
    """

    def __call__(self, url: str, *arguments: str, text: str = "") -> str:
        """What it prints, told where the broker is; a prefix is not for it to add."""
        program = KCAT.find()
        assert program is not None
        settings = [f"-X{name}={value}" for name, value in client(url).items()]
        answer = subprocess.run(
            [program, "-m", str(int(PATIENCE)), *settings, *arguments],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PATIENCE * 2,
            check=False,
        )
        if answer.returncode:
            raise ProcessFailed(f"kcat {' '.join(arguments)} failed: {answer.stderr.strip()}")
        return answer.stdout
