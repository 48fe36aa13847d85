"""Signing in and out: what a cookie opens, how long, and who is kept from guessing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from queuecraft.http import session
from queuecraft.http.secrets import Secrets
from queuecraft.http.session import COOKIE, Role, Sessions, Throttle
from tests.http.site import OPERATOR, PAGE, READER, bearer, problem, serving, signed_in


class Hand:
    """A clock that is turned by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


# -- what is kept --------------------------------------------------------------------------------


def test_a_session_ends_after_twelve_hours() -> None:
    clock = Hand()
    sessions = Sessions(clock)
    cookie, _ = sessions.begin(Role.OPERATOR, "ada")
    clock.at += 12 * 3600 - 1
    assert sessions.find(cookie) is not None
    clock.at += 1
    assert sessions.find(cookie) is None


def test_only_a_thousand_are_kept_and_readers_push_out_no_operator() -> None:
    clock = Hand()
    sessions = Sessions(clock)
    operator, _ = sessions.begin(Role.OPERATOR, "ada")
    first, _ = sessions.begin(Role.READER, "eve")
    for _ in range(1500):
        clock.at += 1
        sessions.begin(Role.READER, "eve")
    assert len(sessions) == session.MOST
    assert sessions.find(operator) is not None
    assert sessions.find(first) is None


def test_no_cookie_is_kept_as_it_is() -> None:
    sessions = Sessions()
    cookie, _ = sessions.begin(Role.READER, "")
    assert len(cookie) >= 43
    assert cookie not in repr(sessions._sessions)


def test_five_wrong_ones_from_an_address_or_fifty_in_all_are_enough_for_a_minute() -> None:
    clock = Hand()
    throttle = Throttle(clock)
    for _ in range(5):
        assert throttle.wait("10.0.0.1") == 0
        throttle.wrong("10.0.0.1")
        clock.at += 1
    assert throttle.wait("10.0.0.1") == 55
    assert throttle.wait("10.0.0.2") == 0
    for n in range(45):
        throttle.wrong(f"10.0.1.{n}")
    assert throttle.wait("10.0.0.2") == 55
    clock.at += 55
    assert throttle.wait("10.0.0.1") == throttle.wait("10.0.0.2") == 0


def test_a_household_of_the_sixth_version_is_one_address() -> None:
    throttle = Throttle()
    for n in range(5):
        throttle.wrong(f"2001:db8::{n}")
    assert throttle.wait("2001:db8::ffff") > 0
    assert throttle.wait("2001:db8:1::1") == 0
    assert throttle.wait("no address") == 0


# -- over HTTP -----------------------------------------------------------------------------------


async def test_a_token_is_traded_for_a_cookie_that_scripts_and_other_sites_cannot_have() -> None:
    async with serving() as site:
        answer = await site.anybody.post("/session", json={"token": OPERATOR, "name": "ada"})
        told = answer.json()
        assert (told["role"], told["name"]) == ("operator", "ada")
        parts = answer.headers["set-cookie"].lower().split("; ")
        assert parts[0].startswith(f"{COOKIE}=")
        assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= set(parts)
        assert "secure" not in parts
        assert OPERATOR not in answer.headers["set-cookie"]
        assert (await site.anybody.get("/session")).json() == told
        assert (await site.anybody.get("/metrics")).status_code == 200
        answer = await site.anybody.get("/health")
        assert "connection" in answer.json()

        headers = {"X-Forwarded-Proto": "https"}  # a proxy on this machine says how it was asked
        answer = await site.anybody.post("/session", json={"token": READER}, headers=headers)
        assert "; secure" in answer.headers["set-cookie"].lower()


async def test_signed_out_the_cookie_opens_nothing_wherever_it_was_copied_to() -> None:
    async with serving() as site, signed_in(site) as browser:
        stolen = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert (await site.anybody.get("/api/jobs", headers=stolen)).status_code == 200
        answer = await browser.delete("/session", headers=PAGE)
        assert answer.status_code == 204
        assert COOKIE not in browser.cookies
        assert (await site.anybody.get("/api/jobs", headers=stolen)).status_code == 401
        assert (await site.anybody.get("/session", headers=stolen)).json() == {
            "role": None,
            "name": None,
            "expires_at": None,
            "needs_token": True,
        }


