"""Dependencies on every broker: what a handler wrote is kept before its message is gone."""

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from queuecraft import Depends, Event, Message, QueueCraft, Retry
from tests.features.life import running, until

number = Event("depends.number", int)


class Database:
    """Keeps what was committed."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.rolled_back: list[int] = []
        self.closed = False


async def test_a_session_is_committed_or_rolled_back_and_the_message_comes_again(url: str) -> None:
    database = Database()

    async def opened() -> AsyncIterator[Database]:
        yield database
        database.closed = True

    async def session(
        database: Annotated[Database, Depends(opened, scope="worker")], message: Message[Any]
    ) -> AsyncIterator[list[int]]:
        rows: list[int] = []
        try:
            yield rows
        except ValueError:
            database.rolled_back += rows
            raise
        database.rows += rows

    async with QueueCraft(url) as qc:
        worker = qc.worker("ledger", retry=Retry(initial_delay=0.01))

        @worker.on(number)
        async def note(
            it: int, message: Message[int], session: Annotated[list[int], Depends(session)]
        ) -> None:
            session.append(it)
            if it == 2 and message.attempt == 1:
                raise ValueError("not yet")

        async with running(worker):
            await qc.publish_many(number, [1, 2, 3])
            await until(lambda: len(database.rows) == 3)
            assert not database.closed
    assert sorted(database.rows) == [1, 2, 3]
    assert database.rolled_back == [2]
    assert database.closed


async def test_a_batch_in_a_thread_has_one_session(url: str) -> None:
    database = Database()
    sessions = itertools.count(1)
    batches: list[int] = []

    def session() -> Iterator[list[int]]:
        batches.append(next(sessions))
        rows: list[int] = []
        yield rows
        database.rows += rows

    async with QueueCraft(url) as qc:
        worker = qc.worker("ledger")

        @worker.on(number, batch_size=10, batch_wait=0.2)
        def store(numbers: list[int], session: Annotated[list[int], Depends(session)]) -> None:
            session.extend(numbers)

        async with running(worker):
            await qc.publish_many(number, range(10))
            await until(lambda: len(database.rows) == 10)
    assert sorted(database.rows) == list(range(10))
    assert len(batches) < 10
