"""A handler names those of its batch that have failed."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest

from queuecraft import BatchFailed, ConfigError
from queuecraft.testing import message_of


def test_it_tells_how_many_failed_and_why() -> None:
    error = BatchFailed({3: ValueError("no money")})
    assert str(error) == "1 message of a batch failed; the first: ValueError('no money')"
    assert str(BatchFailed({0: KeyError("a"), 1: KeyError("b")})).startswith("2 messages of a")
    assert str(BatchFailed({})) == "0 messages of a batch failed"


def test_what_failed_is_named_by_place_or_message() -> None:
    message, no = message_of(1), ValueError("no")
    assert BatchFailed({message: no}).errors == {message: no}
    assert BatchFailed({2: no}).errors == {2: no}


def test_what_it_says_cannot_be_changed_afterwards() -> None:
    errors: dict[int, Exception] = {0: ValueError("no")}
    failed = BatchFailed(errors)
    errors.clear()
    assert list(failed.errors) == [0]


def test_it_survives_a_copy_and_is_called_as_it_is_imported() -> None:
    copied = copy(BatchFailed({0: ValueError("no")}))
    assert type(copied) is BatchFailed
    assert list(copied.errors) == [0]
    assert BatchFailed.__module__ == "queuecraft"


@pytest.mark.parametrize("wrong", [{0: "no money"}, {0: None}, {0: ValueError}])
def test_each_wants_an_error_of_its_own(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="expected an exception"):
        BatchFailed(wrong)


@pytest.mark.parametrize("wrong", [[ValueError()], ValueError(), None])
def test_it_takes_nothing_but_a_mapping(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="takes errors by place or message"):
        BatchFailed(wrong)
