"""What a task does with its rows, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from queuecraft.drivers.base import (
    ACCEPTED,
    ConnectionLost,
    Outgoing,
    Receipt,
    Rejected,
    Unknown,
)
from queuecraft.model.errors import PayloadError, PublishError, QueueError
from queuecraft.model.settings import Settings
from queuecraft.pipeline.replay import sending
from queuecraft.pipeline.replay.sending import Outlet, Report, Sending
from queuecraft.pipeline.replay.table import PLAN
from queuecraft.runtime.connection import Connection
from tests.brokers.port import Port
from tests.pipeline.replay.scene import DEEP, Broker


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    given = [
        {
            "message_id": f"m-{n}",
            "queue": "billing",
            "payload": b"{}",
            "replay_id": "r-1",
            "position": n,
            **row,
        }
        for n, row in enumerate(rows)
    ]
    return pa.RecordBatch.from_pylist(given, schema=PLAN.arrow)


def run(task: Sending, *batches: pa.RecordBatch) -> dict[str, Any]:
    ((row,),) = (each.to_pylist() for each in task(iter(batches)))
    return {**row, "refusals": msgspec.json.decode(row["refusals"])}


def test_rows_that_make_no_message_are_refused_and_the_others_sent(broker: Broker) -> None:
    broker.declare("billing")
    task = Sending("default", local=True)
    told = run(task, batch({}, {"typed_headers": "no json"}), batch({"queue": "nowhere"}, {}))
    assert (told["sent"], told["refused"], told["trouble"]) == (2, 2, None)
    assert told["positions"] == [1, 0]
    assert [each[0] for each in told["refusals"]] == ["m-1", "m-0"]
    assert broker.ids("billing") == ["m-0", "m-1"]


def test_headers_that_no_message_can_have_cost_one_row_alone(broker: Broker) -> None:
    broker.declare("billing")
    rows = [{}, {"typed_headers": DEEP}, {"typed_headers": '{"of":{"table":"orders"}}'}, {}]
    told = run(Sending("default", local=True), batch(*rows))
    assert (told["sent"], told["refused"], told["positions"]) == (3, 1, [1])
    sent: list[Any] = [each.sent.headers.get("of") for each in broker.received("billing")]
    assert sent == [None, {"table": "orders"}, None]


def test_what_has_expired_is_left_out_or_sent_without_an_end(broker: Broker) -> None:
    broker.declare("billing")
    rows = batch({"expires_at": 1}, {})
    assert run(Sending("default", local=True), rows)["expired"] == 1
    told = run(Sending("default", local=True, expired=True), rows)
    assert (told["sent"], told["expired"]) == (2, 0)
    assert broker.ids("billing") == ["m-1", "m-0", "m-1"]
    assert [each.sent.expires_at for each in broker.received("billing")] == [None, None, None]


def test_a_task_without_rows_does_not_connect() -> None:
    told = run(Sending("no-such-connection", local=True))
    assert (told["sent"], told["trouble"]) == (0, None)


def test_a_broker_that_does_not_answer_is_trouble_and_no_refusal() -> None:
    with Port() as port:
        environ = {"QUEUECRAFT_URL": f"redis://127.0.0.1:{port.number}/0?mode=list"}
        told = run(Sending("default", local=True, environ=environ), batch({}))
    assert (told["sent"], told["refused"], told["lost"]) == (0, 0, True)
    assert told["trouble"]


class Script:
    """A connection whose driver does what a test says, call by call."""

    def __init__(self, *answers: Callable[[Sequence[Outgoing]], Sequence[Receipt]]) -> None:
        self.answers = list(answers)
        self.calls: list[list[str]] = []
        self.losses = 0

    async def ready(self) -> Script:
        return self

    async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        self.calls.append([each.id for each in messages])
        return self.answers.pop(0)(messages) if self.answers else [ACCEPTED] * len(messages)

    def lost(self, driver: object, error: QueueError) -> None:
        self.losses += 1


def sent(script: Script, count: int, **settings: Any) -> Report:
    async def main() -> Report:
        report = Report(refusals=[])
        outlet = Outlet(cast(Connection, script), Settings(**settings), report)
        await outlet.send([(n, Outgoing(b"{}", f"m-{n}", queue="billing")) for n in range(count)])
        return report

    return asyncio.run(main())


def raising(error: QueueError) -> Callable[[Sequence[Outgoing]], Sequence[Receipt]]:
    def answer(messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        raise error

    return answer


def test_what_was_not_answered_for_goes_again_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "PAUSE", 0)
    lost = ConnectionLost("gone")
    script = Script(
        raising(lost),
        lambda messages: [ACCEPTED, *[Unknown(lost)] * (len(messages) - 1)],
    )
    assert sent(script, 3).sent == 3
    assert script.calls == [["m-0", "m-1", "m-2"], ["m-0", "m-1", "m-2"], ["m-1", "m-2"]]
    assert script.losses == 2


def test_one_that_spoils_its_batch_is_found_and_the_others_go() -> None:
    def picky(messages: Sequence[Outgoing]) -> Sequence[Receipt]:
        if any(each.id == "m-3" for each in messages):
            raise PayloadError("too large")
        return [ACCEPTED] * len(messages)

    script = Script(*[picky] * 20)
    report = sent(script, 5)
    assert (report.sent, report.refusals) == (4, [("m-3", "too large")])
    assert report.positions == [3]


def test_a_refusal_is_final_and_silence_is_not() -> None:
    refused = Script(lambda messages: [Rejected(QueueError("no such queue")), ACCEPTED])
    report = sent(refused, 2)
    assert (report.sent, report.refused, report.refusals) == (1, 1, [("m-0", "no such queue")])

    silent = Script(*[lambda messages: [Unknown(QueueError("no answer"))]] * 100)
    with pytest.raises(ConnectionLost, match=r"within 0\.05 s: no answer"):
        sent(silent, 1, publish_timeout=0.05)


def test_a_broker_that_takes_forever_is_no_answer() -> None:
    class Stuck(Script):
        async def send(self, messages: Sequence[Outgoing]) -> Sequence[Receipt]:
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(PublishError) as told:
        sent(Stuck(), 1, publish_timeout=0.05)
    assert told.value.outcome == "unknown"
