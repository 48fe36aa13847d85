"""Saying no: every error of the HTTP service in one shape, with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from queuecraft.admin import UnknownQueue
from queuecraft.model.errors import (
    CircuitOpen,
    ConfigError,
    ConnectionLost,
    PayloadError,
    PublishError,
    QueueError,
    QueueFull,
    TopologyMismatch,
    UnsupportedFeature,
)

RETRY_AFTER = 5  # seconds; what is full or away may be back by then


class Problem(BaseModel):
    """What went wrong, to what, and what to do."""

    type: str = Field(examples=["QueueFull"])
    message: str
    hint: str


class Refused(BaseModel):
    """Every error looks like this."""

    error: Problem


class Json(JSONResponse):
    """JSON in printable ASCII alone: shown by `curl`, nothing in it can steer a terminal."""

    def render(self, content: Any) -> bytes:
        """The body of the answer."""
        text = json.dumps(content, allow_nan=False, separators=(",", ":"))
        return text.replace("\x7f", "\\u007f").encode()


class Refusal(Exception):
    """A request that is answered with an error.

    >>> Refusal(404, "NotFound", "there is no such page").answer().body
    b'{"error":{"type":"NotFound","message":"there is no such page","hint":""}}'
    """

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.problem = Problem(type=type, message=message, hint=hint)
        self.headers = headers

    @classmethod
    def of(cls, error: QueueError) -> Refusal:
        """What an error of QueueCraft is over HTTP: the caller's mistake, or a service that cannot
        do it now.

        >>> Refusal.of(QueueFull("10000 messages wait already")).status
        503
        """
        later = {"Retry-After": str(RETRY_AFTER)}
        name = type(error).__name__
        match error:
            case QueueFull():
                hint = "nothing was added; try again later, or raise the limit"
                return cls(503, name, error.message, hint, later)
            case ConnectionLost() | CircuitOpen():
                return cls(503, name, error.message, "try again when it is back", later)
            case PublishError(outcome="unknown"):
                hint = f'it may be stored: repeat it with "message_id": "{error.message_id}"'
                return cls(503, name, error.message, hint, later)
            case ConfigError(operation="delayed"):
                hint = "the service has to be given a store for them, and started again"
                return cls(501, "NotConfigured", error.message, hint)
            case UnknownQueue():
                return cls(404, name, error.message, "GET /api/queues lists those there are")
            case TopologyMismatch():
                return cls(409, name, error.message, "nothing was changed")
            case ConfigError() | PayloadError() | UnsupportedFeature():
                return cls(422, name, error.message, "change the request; nothing was done")
            case _:
                return cls(503, name, error.message, "see the log of the service", later)

    def answer(self) -> Json:
        """The answer."""
        return Json(Refused(error=self.problem).model_dump(), self.status, headers=self.headers)


FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""What a browser says of a request that a page of another origin makes."""


def foreign() -> Refusal:
    """The answer to a page of another origin."""
    return Refusal(
        403,
        "ForeignOrigin",
        "a page of another origin may change nothing here",
        "call from a program, or from a page of this service",
    )


_MEANINGS = {
    400: "The request cannot be read, or names a host that is not served.",
    401: "No token, or not a right one.",
    403: "The token does not allow this, or a page of another origin asks.",
    404: "There is no such thing.",
    408: "The body did not come in time.",
    409: "Something else is there, or under way, that does not go with it.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    422: "The request does not make sense.",
    429: "Too many wrong tokens; the header Retry-After says when to try again.",
    500: "A mistake of ours; the log of the service tells more.",
    501: "Delayed messages need a store, and the service was given none.",
    503: "Not now: full, or not connected.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These errors, for the OpenAPI document."""
    # Not as a model: FastAPI would say that the error has the media type of the page.
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Refused"}}}
    return {
        status: {
            "description": _MEANINGS.get(status, HTTPStatus(status).phrase),
            "content": content,
        }
        for status in statuses
    }


def refused_schemas() -> dict[str, Any]:
    """What `refusals` refers to."""
    schema = Refused.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**schema.pop("$defs"), "Refused": schema}
