"""RabbitMQ's management interface: what it says of itself, and what an operator does to it."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

PATIENCE = 20.0
DELETION = 300.0  # thousands of queues go one by one

T = TypeVar("T")


class ManagementError(Exception):
    """The interface refused; the message has its reason."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Management:
    """The interface at one address. Virtual hosts are named by any URL into them.

    Numbers of messages and rates are a fraction of a second old; `until_queue` waits for them.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
        self._root = f"{parts.scheme}://{parts.hostname}{port}"
        self._user = unquote(parts.username or "guest")
        password = unquote(parts.password or "guest")
        self._secret = base64.b64encode(f"{self._user}:{password}".encode()).decode("ascii")
        # Not through a proxy the environment may name: it is on this machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        patience: float = PATIENCE,
    ) -> Any:
        """One request; the decoded answer, None if it is empty."""
        request = urllib.request.Request(
            f"{self._root}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Basic {self._secret}",
                "Content-Type": "application/json",
            },
        )
        try:
            with self._opener.open(request, timeout=patience) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                reason = error.read().decode("utf-8", "replace")
            raise ManagementError(
                f"{method} {path}: {error.code} {reason}", status=error.code
            ) from None
        return json.loads(text) if text else None

    def create_vhost(self, url: str) -> None:
        """Make a virtual host in which the user may do everything."""
        name = vhost_of(url)
        self.call("PUT", f"vhosts/{quoted(name)}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        self.call("PUT", f"permissions/{quoted(name)}/{quoted(self._user)}", everything)

    def delete_vhost(self, url: str) -> None:
        """Remove a virtual host, its queues and connections with it."""
        name = vhost_of(url)
        deadline = time.monotonic() + DELETION
        try:
            self.call("DELETE", f"vhosts/{quoted(name)}", patience=DELETION)
        except http.client.RemoteDisconnected:  # after a minute; the broker goes on with it
            while name in self.vhosts():
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)

    def vhosts(self) -> list[str]:
        """The names of all virtual hosts."""
        return [vhost["name"] for vhost in self.call("GET", "vhosts")]

    def exchanges(self, url: str) -> list[dict[str, Any]]:
        """The exchanges of a virtual host, but for those every one has."""
        found = self.call("GET", f"exchanges/{quoted(vhost_of(url))}")
        return [one for one in found if one["name"] and not one["name"].startswith("amq.")]

    def queues(self, url: str) -> list[dict[str, Any]]:
        """The queues of a virtual host."""
        return list(self.call("GET", f"queues/{quoted(vhost_of(url))}"))

    def queue(self, url: str, name: str) -> dict[str, Any]:
        """One queue, in detail."""
        return dict(self.call("GET", f"queues/{quoted(vhost_of(url))}/{quoted(name)}"))

    def bindings(self, url: str) -> list[dict[str, Any]]:
        """The bindings of a virtual host, but for those to the default exchange."""
        found = self.call("GET", f"bindings/{quoted(vhost_of(url))}")
        return [binding for binding in found if binding["source"]]

    def connections(self, url: str) -> list[dict[str, Any]]:
        """The connections into a virtual host."""
        return list(self.call("GET", f"vhosts/{quoted(vhost_of(url))}/connections"))

    def close_connections(self, url: str, *, at_least: int = 1) -> int:
        """Have the broker close all connections into a virtual host; how many there were.

        The interface learns of a connection some time after it was opened: this waits until it
        knows of as many as there should be.
        """
        self._until(lambda: len(self.connections(url)), lambda known: known >= at_least)
        closed = 0
        for connection in self.connections(url):
            try:
                self.call("DELETE", f"connections/{quoted(connection['name'])}")
                closed += 1
            except ManagementError as error:
                if error.status != 404:  # it has closed itself meanwhile
                    raise
        return closed

    def until_queue(self, url: str, name: str, **expected: object) -> dict[str, Any]:
        """The queue, as soon as these fields of it are as expected: `messages_ready=3`."""
        return self._until(
            lambda: self.queue(url, name),
            lambda queue: expected.items() <= queue.items(),
        )

    def _until(self, ask: Callable[[], T], enough: Callable[[T], bool]) -> T:
        deadline = time.monotonic() + PATIENCE
        while not enough(answer := ask()):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {PATIENCE} seconds the broker still says: {answer}")
            time.sleep(0.05)
        return answer


def vhost_of(url: str) -> str:
    """The virtual host a URL leads to.

    >>> vhost_of("amqp://localhost/shop%2Feu"), vhost_of("amqp://localhost")
    ('shop/eu', '/')
    """
    return unquote(urlsplit(url).path[1:]) or "/"


def quoted(name: str) -> str:
    """A name as one part of a path.

    >>> quoted("/")
    '%2F'
    """
    return quote(name, safe="")
