"""Expressions of SQL that a user gives, and what is wrong with them in words."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.replay.table import MESSAGE, SETTABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
LONGEST = 300  # characters of what Spark says


@contextmanager
def refusing(what: str, columns: Sequence[str]) -> Generator[None]:
    """Turn Spark's complaint about an expression into an error that names the columns."""
    from pyspark.errors import AnalysisException

    try:
        with quiet():
            yield
    except AnalysisException as error:
        raise ConfigError(
            f"{what} is no expression that Spark understands: {reason(error)}; the columns are "
            f"{', '.join(columns)}"
        ) from None


@contextmanager
def quiet() -> Generator[None]:
    """Keep Spark from logging an error that is told in other words: it would, with all its plan."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def reason(error: BaseException) -> str:
    """The first sentence of what Spark says, without its codes and plans.

    >>> reason(ValueError("[NO_COLUMN] There is no column `a`. SQLSTATE: 42703;\\n'Filter ..."))
    'There is no column `a`'
    """
    text = str(error).strip().partition("\n")[0]
    if text.startswith("["):
        text = text.partition("] ")[2]
    text = text.partition(" SQLSTATE:")[0].rstrip(" .;")
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def with_values(messages: DataFrame, values: Mapping[str, str]) -> DataFrame:
    """The messages with columns set by expressions, all of them over what the columns were."""
    from pyspark.sql import functions as f

    if not values:  # Spark Connect does not take none for an answer
        return messages
    kinds = dict(MESSAGE.columns)
    for name, text in values.items():
        with refusing(f"set {name} = {text!r}", SETTABLE):
            _ = messages.select(_value(f.expr(text), kinds[name])).schema
    return messages.withColumns(
        {name: _value(f.expr(text), kinds[name]) for name, text in values.items()}
    )


def _value(given: Column, kind: str) -> Column:
    return given.cast(kind)
