"""Middleware around publishing sees each payload before it is sent, and its id after."""

from __future__ import annotations

from typing import Any

import pytest

from queuecraft import ConfigError, Message, PublishError, Queue, QueueCraft, UnsupportedFeature
from queuecraft.middleware import Publication, Publish, PublishMiddleware
from tests.middleware.stage import number, stage


def noting(name: str, story: list[str]) -> PublishMiddleware:
    def wrap(publish: Publish) -> Publish:
        async def noted(publication: Publication) -> str:
            story.append(f"{name} {publication.name}")
            id = await publish(publication)
            story.append(f"{name} done")
            return id

        return noted

    return wrap


async def test_the_first_is_the_outermost_around_publish_and_send() -> None:
    story: list[str] = []
    async with stage(publish_middleware=[noting("a", story)]) as (qc, clock):
        qc.use_publishing(noting("b", story))
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int) -> None: ...

        await worker.start()
        assert len(await qc.publish(number, 1)) == 32
        assert story == ["a number", "b number", "b done", "a done"]
        story.clear()
        await qc.send(Queue("numbers", int), 2)
        assert story[0] == "a numbers"
        await clock.settle()


async def test_it_may_change_what_is_published() -> None:
    def doubled(publish: Publish) -> Publish:
        async def doubling(publication: Publication) -> str:
            assert isinstance(publication.payload, int)
            publication.payload *= 2
            publication.set_header("x-tenant", "acme")
            return await publish(publication)

        return doubling

    async with stage(publish_middleware=[doubled]) as (qc, clock):
        seen: list[tuple[int, Any, Any]] = []
        worker = qc.worker("numbers")

        @worker.on(number)
        async def handle(n: int, message: Message) -> None:
            seen.append((n, message.headers.get("x-tenant"), message.headers.get("x-own")))

        await worker.start()
        own = {"x-own": "1"}
        await qc.publish(number, 2, headers=own)
        await qc.publish_many(number, [3, 4])
        await clock.settle()
        assert seen == [(4, "acme", "1"), (6, "acme", None), (8, "acme", None)]
        assert own == {"x-own": "1"}  # the caller's own is left alone


async def test_of_many_each_has_an_answer_of_its_own() -> None:
    def no_threes(publish: Publish) -> Publish:
        async def checking(publication: Publication) -> str:
            if publication.payload == 3:
                raise ValueError("no threes")
            return await publish(publication)

        return checking

    async with stage(publish_middleware=[no_threes], unroutable="drop") as (qc, _):
        answers = await qc.publish_many(number, range(1200), return_exceptions=True)
        failed = [at for at, each in enumerate(answers) if not isinstance(each, str)]
        assert failed == [3]
        assert "no threes" in str(answers[3])
        with pytest.raises(PublishError, match="1 of 5 messages were not published"):
            await qc.publish_many(number, range(5))
        with pytest.raises(ValueError, match="no threes"):
            await qc.publish(number, 3)
        with pytest.raises(UnsupportedFeature, match="one message at a time"):
            await qc.publish_many(number, [1], atomic=True)


def test_what_is_no_middleware_is_refused() -> None:
    async def wrong(publish: Publish) -> Publish:
        return publish

    made: Any = wrong
    with pytest.raises(ConfigError, match="is async"):
        QueueCraft().use_publishing(made)
    nothing: Any = lambda publish: None  # noqa: E731
    with pytest.raises(ConfigError, match="not a function"):
        QueueCraft().use_publishing(nothing)


def test_what_was_refused_does_not_stand_in_the_way_of_others() -> None:
    qc = QueueCraft()
    nothing: Any = lambda publish: None  # noqa: E731
    with pytest.raises(ConfigError, match="not a function"):
        qc.use_publishing(nothing)
    qc.use_publishing(lambda publish: publish)


async def test_of_many_those_whose_id_was_kept_back_have_failed() -> None:
    def forgetful(publish: Publish) -> Publish:
        async def forgetting(publication: Publication) -> Any:
            await publish(publication)

        return forgetting

    async with stage(unroutable="drop", publish_middleware=[forgetful]) as (qc, _):
        answers = await qc.publish_many(number, range(2), return_exceptions=True)
        assert [type(each) for each in answers] == [PublishError] * 2
        assert "returned None" in str(answers[0])


async def test_what_holds_something_open_is_closed_in_the_end() -> None:
    closed: list[str] = []

    class Store:
        def __call__(self, publish: Publish) -> Publish:
            return publish

        async def close(self) -> None:
            closed.append("store")

    async with stage(unroutable="drop") as (qc, _):
        store = Store()
        qc.use_publishing(store, store)
        await qc.publish(number, 1)
        assert closed == []
    assert closed == ["store"]
