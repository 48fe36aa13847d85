"""The private Redis, killed, frozen and asked."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

import hiredis
import pytest

from tests.brokers.process import ProcessFailed
from tests.brokers.redis import Redis, RedisServer, call
from tests.brokers.server import MISNAMED


def test_a_prefix_is_gone_after_its_use(redis: Redis) -> None:
    redis.start()
    with redis.prefix() as url, redis.prefix() as other:
        assert url != other
        name = url.partition("prefix=")[2]
        redis.call("SET", f"{{{name}}}:x", "1")
        redis.call("SET", "mine", "1")
    assert redis.call("EXISTS", f"{{{name}}}:x", "mine") == 1
    redis.call("DEL", "mine")


def test_what_was_stored_is_there_after_a_kill_and_a_start(redis: Redis, redis_url: str) -> None:
    redis.call("SET", "survives", "yes")
    before = redis.pid
    redis.kill()
    assert not redis.running
    with pytest.raises(ConnectionRefusedError):
        redis.call("PING")
    redis.start()
    assert redis.pid != before
    assert redis.call("GETDEL", "survives") == b"yes"


def test_a_server_that_is_shut_down_can_be_started_again(redis: Redis, redis_url: str) -> None:
    redis.stop()
    assert not redis.running
    redis.start()
    assert redis.call("PING") == b"PONG"


def test_a_frozen_server_takes_connections_and_says_nothing(redis: Redis, redis_url: str) -> None:
    redis.freeze()
    assert redis.running
    with pytest.raises(TimeoutError):
        call(redis.url, "PING", timeout=0.1)
    redis.thaw()
    assert redis.call("PING") == b"PONG"
    redis.freeze()
    redis.start()
    assert redis.call("PING") == b"PONG"


def test_it_syncs_every_write(redis: Redis, redis_url: str) -> None:
    assert redis.call("CONFIG", "GET", "appendonly") == [b"appendonly", b"yes"]
    assert redis.call("CONFIG", "GET", "appendfsync") == [b"appendfsync", b"always"]


def test_settings_and_a_password_are_its_own() -> None:
    with RedisServer({"requirepass": "s3cret", "maxmemory": "50mb"}) as server:
        assert server.call("CONFIG", "GET", "maxmemory") == [b"maxmemory", b"52428800"]
        bare = f"redis://127.0.0.1:{server.port()}"
        assert isinstance(call(bare, "PING"), hiredis.ReplyError)
        folder = server.folder
    assert not folder.exists()


def test_settings_that_cannot_be_are_told() -> None:
    with pytest.raises(ProcessFailed, match="no-such-setting"):
        RedisServer({"no-such-setting": "1"}).__enter__()


def test_a_database_is_chosen_by_the_url(redis: Redis, redis_url: str) -> None:
    elsewhere = redis.url.removesuffix("/0") + "/7"
    call(elsewhere, "SET", "here", "1")
    assert redis.call("EXISTS", "here") == 0
    assert call(elsewhere, "DEL", "here") == 1


def opened(pid: int) -> set[str]:
    """What a process has open: paths, sockets by their number."""
    names: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.add(os.readlink(descriptor))
    return names


def test_it_listens_on_loopback_and_nowhere_else(redis: Redis, redis_url: str) -> None:
    sockets = opened(redis.pid)
    addresses = {
        socket.inet_ntoa(bytes.fromhex(line.split()[1].partition(":")[0])[::-1])
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in sockets
    }
    assert addresses == {"127.0.0.1", MISNAMED}


class TestSomebodyElses:
    """A server that the environment names; the private one plays it."""

    @pytest.fixture
    def foreign(self, redis: Redis, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Redis:
        monkeypatch.setenv("QUEUECRAFT_TEST_REDIS", redis.url)
        return Redis.from_environment()

    def test_gives_a_prefix_and_is_left_running(self, redis: Redis, foreign: Redis) -> None:
        with foreign as server, server.prefix() as url:
            assert url.startswith(redis.url)
            name = url.partition("prefix=")[2]
            foreign.call("SET", f"{{{name}}}:x", "1")
        assert redis.call("EXISTS", f"{{{name}}}:x") == 0
        assert redis.running

    @pytest.mark.parametrize("deed", ["kill", "stop", "freeze", "thaw"])
    def test_is_not_ours_to_hurt(self, redis: Redis, foreign: Redis, deed: str) -> None:
        with pytest.raises(pytest.skip.Exception, match="QUEUECRAFT_TEST_REDIS"):
            getattr(foreign, deed)()
        assert redis.running
