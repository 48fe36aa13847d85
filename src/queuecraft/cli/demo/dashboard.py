"""The dashboard of the demo: the HTTP service on the shop's broker, beside the shop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from queuecraft.app import QueueCraft
from queuecraft.cli.serve import PORT, Place
from queuecraft.http import LOCAL, MAX_BODY, missing
from queuecraft.http.secrets import Secrets
from queuecraft.model.errors import ConfigError

HOST = "127.0.0.1"
PATIENCE = 2.0  # seconds for requests that run when it ends


@asynccontextmanager
async def dashboard(url: str, log: logging.Logger) -> AsyncGenerator[str]:
    """Serve it while the block runs, on its usual port or on a free one; gives its address. Where
    it cannot be served, the words say why."""
    try:
        from queuecraft.http.server import Server
        from queuecraft.http.service import Service
    except ModuleNotFoundError as error:
        yield f"not served: {missing(error).message}"
        return
    secrets = Secrets.found()
    # A QueueCraft of its own, as `queuecraft serve` would have: it sees what any other would see.
    qc = QueueCraft(url, logger=log)
    service = Service(
        qc, secrets, hosts=LOCAL, max_body=MAX_BODY, trusted=not secrets.opens_anything
    )
    server = Server(service, patience=PATIENCE)
    with _somewhere() as listening:
        serving = asyncio.ensure_future(server.serve_on(listening))
        try:
            yield f"http://{HOST}:{listening.getsockname()[1]}"
        finally:
            server.stop()
            await serving


def _somewhere() -> socket.socket:
    try:
        return Place.found(HOST, PORT).listening()
    except ConfigError:  # in use
        return Place.found(HOST, 0).listening()
