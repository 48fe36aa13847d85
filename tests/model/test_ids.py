"""Ids, which nobody draws twice."""

from __future__ import annotations

import os

from queuecraft.model.ids import new_id, new_ids


def test_no_two_are_alike() -> None:
    drawn = [new_id() for _ in range(1000)] + new_ids(1000)
    assert len(set(drawn)) == 2000
    assert {len(each) for each in drawn} == {32}


def test_a_child_process_draws_others() -> None:
    new_id()  # so that some of a block are left
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, "".join(new_id() for _ in range(300)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    theirs = {text[at : at + 32] for at in range(0, len(text), 32)}
    assert len(theirs) == 300
    assert not theirs & {new_id() for _ in range(300)}
