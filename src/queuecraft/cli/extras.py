"""Packages that not everybody needs, and the extra of QueueCraft that brings each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from queuecraft.drivers.registry import NEEDED
from queuecraft.model.errors import ConfigError

EXTRAS: Mapping[str, str] = MappingProxyType(
    {
        **dict(NEEDED.values()),
        "google": "protobuf",
        "zstandard": "zstd",
        "pydantic": "pydantic",
        "fastapi": "http",
        "starlette": "http",
        "uvicorn": "http",
        "prometheus_client": "prometheus",
        "opentelemetry": "otel",
        "pyspark": "spark",
        "pyarrow": "spark",
        "pandas": "spark",
    }
)
"""The extra for each module, by the first part of its name."""


def lacking(error: ModuleNotFoundError) -> ConfigError | None:
    """What to do about a module that was not found; None if it is none of these.

    >>> told = lacking(ModuleNotFoundError("No module named 'pyarrow'", name="pyarrow.parquet"))
    >>> told.message
    "this needs the package pyarrow; run: pip install 'queuecraft[spark]'"
    """
    module = (error.name or "").partition(".")[0]
    if module not in EXTRAS:
        return None
    name = "protobuf" if module == "google" else module.replace("_", "-")
    return ConfigError(
        f"this needs the package {name}; run: pip install 'queuecraft[{EXTRAS[module]}]'"
    )
