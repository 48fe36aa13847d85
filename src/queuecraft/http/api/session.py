"""`/session`: a token traded for a cookie, so that a page never has to keep it."""

from __future__ import annotations

import logging
import math
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from queuecraft.http.access import Access, Role, Who, address_of, cookies_of
from queuecraft.http.api.routes import Given, Told
from queuecraft.http.audit import Audit
from queuecraft.http.refusal import Json, Refusal, refusals
from queuecraft.http.session import COOKIE, LIFETIME, Throttle
from queuecraft.observers.log import printable

log = logging.getLogger("queuecraft.http")

LONGEST = 60  # characters of a name


class SignIn(Given):
    """A token, and who it is: a name for the audit log, which nobody checks."""

    token: Annotated[str, Field(max_length=1000)]
    name: Annotated[str, Field(max_length=LONGEST)] | None = None


class SessionReport(Told):
    """What somebody may do; `role` is null for whoever has not signed in."""

    role: Literal["operator", "reader"] | None
    name: str | None = None
    expires_at: datetime | None = None
    needs_token: bool
    """False where everybody at this machine is an operator."""


class SessionPages:
    """Signing in and out, as pages."""

    def __init__(self, router: APIRouter, access: Access, audit: Audit) -> None:
        self._access = access
        self._audit = audit
        self._throttle = Throttle()
        path = "/session"
        security: dict[str, Any] = {"security": [{}, {"session": []}]}
        router.add_api_route(
            path,
            self.show,
            methods=["GET"],
            operation_id="get_session",
            tags=["session"],
            summary="Who is asking",
            response_model=SessionReport,
            responses=refusals(401),
            openapi_extra=security,
        )
        router.add_api_route(
            path,
            self.begin,
            methods=["POST"],
            operation_id="sign_in",
            tags=["session"],
            summary="Sign in",
            response_model=SessionReport,
            responses=refusals(401, 403, 422, 429),
            openapi_extra=security,
        )
        router.add_api_route(
            path,
            self.end,
            methods=["DELETE"],
            operation_id="sign_out",
            tags=["session"],
            summary="Sign out",
            status_code=204,
            response_class=Response,
            responses=refusals(401, 403),
            openapi_extra=security,
        )

    async def show(self, request: Request) -> SessionReport:
        """Anybody may ask, and is told nothing else."""
        who = self._access.who(request)
        return _report(who, self._access.needs_token(request))

    async def begin(self, request: Request, given: SignIn) -> Json:
        """200 and a cookie; 401 for a wrong token; 429 after too many wrong ones, for a minute, and
        then for a right one too. Where no token is set, whoever is at this machine signs in with
        an empty one."""
        address = address_of(request)
        wait = self._throttle.wait(address)
        if wait > 0:
            log.warning("refused to sign in %s: too many wrong tokens", address)
            raise Refusal(
                429,
                "TooManyAttempts",
                "too many wrong tokens; none is tried for now",
                "wait as long as the header Retry-After says",
                {"Retry-After": str(math.ceil(wait))},
            )
        name = printable((given.name or "").strip())[:LONGEST]
        role = self._access.opened_by(given.token, request)
        if role is None:
            self._throttle.wrong(address)
            await self._audit.note(Who(Role.ANYBODY, address, name=name), "sign in", "", "refused")
            raise Refusal(
                401,
                "Unauthorized",
                "this is no token of this service",
                "it is QUEUECRAFT_TOKEN or QUEUECRAFT_READ_TOKEN, as the service was given them",
                {"WWW-Authenticate": 'Bearer realm="queuecraft"'},
            )
        self._forget(request)  # nobody goes on under a cookie from before
        cookie, session = self._access.sessions.begin(role, name)
        who = Who(role, address, "cookie", name, session.expires_at)
        await self._audit.note(who, "sign in", "", "done")
        report = _report(who, self._access.needs_token(request))
        answer = Json(report.model_dump(mode="json"))
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=int(LIFETIME),
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def end(self, request: Request) -> Response:
        """The cookie opens nothing from now on, wherever it may have been copied to."""
        for cookie in cookies_of(request):
            session = self._access.sessions.find(cookie)
            if session is not None:
                who = Who(session.role, address_of(request), "cookie", session.name)
                await self._audit.note(who, "sign out", "", "done")
        self._forget(request)
        answer = Response(status_code=204)
        answer.delete_cookie(
            COOKIE,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    def _forget(self, request: Request) -> None:
        for cookie in cookies_of(request):
            self._access.sessions.end(cookie)


def _report(who: Who, needs_token: bool) -> SessionReport:
    role: Literal["operator", "reader"] | None = None
    if who.role is not Role.ANYBODY:
        role = "operator" if who.role is Role.OPERATOR else "reader"
    ends = None if who.expires_at is None else datetime.fromtimestamp(who.expires_at, UTC)
    name = None if role is None else who.name
    return SessionReport(role=role, name=name, expires_at=ends, needs_token=needs_token)
