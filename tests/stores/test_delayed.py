"""What every store of delayed messages does alike."""

from __future__ import annotations

import asyncio

import pytest

from queuecraft.model.envelope import Outgoing
from queuecraft.model.queue import Exchange
from queuecraft.stores.base import NEVER, START, DelayedStore, Notes, Waiting, Which
from queuecraft.stores.memory import MemoryDelayedStore

NOW = 1_750_000_000.0


def waiting(id: str, due: float = NOW, body: bytes = b"{}") -> Waiting:
    return Waiting(Outgoing(body, id, queue="billing"), due=due, added=NOW)


async def fill(store: DelayedStore, *ids: str, due: float = NOW) -> None:
    for id in ids:
        assert (await store.add(waiting(id, due), limit=10_000)).accepted


def ids(found: object) -> list[str]:
    assert isinstance(found, list | tuple)
    return [each.message.id for each in found]


async def listed(store: DelayedStore) -> list[str]:
    return ids(list(await store.page(10_000, START)))


async def test_a_message_is_given_back_as_it_was_added(store: DelayedStore) -> None:
    message = Outgoing(
        b"\x00\xff",
        "m-1",
        "events",
        "order.placed",
        timestamp=NOW,
        content_type="application/json",
        key="k",
        headers={"tenant": "t1", "raw": b"\xff", "n": 2**40, "none": None},
        due_at=NOW + 0.1,
        correlation_id="c",
    )
    exchange = Exchange("events", "topic")
    await store.add(Waiting(message, NOW + 0.1, NOW - 0.7, exchange), limit=1)

    (found,) = await store.page(10, START)
    assert (found.due, found.added, found.exchange) == (NOW + 0.1, NOW - 0.7, exchange)
    assert (found.failures, found.hold) == (0, "")
    for name in Outgoing.__struct_fields__:
        assert getattr(found.message, name) == getattr(message, name), name


async def test_no_more_are_kept_than_the_limit_allows(store: DelayedStore) -> None:
    sizes = [await store.add(waiting(f"m-{n}"), limit=3) for n in range(5)]
    assert [(each.accepted, each.size) for each in sizes] == [
        *((True, 1), (True, 2), (True, 3), (False, 3), (False, 3)),
    ]
    assert await listed(store) == ["m-0", "m-1", "m-2"]
    assert await store.cancel("m-1", NOW)
    assert (await store.add(waiting("m-9"), limit=3)).accepted


async def test_fifty_who_add_at_once_never_pass_the_limit(store: DelayedStore) -> None:
    added = await asyncio.gather(*(store.add(waiting(f"m-{n}"), limit=20) for n in range(50)))
    assert sum(each.accepted for each in added) == 20
    assert sorted(each.size for each in added if each.accepted) == list(range(1, 21))
    assert (await store.census(NOW)).size == 20


async def test_an_id_that_waits_is_added_but_once(store: DelayedStore) -> None:
    await store.add(waiting("m-1", NOW + 5, b"first"), limit=1)
    again = await store.add(waiting("m-1", NOW + 9, b"second"), limit=1)
    assert (again.accepted, again.size) == (True, 1)
    (found,) = await store.page(10, START)
    assert (found.message.body, found.due) == (b"first", NOW + 5)


async def test_only_what_is_due_is_taken_and_what_is_due_first_comes_first(
    store: DelayedStore,
) -> None:
    await fill(store, "late", due=NOW + 2)
    await fill(store, "early", due=NOW - 2)
    await fill(store, "now", due=NOW)
    await fill(store, "never", due=NOW + 0.001)
    assert ids(await store.take(Which(NOW, 10), "a", NOW + 30)) == ["early", "now"]
    assert ids(await store.take(Which(NOW + 2, 10), "a", NOW + 30)) == ["never", "late"]


async def test_no_more_are_taken_than_asked_for(store: DelayedStore) -> None:
    await fill(store, *(f"m-{n}" for n in range(5)))
    assert len(await store.take(Which(NOW, 2), "a", NOW + 30)) == 2
    assert len(await store.take(Which(NOW, 10), "b", NOW + 30)) == 3


async def test_what_one_has_taken_no_other_gets_until_the_hold_lapses(store: DelayedStore) -> None:
    await fill(store, "m-1")
    assert ids(await store.take(Which(NOW, 10), "a", NOW + 30)) == ["m-1"]
    assert not await store.take(Which(NOW + 29.9, 10), "b", NOW + 60)
    assert not await store.take(Which(NOW + 29.9, 10, due_by=NOW + 29.9), "b", NOW + 60)
    (taken,) = await store.take(Which(NOW + 30, 10), "b", NOW + 60)
    assert (taken.message.id, taken.hold) == ("m-1", "b")


