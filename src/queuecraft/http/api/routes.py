"""How a page of the API is put up: who may see it, and what the document says of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from queuecraft.http.access import Access
from queuecraft.http.refusal import Refusal, refusals

PATIENCE = 10.0  # seconds for the broker to answer

Name: TypeAlias = Annotated[str, Path(min_length=1, max_length=255)]
"""A queue in a path; a slash in it is written as %2F."""

Id: TypeAlias = Annotated[str, Path(min_length=1, max_length=1000)]


class Given(BaseModel):
    """A body that somebody sends: nothing in it is guessed at, or ignored."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Told(BaseModel):
    """A part of an answer, made of a value of ours."""

    model_config = ConfigDict(from_attributes=True)


class Routes:
    """Puts up pages that all have the same rules."""

    def __init__(self, router: APIRouter, access: Access, tag: str) -> None:
        self._router = router
        self._access = access
        self._tag = tag

    def see(
        self,
        path: str,
        endpoint: Callable[..., Any],
        name: str,
        summary: str,
        *refused: int,
        model: Any = None,
        **more: Any,
    ) -> None:
        """A page for readers."""
        self._router.add_api_route(
            path,
            endpoint,
            methods=["GET"],
            operation_id=name,
            tags=[self._tag],
            summary=summary,
            dependencies=[Depends(self._access.reader)],
            response_model=model,
            responses=refusals(401, 422, 503, *refused),
            openapi_extra={"security": [{"read": []}]},
            **more,
        )

    def act(
        self,
        method: str,
        path: str,
        endpoint: Callable[..., Any],
        name: str,
        summary: str,
        *refused: int,
        status: int = 204,
        model: Any = None,
    ) -> None:
        """A page for operators, that changes something."""
        empty: dict[str, Any] = {"response_class": Response} if status == 204 else {}
        self._router.add_api_route(
            path,
            endpoint,
            methods=[method],
            operation_id=name,
            tags=[self._tag],
            summary=summary,
            status_code=status,
            dependencies=[Depends(self._access.operator)],
            response_model=model,
            responses=refusals(401, 403, 422, 503, *refused),
            openapi_extra={"security": [{"operator": []}]},
            **empty,
        )


def in_time() -> asyncio.Timeout:
    """A block in which the broker must answer."""
    return asyncio.timeout(PATIENCE)


def confirmed(given: str, name: str) -> None:
    """Refuse what is for good, unless its name was repeated."""
    if given != name:
        raise Refusal(
            422,
            "NotConfirmed",
            f"this is for good, and `confirm` does not repeat the name {name!r}",
            "send the name of the queue as `confirm`; nothing was done",
        )


def nothing() -> Response:
    """The answer of what has been done."""
    return Response(status_code=204)
