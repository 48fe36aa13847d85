"""RabbitMQ's management interface: what AMQP has no words for."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from json import dumps
from socket import SHUT_RDWR
from typing import Any, Final, Literal, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from queuecraft.model.credentials import Credentials
from queuecraft.model.errors import QueueError

TIMEOUT: Final = 3.0  # seconds for one question, all in all
LARGEST: Final = 64 * 1024 * 1024  # bytes of an answer
REFUSED: Final = 401
MISSING: Final = 404

T = TypeVar("T")


class Unanswered(QueueError):
    """The interface did not answer, or said no."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message, broker="rabbitmq", operation="management")
        self.status = status


class QueueState(msgspec.Struct, frozen=True, gc=False):
    """A queue; its numbers are up to five seconds old, and missing if it is younger than that."""

    name: str
    messages_ready: int | None = None
    messages_unacknowledged: int | None = None
    consumers: int | None = None
    auto_delete: bool | None = None
    arguments: Any = None
    effective_policy_definition: Any = None
    message_stats: Any = None

    @property
    def rates(self) -> dict[str, float] | None:
        """Messages a second that come in and go out; None if it has seen none yet."""
        stats = _table(self.message_stats)
        told = {"in": stats.get("publish_details"), "out": stats.get("deliver_get_details")}
        rates = {way: _table(each).get("rate") for way, each in told.items()}
        return {
            way: float(each) for way, each in rates.items() if isinstance(each, (int, float))
        } or None

    @property
    def dead_letters(self) -> tuple[str, str | None] | None:
        """The exchange its dead letters go to, and the routing key if it gives them one."""
        arguments, policy = _table(self.arguments), _table(self.effective_policy_definition)
        exchange = arguments.get("x-dead-letter-exchange", policy.get("dead-letter-exchange"))
        key = arguments.get("x-dead-letter-routing-key", policy.get("dead-letter-routing-key"))
        if not isinstance(exchange, str):
            return None
        return exchange, key if isinstance(key, str) else None


class ExchangeState(msgspec.Struct, frozen=True):
    """An exchange; its type may be one that a plugin brings."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Any = None


class BindingState(msgspec.Struct, frozen=True, gc=False):
    """A binding, to a queue or to another exchange."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str = ""
    arguments: Any = None


class _Name(msgspec.Struct, frozen=True):
    name: str


class ConsumerState(msgspec.Struct, frozen=True):
    """Somebody who receives from a queue."""

    queue: _Name
    consumer_tag: str
    prefetch_count: int | None = None


