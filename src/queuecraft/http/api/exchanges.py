"""`/api/exchanges`: where events are published to, and which queues get them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from queuecraft.http.api.desk import Desk
from queuecraft.http.api.routes import Routes, Told, in_time


class ExchangeBinding(Told):
    """A queue, and what it wants."""

    queue: str
    pattern: str
    headers: dict[str, Any]


class ExchangeLine(Told):
    """An exchange and all that is bound to it."""

    name: str
    type: str
    bindings: list[ExchangeBinding]


class ExchangePages:
    """Exchanges, as a page."""

    def __init__(self, router: APIRouter, desk: Desk) -> None:
        self._desk = desk
        routes = Routes(router, desk.access, "exchanges")
        routes.see(
            "/api/exchanges",
            self.list,
            "list_exchanges",
            "Exchanges and their bindings",
            model=list[ExchangeLine],
        )

    async def list(self) -> list[ExchangeLine]:
        """As far as the broker tells."""
        async with in_time():
            topology = await self._desk.topology()
        bound: dict[str, list[ExchangeBinding]] = {}
        types = {each.name: each.type for each in topology.exchanges}
        for binding, queue in topology.bindings:
            types.setdefault(binding.exchange.name, binding.exchange.type)
            headers = self._desk.masks.headers(binding.headers, whole=True)
            bound.setdefault(binding.exchange.name, []).append(
                ExchangeBinding(queue=queue, pattern=binding.pattern, headers=headers)
            )
        return [
            ExchangeLine(name=name, type=type, bindings=bound.get(name, []))
            for name, type in sorted(types.items())
        ]
