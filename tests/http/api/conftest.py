"""Fixtures of the admin API's tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has changed is looked at again at once; nobody here counts what that costs."""
    monkeypatch.setattr("queuecraft.admin.watch.SHARED", 0.05)
    monkeypatch.setattr("queuecraft.http.lookout.SOONEST", 0.05)
