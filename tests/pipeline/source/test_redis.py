"""A stream by the ids of its entries, without Spark."""

from __future__ import annotations

import pytest

from queuecraft.drivers.base import Queue
from queuecraft.model.errors import ConfigError, ConnectionLost, QueueError
from queuecraft.model.settings import Settings
from queuecraft.pipeline.source import redis as module
from queuecraft.pipeline.source.log import EARLIEST, LATEST, Log, Offset, log_of
from tests.redis.place import Place, received, sent, to


@pytest.fixture
async def place(redis_url: str):
    place = Place(redis_url)
    yield place
    await place.close()


def log(place: Place, name: str = "billing", *, strict: bool = True) -> Log:
    return log_of(Settings(url=f"{place.url}&mode=stream"), name, strict=strict)


async def read(log: Log, start: Offset, end: Offset) -> list[str]:
    return [each.sent.id async for some in log.read(start, end) for each in some]


async def test_a_log_is_read_from_one_id_to_another(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)  # so that several are asked for
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    names = [f"m-{n}" for n in range(10)]
    await sent(driver, *(to("billing", name) for name in names))
    stream = log(place)
    await stream.open()
    start, end = await stream.at(EARLIEST), await stream.at(LATEST)
    assert await read(stream, start, end) == names
    middle = await stream.after(start, 4, None)
    assert await read(stream, start, middle) == names[:4]
    assert await read(stream, middle, end) == names[4:]
    assert await read(stream, await stream.at(middle["id"]), end) == names[4:]
    assert stream.ranges(end, end) == []
    assert await stream.after(end, None, None) == end
    await sent(driver, to("billing", "m-10"))
    assert await stream.after(end, None, end) == end  # nothing beyond what it may
    await stream.close()


async def test_reading_takes_nothing_from_the_workers(place: Place) -> None:
    driver = await place.driver("stream", url=f"{place.url}&retain=10")
    await driver.declare(Queue("billing"))
    await sent(driver, to("billing", "m-0"), to("billing", "m-1"))
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    (first,) = await received(consumer, 1)
    await consumer.ack([first])
    stream = log(place)
    await stream.open()
    end = await stream.at(LATEST)
    assert await read(stream, await stream.at(EARLIEST), end) == ["m-0", "m-1"]  # also the handled
    (info,) = await driver.inspect(["billing"])
    assert (info.ready, info.in_flight) == (1, 0)
    await stream.close()


async def test_an_entry_that_was_deleted_unread_is_told(place: Place) -> None:
    driver = await place.driver("stream")  # retains nothing
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(4)))
    stream = log(place)
    await stream.open()
    start = await stream.at(EARLIEST)
    end = await stream.after(start, 2, None)
    consumer = await driver.subscribe(Queue("billing"), prefetch=5)
    await consumer.ack(await received(consumer, 3))
    with pytest.raises(QueueError, match=r"were deleted, .* had been read; keep more of them"):
        await read(stream, start, end)
    with pytest.raises(QueueError, match="'fail_on_data_loss', 'false'"):
        await stream.after(end, None, None)
    await stream.close()
    lenient = log(place, strict=False)
    await lenient.open()
    assert await read(lenient, start, end) == []
    assert await read(lenient, end, await lenient.after(end, None, None)) == ["m-3"]
    # Who begins now does not miss what was gone before.
    await lenient.close()
    await stream.open()
    assert await read(stream, await stream.at(EARLIEST), await stream.at(LATEST)) == ["m-3"]
    await stream.close()


async def test_what_others_have_put_into_a_stream_is_read_as_workers_get_it(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    key = place.key("stream:billing")
    await place.call("XADD", key, "5-1", "data", '{"id": 1}')
    await place.call("XADD", key, "5-2", "id", "1", "name", "ä")
    stream = log(place)
    await stream.open()
    start, end = await stream.at(EARLIEST), await stream.at(LATEST)
    (found,) = [some async for some in stream.read(start, end)]
    assert [each.sent.body for each in found] == [b'{"id": 1}', '{"id":"1","name":"ä"}'.encode()]
    assert [each.sent.id for each in found] == ["stream-5-1", "stream-5-2"]
    assert [stream.moment(each) for each in found] == [0.005, 0.005]
    await stream.close()


async def test_a_connection_that_breaks_while_reading_is_opened_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 2)
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    await sent(driver, *(to("billing", f"m-{n}") for n in range(5)))
    stream = log(place)
    await stream.open()
    found: list[str] = []
    async for some in stream.read(await stream.at(EARLIEST), await stream.at(LATEST)):
        found += [each.sent.id for each in some]
        await place.call("CLIENT", "KILL", "TYPE", "normal")
    assert found == [f"m-{n}" for n in range(5)]
    await stream.close()


async def test_a_stream_nothing_was_put_into_is_empty(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    await place.call("DEL", place.key("stream:billing"))
    stream = log(place)
    await stream.open()
    start = await stream.at(EARLIEST)
    assert await stream.after(start, None, None) == start
    assert await read(stream, start, await stream.at(LATEST)) == []
    await stream.close()


async def test_what_is_no_stream_is_refused(place: Place) -> None:
    driver = await place.driver("list")
    await driver.declare(Queue("billing"))
    listed = log(place)
    with pytest.raises(ConfigError, match="the queue is no stream"):
        await listed.open()
    await listed.close()
    missing = log(place, "biling")
    with pytest.raises(QueueError, match="there is no queue 'biling'"):
        await missing.open()
    await missing.close()


async def test_a_place_that_is_none_is_refused(place: Place) -> None:
    driver = await place.driver("stream")
    await driver.declare(Queue("billing"))
    stream = log(place)
    await stream.open()
    with pytest.raises(ConfigError, match="'soon' is no place in a Redis stream"):
        await stream.at("soon")
    assert (await stream.at("17"))["id"] == "17-0"
    await stream.close()
    with pytest.raises(ConnectionLost):
        await stream.at(LATEST)


async def test_the_next_host_is_tried() -> None:
    stream = log_of(Settings(url="redis://127.0.0.1:1,127.0.0.1:2/0?mode=stream"), "billing")
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:2"):
        await stream.open()
