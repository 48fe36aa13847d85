"""Silver: what cannot be read, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuecraft.pipeline.schemas import QUARANTINE
from queuecraft.pipeline.transforms.birth import birth_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def quarantine(messages: DataFrame) -> DataFrame:
    """The rows of bronze that have a problem."""
    return messages.where("problem IS NOT NULL").select(*QUARANTINE.names, *birth_in(messages))
