"""The rows of the matrix: brokers that are started here, and all that can be done to them."""

from __future__ import annotations

import secrets
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Generic, Protocol, TypeVar

import apsw
from confluent_kafka import KafkaException

from tests.brokers.distribution import VERSION, Distribution
from tests.brokers.kafka import _forget
from tests.brokers.kraft import Kraft
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.redis import RedisServer
from tests.faults.disk import fill
from tests.faults.rabbitmq.unsettled import OLD, Unsettled
from tests.faults.scene import Broker
from tests.proxy import Proxy

PATIENCE: Final = 8.0
SESSION: Final = 3.0  # seconds until Kafka misses a process; 10 by default

NO_SERVER: Final = (
    "The embedded queue has no server. It lives in the processes that use it, and those are killed "
    "in the rows above."
)
NO_NETWORK: Final = "The embedded queue is a file. There is no network between it and its users."


@dataclass(frozen=True)
class Place:
    """Where one cell has its queue, alone."""

    broker: Broker
    """How the matrix itself looks at it."""
    url: str
    """Where publishers and workers connect to."""
    proxy: Proxy | None = None
    """The network between them, where it is to fail."""


class Row(ABC):
    """A broker that nobody else uses. Its methods block: call them in a thread."""

    key: ClassVar[str]
    name: ClassVar[str]
    excuses: ClassVar[Mapping[str, str]] = {}
    """Faults that do not apply, by their keys, and why."""
    on_disk: ClassVar[bool] = True
    """Whether a small disk has to be made for it before it can run full."""

    def __init__(self, disk: Path | None = None) -> None:
        self.disk = disk  # where its data is, if that is to run full

    @abstractmethod
    def start(self) -> None:
        """See that it runs, on the data it has: neither down nor frozen."""

    @abstractmethod
    def close(self) -> None:
        """End it and leave nothing behind."""

    @abstractmethod
    def place(self, folder: Path, *, network: bool) -> AbstractContextManager[Place]:
        """A place for one cell."""

    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Of the broker, while it runs."""

    def kill(self) -> None:
        """End it as `kill -9` does."""
        raise NotImplementedError(NO_SERVER)

    def freeze(self) -> None:
        """Stop it in its tracks."""
        raise NotImplementedError(NO_SERVER)

    def thaw(self) -> None:
        """Let it go on."""
        raise NotImplementedError(NO_SERVER)

    def fill(self) -> None:
        """Leave no room on its disk."""
        fill(self._filler)

    def free(self) -> None:
        """Make room again, and start it if it has given up."""
        self._filler.unlink()
        self.start()

    def left_over(self, place: Place) -> list[str]:
        """What it still holds that QueueCraft does not tell of, in words."""
        del place
        return []

    @property
    def log(self) -> str:
        """What it has printed."""
        return ""

    @property
    def _filler(self) -> Path:
        assert self.disk is not None, "only a broker on a disk of its own may run full"
        return self.disk / "filler"


class Embedded(Row):
    key = "embedded"
    name = "Embedded, in a file"
    excuses: ClassVar[Mapping[str, str]] = {
        "broker-killed": NO_SERVER,
        "broker-frozen": NO_SERVER,
        "cut": NO_NETWORK,
        "black-hole": NO_NETWORK,
        "slow": NO_NETWORK,
    }

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    @contextmanager
    def place(self, folder: Path, *, network: bool) -> Generator[Place]:
        assert not network, NO_NETWORK
        home = (self.disk or folder) / "broker"
        home.mkdir()
        url = f"local://{home}/queue.db"
        yield Place(Broker(url), url)

    def versions(self) -> Mapping[str, str]:
        return {"SQLite": apsw.sqlitelibversion()}


class Process(Protocol):
    """The server of a broker, as the rows have it in common."""

    def start(self) -> object: ...
    def close(self) -> None: ...
    def kill(self) -> None: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...


S = TypeVar("S", bound=Process)


class _Served(Row, Generic[S]):
    """A broker with a server."""

    def __init__(self, server: S, disk: Path | None) -> None:
        super().__init__(disk)
        self._server = server

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._server.close()

    def kill(self) -> None:
        self._server.kill()

    def freeze(self) -> None:
        self._server.freeze()

    def thaw(self) -> None:
        self._server.thaw()

    @property
    def log(self) -> str:
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    @abstractmethod
    def _output(self) -> Path:
        """Where it prints to."""


class _RabbitMQ(_Served[RabbitMQ]):
    """A full disk is its alarm: RabbitMQ takes no more publishes while too little room is left."""

    on_disk = False
    arguments: ClassVar[Mapping[str, str]] = {}

    def __init__(self, disk: Path | None = None, server: RabbitMQ | None = None) -> None:
        super().__init__(server or RabbitMQ(), disk)
        self._borrowed = server is not None

    def close(self) -> None:
        if not self._borrowed:
            super().close()

    @contextmanager
    def place(self, folder: Path, *, network: bool) -> Generator[Place]:
        del folder
        with self._server.vhost() as url, ExitStack() as stack:
            proxy = stack.enter_context(Proxy.to(url)) if network else None
            broker = Broker(
                url,
                arguments=self.arguments,
                unsettled=Unsettled(self._server.management, url),
            )
            yield Place(broker, proxy.url(url) if proxy else url, proxy)

    def fill(self) -> None:
        self._server.ctl("set_disk_free_limit", str(1 << 60))

    def free(self) -> None:
        self._server.ctl("set_disk_free_limit", "1MB")

    def left_over(self, place: Place) -> list[str]:
        # Of all queues, levels of delay and what could not be delivered among them. Numbers of a
        # queue that has just been emptied are sometimes seconds old.
        deadline = time.monotonic() + PATIENCE
        while True:
            time.sleep(OLD)
            queues = self._server.management.queues(place.broker.url)
            left = [
                f"{each['messages']} in {each['name']}" for each in queues if each.get("messages")
            ]
            if not left or time.monotonic() > deadline:
                return left

    @property
    def _output(self) -> Path:
        return self._server._own.log

    def versions(self) -> Mapping[str, str]:
        told = self._server.management.call("GET", "overview")
        return {"RabbitMQ": told["rabbitmq_version"], "Erlang": told["erlang_version"]}


class RabbitMQClassic(_RabbitMQ):
    key = "rabbitmq-classic"
    name = "RabbitMQ, classic"


class RabbitMQQuorum(_RabbitMQ):
    key = "rabbitmq-quorum"
    name = "RabbitMQ, quorum"
    arguments: ClassVar[Mapping[str, str]] = {"x-queue-type": "quorum"}


class _Redis(_Served[RedisServer]):
    """Its log is on the disk before it answers (`appendfsync always`)."""

    mode: ClassVar[str]

    def __init__(self, disk: Path | None = None) -> None:
        super().__init__(RedisServer({"dir": str(disk)} if disk else None), disk)

    @contextmanager
    def place(self, folder: Path, *, network: bool) -> Generator[Place]:
        del folder
        url = f"{self._server.url}?prefix=cell-{secrets.token_hex(4)}&mode={self.mode}"
        with ExitStack() as stack:
            proxy = stack.enter_context(Proxy.to(url)) if network else None
            yield Place(Broker(url), proxy.url(url) if proxy else url, proxy)

    @property
    def _output(self) -> Path:
        return self._server.log

    def versions(self) -> Mapping[str, str]:
        told: bytes = self._server.call("INFO", "server")
        lines = dict(line.split(":", 1) for line in told.decode().splitlines() if ":" in line)
        return {"Redis": lines["redis_version"]}


class RedisList(_Redis):
    key = "redis-list"
    name = "Redis, list"
    mode = "list"


class RedisStream(_Redis):
    key = "redis-stream"
    name = "Redis, stream"
    mode = "stream"


class Kafka(_Served[Kraft]):
    """It sends clients of one listener to the proxy, and those of another to itself."""

    key = "kafka"
    name = "Kafka"

    def __init__(self, disk: Path | None = None) -> None:
        super().__init__(Kraft({"log.dirs": f"{disk}/data"} if disk else None), disk)
        self._proxy: Proxy | None = None

    def start(self) -> None:
        if self._proxy is None and self.disk is not None:
            shutil.copytree(Distribution.get().data, self.disk / "data", dirs_exist_ok=True)
        super().start()
        if self._proxy is None:
            self._proxy = Proxy.to(self._server.url).__enter__()
            self._server.advertise(self._proxy.port)

    def close(self) -> None:
        if self._proxy is not None:
            self._proxy.__exit__()
        super().close()

    @contextmanager
    def place(self, folder: Path, *, network: bool) -> Generator[Place]:
        del folder
        assert self._proxy is not None, "a broker is started before it is used"
        prefix = f"cell-{secrets.token_hex(4)}."
        server = f"kafka://127.0.0.1:{self._server.port('internal')}"
        url = f"{server}?prefix={prefix}&session_timeout={SESSION:g}"
        try:
            if network:
                yield Place(Broker(url), self._proxy.url(url), self._proxy)
            else:
                yield Place(Broker(url), url)
        finally:
            self._proxy.restore()
            if self._server.running and not self._server.frozen:
                with suppress(KafkaException):  # it goes with the broker
                    _forget(server, prefix)

    @property
    def _output(self) -> Path:
        return self._server.log

    def versions(self) -> Mapping[str, str]:
        return {"Kafka": VERSION}


ROWS: Final[Mapping[str, type[Row]]] = {
    row.key: row
    for row in (Embedded, RabbitMQClassic, RabbitMQQuorum, RedisList, RedisStream, Kafka)
}
