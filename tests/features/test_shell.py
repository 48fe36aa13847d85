"""Commands that try a broker out: the same on each, and nothing is left behind."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from queuecraft import QueueCraft
from queuecraft.cli import app
from queuecraft.cli.bench import Bench
from queuecraft.cli.doctor.broker import broker


async def test_the_doctor_tries_what_an_app_does(url: str) -> None:
    found = {each.about: each async for each in broker(QueueCraft(url), 20.0, writes=True)}
    assert found["rights"].verdict == "ok", found["rights"]
    assert found["connection"].verdict == "ok"
    await leaves_nothing(url)


async def test_a_bench_measures_every_step(url: str) -> None:
    plan = Bench(QueueCraft(url), 120, "x" * 20, 20, 10)
    async with plan.ready() as worker:
        alone = await plan.publish(1, plan.alone)
        together = await plan.publish(plan.in_flight, plan.messages - plan.alone)
        consumed = await plan.consume(worker)
        pings = await plan.ping(5)
    assert (alone.messages, together.messages, consumed.messages) == (12, 108, 120)
    assert all(each.rate > 0 for each in (alone, together, consumed))
    assert len(pings.latencies) == 5
    await leaves_nothing(url)


async def leaves_nothing(url: str) -> None:
    async with QueueCraft(url) as qc:
        names = [queue.name for queue in await qc.admin.queues()]
    assert [name for name in names if name.startswith("queuecraft.")] == []


def test_the_command_tells_programs_each_step() -> None:
    result = CliRunner().invoke(app, ["bench", "--url", "local://", "-n", "200", "--json"])
    assert result.exit_code == 0, result.output
    steps = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["step"] for each in steps] == [
        "publish, 1 at a time",
        "publish, 100 at a time",
        "consume, 100 at a time",
        "publish to handler",
    ]
    assert steps[-1]["p50_ms"] <= steps[-1]["p95_ms"] <= steps[-1]["p99_ms"]
    assert steps[0]["p50_ms"] is None


def test_a_step_that_takes_too_long_is_told_with_what_to_do() -> None:
    given = ["bench", "--url", "local://", "-n", "1000000", "--timeout", "10ms"]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 2
    assert "fewer --messages" in result.stderr