async def test_signing_in_again_gives_another_cookie_and_ends_the_one_before() -> None:
    async with serving() as site:
        mine = {"Cookie": f"{COOKIE}=chosen-by-somebody-else"}
        answer = await site.anybody.post("/session", json={"token": OPERATOR}, headers=mine)
        first = answer.cookies[COOKIE]
        assert first != "chosen-by-somebody-else"
        answer = await site.anybody.post("/session", json={"token": READER})
        assert answer.cookies[COOKIE] != first
        before = {"Cookie": f"{COOKIE}={first}"}
        async with httpx.AsyncClient(base_url=site.url, headers=before) as client:
            assert (await client.get("/api/jobs")).status_code == 401


async def test_of_several_cookies_the_one_that_is_ours_counts() -> None:
    async with serving() as site, signed_in(site) as browser:
        both = f"{COOKIE}=tossed; other=1; {COOKIE}={browser.cookies[COOKIE]}"
        answer = await site.anybody.get("/session", headers={"Cookie": both})
        assert answer.json()["role"] == "operator"


async def test_a_wrong_token_beside_a_right_cookie_is_refused() -> None:
    async with serving() as site, signed_in(site) as browser:
        assert (await browser.get("/api/jobs", headers=bearer("wrong"))).status_code == 401


async def test_a_change_by_cookie_needs_the_header_and_a_page_of_this_site() -> None:
    async with serving() as site, signed_in(site) as browser:
        answer = await browser.delete("/delayed/m-1")
        assert (answer.status_code, problem(answer)["type"]) == (403, "HeaderMissing")
        assert (await browser.delete("/delayed/m-1", headers=PAGE)).status_code == 404
        for foreign in ({"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "same-site"}):
            answer = await browser.delete("/delayed/m-1", headers={**PAGE, **foreign})
            assert (answer.status_code, problem(answer)["type"]) == (403, "ForeignOrigin")
        answer = await browser.delete("/delayed/m-1", headers={**PAGE, "Host": "evil.test"})
        assert answer.status_code == 400
        answer = await browser.get("/api/jobs", headers={"Host": "evil.test"})
        assert answer.status_code == 400


async def test_wrong_tokens_are_401_then_429_and_then_a_right_one_is_not_tried_either() -> None:
    async with serving() as site:
        for _ in range(5):
            answer = await site.anybody.post("/session", json={"token": "a-guess"})
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers
        answer = await site.anybody.post("/session", json={"token": OPERATOR})
        assert (answer.status_code, problem(answer)["type"]) == (429, "TooManyAttempts")
        assert 0 < int(answer.headers["retry-after"]) <= 60
        assert (await site.operator.get("/api/jobs")).status_code == 200


async def test_what_is_no_sign_in_is_422_and_counts_for_nothing() -> None:
    bodies: list[Any] = [{}, {"token": 1}, {"token": "x" * 1001}, {"token": "x", "name": "n" * 61}]
    async with serving() as site:
        for body in (*bodies, [], "x"):
            assert (await site.anybody.post("/session", json=body)).status_code == 422
        assert (await site.anybody.post("/session", json={"token": READER})).status_code == 200


async def test_a_name_cannot_steer_a_terminal() -> None:
    async with serving() as site:
        name = "\x1b[31mada\u202e\n"
        answer = await site.anybody.post("/session", json={"token": OPERATOR, "name": name})
        assert answer.json()["name"] == "\\x1b[31mada\\u202e"


async def test_at_a_machine_that_is_trusted_an_empty_token_is_enough() -> None:
    async with serving(secrets=Secrets(), trusted=True) as site:
        told = (await site.anybody.get("/session")).json()
        assert (told["role"], told["needs_token"]) == ("operator", False)
        answer = await site.anybody.post("/session", json={"token": "", "name": "ada"})
        assert answer.json()["role"] == "operator"
        assert (await site.anybody.get("/session")).json()["name"] == "ada"
        away = {"X-Forwarded-For": "10.0.0.1"}
        # The cookie makes nobody an operator who is elsewhere.
        assert (await site.anybody.get("/session", headers=away)).json()["role"] is None
        assert (await site.anybody.get("/api/jobs", headers=away)).status_code == 401
        answer = await site.anybody.post("/session", json={"token": ""}, headers=away)
        assert answer.status_code == 401


@pytest.mark.parametrize("trusted", [False, True])
async def test_where_there_are_no_tokens_none_signs_in(trusted: bool) -> None:
    async with serving(secrets=Secrets(), trusted=trusted) as site:
        assert (await site.anybody.post("/session", json={"token": "None"})).status_code == 401
    async with serving(secrets=Secrets(cron_secret="c" * 20)) as site:
        assert (await site.anybody.post("/session", json={"token": ""})).status_code == 401
        assert (await site.anybody.post("/session", json={"token": "c" * 20})).status_code == 401
