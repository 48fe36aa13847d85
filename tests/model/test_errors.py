"""Errors know where they happened."""

from __future__ import annotations

from copy import copy

import pytest

import queuecraft
from queuecraft.model import errors
from queuecraft.model.errors import PublishError, QueueError, Unroutable

ALL = [
    each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, QueueError) and not name.startswith("_")
]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_tells_what_happened_and_where(kind: type[QueueError]) -> None:
    error = kind(
        "the disk is full", broker="local", operation="send", queue="billing", message_id="m-1"
    )
    assert str(error) == (
        "the disk is full [broker=local operation=send queue='billing' message=m-1]"
    )
    assert error.message == "the disk is full"
    assert (error.broker, error.operation, error.queue, error.message_id) == (
        "local",
        "send",
        "billing",
        "m-1",
    )


def test_an_error_without_a_place_is_its_message() -> None:
    assert str(QueueError("the disk is full")) == "the disk is full"


def test_every_error_of_the_design_exists() -> None:
    assert {each.__name__ for each in ALL} >= {
        "QueueError",
        "ConfigError",
        "ConnectionLost",
        "PublishError",
        "Unroutable",
        "CircuitOpen",
        "QueueFull",
        "RequestTimeout",
        "RemoteError",
        "UnsupportedFeature",
        "AlreadySettled",
        "TopologyMismatch",
        "PayloadError",
    }


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_called_as_it_is_imported(kind: type[QueueError]) -> None:
    assert kind.__module__ == "queuecraft"
    assert getattr(queuecraft, kind.__name__) is kind


def test_an_error_of_a_user_keeps_its_own_name() -> None:
    class Refused(QueueError):
        """Made elsewhere."""

    assert Refused.__module__ == __name__


def test_a_publish_error_says_whether_the_broker_may_have_it() -> None:
    assert PublishError("x").outcome == "rejected"
    assert PublishError("x", outcome="unknown").outcome == "unknown"
    assert Unroutable("x").outcome == "rejected"
    assert PublishError("x").operation == "publish"


def test_the_cause_stays_with_the_error() -> None:
    with pytest.raises(QueueError) as caught:  # noqa: PT012
        try:
            raise OSError("broken pipe")
        except OSError as cause:
            raise QueueError("cannot send") from cause
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_a_copy(kind: type[QueueError]) -> None:
    error = kind("the disk is full", broker="local", queue="billing", message_id="m-1")
    copied = copy(error)
    assert type(copied) is kind
    assert str(copied) == str(error)
