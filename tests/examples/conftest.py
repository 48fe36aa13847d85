"""The brokers that the shop runs on."""

from __future__ import annotations

from tests.features.conftest import url

__all__ = ["url"]
