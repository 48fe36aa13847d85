"""The life of every message on Spark: an archive, reports, triage and replay."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Teach a session the format `queuecraft`: `spark.read.format("queuecraft")` and its like.

    On one machine, Spark's workers get the variables that name connections as they are now; on a
    cluster they have to be set where the executors run.

    >>> from queuecraft.pipeline.session import spark_session
    >>> register(spark_session())  # doctest: +SKIP
    """
    from queuecraft.pipeline.connections import variables
    from queuecraft.pipeline.source.site import Site
    from queuecraft.pipeline.source.source import source_for

    site = Site.of(spark)
    if site.local and site.slots is not None:  # a remote session has no workers of ours
        spark.sparkContext.environment.update(variables(os.environ))
    spark.dataSource.register(source_for(site))
