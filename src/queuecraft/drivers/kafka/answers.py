"""What comes of a question to the cluster. It is waited for in a thread, not in the loop."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException

WITHIN: Final = 15.0  # seconds for an answer


def answer(future: Future[Any], *, fine: Collection[int] = ()) -> Any:
    """What has come of it; None for an error that is fine.

    The error in a future would hold the frames of all who have asked, and they the future: a circle
    that keeps a client of librdkafka, with its threads, until the garbage collector comes by. So it
    is not that error that is raised.
    """
    try:
        return future.result(WITHIN)
    except KafkaException as error:
        error.__traceback__ = None
        if error.args[0].code() in fine:
            return None
        raise KafkaException(*error.args) from None
