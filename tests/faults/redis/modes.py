"""Which of the modes of Redis a test is run in, and when."""

from __future__ import annotations

from typing import Final

import pytest

STREAMS_LATER: Final = pytest.mark.parametrize(
    "mode", ["list", pytest.param("stream", marks=pytest.mark.faults)]
)
"""For what takes long and hardly depends on it: lists always, streams by `make faults`."""