async def test_several_who_take_at_once_share_the_messages(store: DelayedStore) -> None:
    await fill(store, *(f"m-{n:02}" for n in range(40)))
    taken = await asyncio.gather(
        *(store.take(Which(NOW, 5), f"mover-{n}", NOW + 30) for n in range(10))
    )
    got = [each.message.id for some in taken for each in some]
    assert sorted(got) == [f"m-{n:02}" for n in range(40)]


async def test_what_is_delivered_is_forgotten(store: DelayedStore) -> None:
    await fill(store, "m-1", "m-2", "m-3")
    taken = await store.take(Which(NOW, 2), "a", NOW + 30)
    assert await store.forget(taken) == 2
    assert await listed(store) == ["m-3"]
    assert (await store.census(NOW)).size == 1


async def test_a_stale_hold_changes_nothing(store: DelayedStore) -> None:
    await fill(store, "m-1")
    stale = await store.take(Which(NOW, 1), "a", NOW + 30)
    held = await store.take(Which(NOW + 31, 1), "b", NOW + 61)
    assert await store.forget(stale) == 0
    await store.put_back(stale, now=NOW + 31, failed=True)
    assert not await store.take(Which(NOW + 32, 1), "c", NOW + 90)  # still b's
    assert await store.forget(held) == 1


async def test_what_is_put_back_can_be_taken_again_at_once(store: DelayedStore) -> None:
    await fill(store, "m-1")
    await store.put_back(await store.take(Which(NOW, 1), "a", NOW + 30), now=NOW, failed=False)
    (again,) = await store.take(Which(NOW, 1), "b", NOW + 30)
    assert again.failures == 0


async def test_what_was_refused_is_tried_again_ever_later(store: DelayedStore) -> None:
    await fill(store, "m-1")
    now, pauses = NOW, list[float]()
    for _ in range(9):
        taken = await store.take(Which(now, 1), "a", now + 30)
        await store.put_back(taken, now=now, failed=True)
        following = (await store.census(now)).next_at
        assert not await store.take(Which(following - 0.01, 1), "b", now + 90)
        pauses.append(following - now)
        now = following
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    (found,) = await store.page(1, START)
    assert (found.failures, found.due) == (9, NOW)


async def test_a_cleanup_takes_what_is_to_be_tried_later_too(store: DelayedStore) -> None:
    await fill(store, "m-1")
    taken = await store.take(Which(NOW, 1), "a", NOW + 30)
    await store.put_back(taken, now=NOW, failed=True)
    assert not await store.take(Which(NOW + 0.5, 1), "b", NOW + 30)
    assert ids(await store.take(Which(NOW + 0.5, 1, due_by=NOW), "b", NOW + 30)) == ["m-1"]


async def test_a_cleanup_goes_on_after_the_place_it_has_come_to(store: DelayedStore) -> None:
    await fill(store, *(f"m-{n}" for n in range(4)), due=NOW - 1)  # all at once
    await fill(store, "later", due=NOW + 0.5)
    await fill(store, "between", due=NOW - 0.5)
    seen, after = list[str](), START
    while some := await store.take(Which(NOW, 2, due_by=NOW, after=after), "a", NOW + 30):
        await store.put_back(some, now=NOW, failed=True)
        seen += ids(some)
        after = some[-1].cursor
    assert seen == ["m-0", "m-1", "m-2", "m-3", "between"]


async def test_a_cleanup_goes_on_though_the_one_it_had_come_to_is_gone(store: DelayedStore) -> None:
    await fill(store, *(f"m-{n}" for n in range(4)))
    (first, second) = await store.take(Which(NOW, 2, due_by=NOW), "a", NOW + 30)
    await store.forget([first, second])
    rest = await store.take(Which(NOW, 9, due_by=NOW, after=second.cursor), "a", NOW + 30)
    assert ids(rest) == ["m-2", "m-3"]
    assert (await store.census(NOW)).size == 2


@pytest.mark.parametrize("due", [NOW, NOW + 5])
async def test_a_place_is_found_though_an_id_looks_like_the_mark_of_it(
    store: DelayedStore, due: float
) -> None:
    await fill(store, "a", "b", "c")
    await fill(store, "b\0", due=due)
    found = await store.take(Which(NOW + 9, 9, due_by=NOW + 9, after=(NOW, "b")), "x", NOW + 30)
    assert ids(found) == (["b\0", "c"] if due == NOW else ["c", "b\0"])
    assert (await store.census(NOW)).size == 4


async def test_a_message_can_be_cancelled_until_somebody_holds_it(store: DelayedStore) -> None:
    await fill(store, "m-1", "m-2")
    assert await store.cancel("m-1", NOW)
    assert not await store.cancel("m-1", NOW)
    assert not await store.cancel("no such", NOW)
    await store.take(Which(NOW, 1), "a", NOW + 30)
    assert not await store.cancel("m-2", NOW + 29)
    assert await store.cancel("m-2", NOW + 30)  # whoever held it is gone
    assert await listed(store) == []


