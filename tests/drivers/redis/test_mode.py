"""Redis without a mode: a warning where the app is made, so that Python shows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import queuecraft.sync
from queuecraft import QueueCraft

URL = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    "make",
    [
        lambda: QueueCraft(URL),
        lambda: QueueCraft.from_environment(),
        lambda: queuecraft.sync.QueueCraft(URL),
    ],
    ids=["by URL", "from the environment", "sync"],
)
def test_the_warning_names_the_line_that_makes_the_app(
    make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", URL)
    with pytest.warns(DeprecationWarning, match="no mode is set") as caught:
        make()
    assert [each.filename for each in caught] == [__file__]