class Management:
    """The interface at one address, for one virtual host.

    Redirects are not followed and no proxy is used: the password goes where the URL says, and
    nowhere else.
    """

    def __init__(
        self,
        url: str,
        *,
        virtual_host: str,
        credentials: Credentials,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = url
        parts = urlsplit(url)
        self._encrypted = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (15671 if self._encrypted else 15672)
        self._root = f"{parts.path.rstrip('/')}/api/"
        self._virtual_host = quote(virtual_host, safe="")
        self._user = credentials.username or ""
        secret = f"{self._user}:{credentials.password}".encode()
        self._authorization = f"Basic {b64encode(secret).decode('ascii')}"
        self._context = context

    # -- what it tells -------------------------------------------------------------------------

    async def queues(self) -> list[QueueState]:
        """Every queue of the virtual host."""
        return await self._get(f"queues/{self._virtual_host}?{_QUEUE}", list[QueueState])

    async def queue_targets(self) -> list[QueueState]:
        """The name of every queue and where its dead letters go, without its counts: they are what
        costs."""
        columns = "name,arguments,effective_policy_definition"
        return await self._get(f"queues/{self._virtual_host}?columns={columns}", list[QueueState])

    async def queue(self, name: str) -> QueueState | None:
        """One of them; None if there is none of that name."""
        path = f"queues/{self._virtual_host}/{quote(name, safe='')}?{_QUEUE}"
        return await self._find(path, QueueState)

    async def exchanges(self) -> list[ExchangeState]:
        """Every exchange of the virtual host."""
        return await self._get(f"exchanges/{self._virtual_host}?{_EXCHANGE}", list[ExchangeState])

    async def exchange(self, name: str) -> ExchangeState | None:
        """One of them; None if there is none of that name."""
        path = f"exchanges/{self._virtual_host}/{quote(name, safe='')}?columns=name,type"
        return await self._find(path, ExchangeState)

    async def bindings(self, exchange: str | None = None) -> list[BindingState]:
        """Every binding of the virtual host, or of one exchange in it."""
        path = f"bindings/{self._virtual_host}"
        if exchange is not None:
            name = quote(exchange, safe="")
            path = f"exchanges/{self._virtual_host}/{name}/bindings/source"
        return await self._get(f"{path}?{_BINDING}", list[BindingState])

    async def consumers(self) -> list[ConsumerState]:
        """Every consumer in the virtual host."""
        path = f"consumers/{self._virtual_host}?columns=queue.name,consumer_tag,prefetch_count"
        return await self._get(path, list[ConsumerState])

    async def virtual_hosts(self) -> list[str]:
        """The names of the virtual hosts this user may see."""
        return [each.name for each in await self._get("vhosts?columns=name", list[_Name])]

    # -- what it does --------------------------------------------------------------------------

    async def make_virtual_host(self, name: str) -> None:
        """Make a virtual host in which this user may do everything; one that exists stays as it
        is, but for that."""
        if not name:
            raise QueueError("a virtual host needs a name; it is empty", broker="rabbitmq")
        host, user = quote(name, safe=""), quote(self._user, safe="")
        await self._ask("PUT", f"vhosts/{host}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        await self._ask("PUT", f"permissions/{host}/{user}", everything)

    # -- inside --------------------------------------------------------------------------------

    async def _find(self, path: str, kind: type[T]) -> T | None:
        try:
            return await self._get(path, kind)
        except Unanswered as error:
            if error.status != MISSING:
                raise
            return None

    async def _get(self, path: str, kind: type[T]) -> T:
        answer = await self._ask("GET", path)
        try:
            return msgspec.json.decode(answer, type=kind)
        except (msgspec.DecodeError, ValueError) as error:
            raise self._unanswered(f"it is no RabbitMQ, or one that is unknown ({error})") from None

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        connection = self._connection()
        try:
            async with asyncio.timeout(TIMEOUT):
                return await asyncio.to_thread(self._exchange, connection, method, path, body)
        except TimeoutError:
            raise self._unanswered(f"no answer within {TIMEOUT:g} s") from None
        finally:
            if (socket := connection.sock) is not None:
                with suppress(OSError):
                    socket.shutdown(SHUT_RDWR)  # so that the thread ends as well

    def _connection(self) -> HTTPConnection:
        if self._encrypted:
            return HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=self._context)
        return HTTPConnection(self._host, self._port, timeout=TIMEOUT)

    def _exchange(
        self, connection: HTTPConnection, method: str, path: str, body: Mapping[str, Any] | None
    ) -> bytes:
        """Ask and read the answer; in a thread of its own."""
        headers = {"Authorization": self._authorization, "Content-Type": "application/json"}
        told = None if body is None else dumps(body)
        try:
            connection.request(method, self._root + path, told, headers)
            answer = connection.getresponse()
            status, text = answer.status, answer.read(LARGEST + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise self._unanswered(f"{str(error) or repr(error)}") from None
        finally:
            connection.close()
        if len(text) > LARGEST:
            raise self._unanswered(f"it answered with more than {LARGEST} bytes")
        if 200 <= status < 300:
            return text
        if status == REFUSED:
            reason = f"user {self._user!r} may not use it; give the user the tag 'management'"
        else:
            reason = f"it answered {status} to {method} /api/{path.partition('?')[0]}"
        raise self._unanswered(reason, status)

    def _unanswered(self, reason: str, status: int | None = None) -> Unanswered:
        return Unanswered(f"the management interface at {self.url}: {reason}", status)


_QUEUE: Final = "columns=" + ",".join(
    (
        *("name", "messages_ready", "messages_unacknowledged", "consumers"),
        *("auto_delete", "arguments", "effective_policy_definition"),
        *("message_stats.publish_details.rate", "message_stats.deliver_get_details.rate"),
    )
)
_EXCHANGE: Final = "columns=name,type,durable,auto_delete,internal,arguments"
_BINDING: Final = "columns=source,destination,destination_type,routing_key,arguments"


def _table(value: Any) -> Mapping[str, Any]:
    """A table of Erlang's that is empty may come as a list."""
    return value if isinstance(value, dict) else {}