async def test_a_hold_can_be_renewed_as_long_as_nobody_else_has_come(store: DelayedStore) -> None:
    await fill(store, "m-1", "m-2", "m-3", "m-4")
    taken = await store.take(Which(NOW, 4), "a", NOW + 30)
    await store.forget(taken[:1])
    assert ids(await store.renew(taken, NOW + 50)) == ["m-2", "m-3", "m-4"]
    assert not await store.cancel("m-2", NOW + 49)
    assert await store.cancel("m-2", NOW + 50)
    await store.take(Which(NOW + 50, 1), "b", NOW + 90)
    assert ids(await store.renew(taken, NOW + 80)) == ["m-4"]  # though it had lapsed
    assert not await store.take(Which(NOW + 79, 4), "c", NOW + 99)
    assert await store.renew(taken[:3], NOW + 99) == []


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
async def test_pages_follow_one_another_without_gap_or_overlap(
    store: DelayedStore, limit: int
) -> None:
    names = [f"m-{n:02}" for n in range(10)]
    await fill(store, *reversed(names), due=NOW + 1 / 3)
    await fill(store, "first", due=NOW)
    await fill(store, "last", due=NOW + 2 / 3)
    seen, after = list[str](), START
    while page := await store.page(limit, after):
        assert len(page) <= limit
        seen += ids(list(page))
        after = page[-1].cursor
    assert seen == ["first", *names, "last"]


async def test_a_page_follows_one_whose_last_message_is_gone(store: DelayedStore) -> None:
    await fill(store, "a", "b", "c")
    *_, last = await store.page(2, START)
    assert await store.cancel("b", NOW)
    assert ids(list(await store.page(2, last.cursor))) == ["c"]


async def test_a_census_counts(store: DelayedStore) -> None:
    empty = await store.census(NOW)
    assert (empty.size, empty.max_size, empty.overdue) == (0, 0, 0)
    assert (empty.oldest_due, empty.next_at) == (None, NEVER)
    await fill(store, "a", due=NOW - 60.25)
    await fill(store, "b", due=NOW - 10)
    await fill(store, "c", due=NOW + 10)
    await store.forget(await store.take(Which(NOW - 20, 5), "x", NOW))
    told = await store.census(NOW - 5)
    assert (told.size, told.max_size, told.overdue) == (2, 3, 1)
    assert (told.oldest_due, told.next_at) == (NOW - 10, NOW - 10)
    await store.take(Which(NOW, 5), "x", NOW + 30)
    assert (await store.census(NOW)).next_at == NOW + 10


async def test_notes_are_put_added_to_and_removed(store: DelayedStore) -> None:
    assert await store.notes() == {}
    await store.note(Notes(put={"a": "1", "b": "é"}, add={"runs": 2}))
    await store.note(Notes(put={"a": "2"}, add={"runs": 3}, remove=["b", "none"]))
    await fill(store, "m-1")  # its size is no note
    assert await store.notes() == {"a": "2", "runs": "5"}


async def test_of_several_who_write_the_same_down_one_is_the_first(store: DelayedStore) -> None:
    before = await asyncio.gather(*(store.exchange("alarm", "critical") for _ in range(5)))
    assert before.count(None) == 1
    assert before.count("critical") == 4
    assert (await store.notes())["alarm"] == "critical"


async def test_large_messages_come_in_parts_and_all_of_them_in_the_end(
    store: DelayedStore,
) -> None:
    names = [f"m-{n}" for n in range(4)]
    for name in names:
        await store.add(waiting(name, body=b"x" * (12 << 20)), limit=9)
    seen, after = list[str](), START
    while some := await store.page(9, after):
        seen += ids(list(some))
        after = some[-1].cursor
    assert seen == names
    if not isinstance(store, MemoryDelayedStore):
        assert len(await store.page(9, START)) == 2
    taken = list[str]()
    while batch := await store.take(Which(NOW, 9), "a", NOW + 30):
        taken += ids(list(batch))
    assert taken == names


async def test_ids_and_bodies_may_be_anything_that_fits(store: DelayedStore) -> None:
    odd = ["é\u202e", "a\0b", " ", "x" * 255, "'; DROP TABLE shelf", "🐇"]
    for id in odd:
        await store.add(waiting(id, body=bytes(range(256)) * 4000), limit=99)
    assert sorted(await listed(store)) == sorted(odd)
    taken = await store.take(Which(NOW, 99), "a", NOW + 30)
    assert {each.message.body for each in taken} == {bytes(range(256)) * 4000}
    assert await store.forget(taken) == len(odd)
