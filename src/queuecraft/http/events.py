"""`GET /events`: what happens, while it happens, as server-sent events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request

from queuecraft.http.access import Access, Role
from queuecraft.http.feed import EventStream, Feed
from queuecraft.http.refusal import Refusal, refusals
from queuecraft.http.story import kinds


class EventPages:
    """What happens, as a page that goes on."""

    def __init__(self, router: APIRouter, access: Access, feed: Feed) -> None:
        self._access = access
        self._feed = feed
        router.add_api_route(
            "/events",
            self.listen,
            methods=["GET"],
            operation_id="get_events",
            tags=["events"],
            summary="What happens, live",
            status_code=200,
            dependencies=[Depends(access.reader)],
            response_class=EventStream,
            response_description="An event for each fact: its kind, names and counts. No payloads.",
            responses=refusals(401, 422, 503),
            openapi_extra={"security": [{"read": []}]},
        )

    async def listen(
        self,
        request: Request,
        kind: Annotated[
            list[str] | SkipJsonSchema[None],
            Query(
                description="Only facts of this kind; may be given several times.",
                json_schema_extra={"items": {"type": "string", "enum": kinds()}},
            ),
        ] = None,
    ) -> EventStream:
        """A stream of facts until the client hangs up or its session ends; after an hour it has to
        come again. One that reads too slowly loses some, and is told how many with an event
        `dropped`. A comment every 15 seconds shows that it lives."""
        wanted = frozenset(kind or ())
        unknown = sorted(wanted.difference(kinds()))
        if unknown:
            raise Refusal(
                422,
                "InvalidRequest",
                f"there is no kind of fact called {unknown[0][:100]!r}",
                f"choose from {', '.join(kinds())}",
            )

        def may() -> bool:
            return self._access.role(request) >= Role.READER

        return EventStream(lambda: self._feed.listening(wanted, may))
