"""`GET /` and `GET /assets/{name}`: the dashboard's own files, which hold no data."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from queuecraft.http.refusal import Refusal, refusals

CSP: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

_MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the dashboard.

    >>> Asset.of("favicon.svg", b"<svg/>").tag
    '"d4dc56669143034f"'
    """

    body: bytes
    media_type: str
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> Asset:
        """The tag changes with the content, so that a browser never runs half of two versions."""
        digest = hashlib.sha256(body).hexdigest()[:16]
        return cls(body, _MEDIA_TYPES[name.rpartition(".")[2]], f'"{digest}"')


class DashboardPages:
    """The dashboard, as pages. Anybody may load them: they ask for everything else."""

    def __init__(self, router: APIRouter) -> None:
        router.add_api_route(
            "/",
            self.index,
            methods=["GET"],
            operation_id="get_dashboard",
            tags=["dashboard"],
            summary="The dashboard",
            response_class=Response,
        )
        router.add_api_route(
            "/assets/{name}",
            self.asset,
            methods=["GET"],
            operation_id="get_asset",
            tags=["dashboard"],
            summary="A file of the dashboard",
            response_class=Response,
            responses=refusals(404),
        )

    async def index(self, request: Request) -> Response:
        """The page itself."""
        return _answer(request, self.assets["index.html"])

    async def asset(self, request: Request, name: str) -> Response:
        """A style, a script or a drawing."""
        found = self.assets.get(name)
        if found is None or name == "index.html":
            raise Refusal(404, "NotFound", "the dashboard has no such file", "GET / shows it")
        return _answer(request, found)

    @cached_property
    def assets(self) -> dict[str, Asset]:
        """All of them, by name: what is not in this table cannot be asked for."""
        folder = files("queuecraft.http.dashboard").joinpath("assets")
        return {
            file.name: Asset.of(file.name, file.read_bytes())
            for file in folder.iterdir()
            if file.name.rpartition(".")[2] in _MEDIA_TYPES
        }


def _answer(request: Request, asset: Asset) -> Response:
    headers = {"Cache-Control": "no-cache", "ETag": asset.tag, "Content-Security-Policy": CSP}
    known = request.headers.get("if-none-match", "")
    if asset.tag in [each.strip().removeprefix("W/") for each in known.split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
