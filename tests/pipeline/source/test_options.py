from __future__ import annotations

import pytest

from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.source.options import Options

KNOWN = ("connection", "queue", "limit", "force")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connection", "amqp://ada:s3cret@rabbit"),
        ("queue", "redis://:s3cret@cache"),
        ("url", "s3cret"),
        ("password", "s3cret"),
    ],
)
def test_an_option_with_a_secret_is_refused_and_not_shown(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match="name a connection instead") as caught:
        Options({name: value}, KNOWN)
    assert "s3cret" not in str(caught.value)


def test_an_option_that_does_not_exist_is_told() -> None:
    with pytest.raises(ConfigError, match="no option 'limitt' here; did you mean 'limit'"):
        Options({"limitt": "5"}, KNOWN)


def test_options_of_spark_are_left_alone() -> None:
    assert Options({"checkpointLocation": "/tmp/x"}, KNOWN).text("queue") is None


@pytest.mark.parametrize("value", ["0", "many", "nan", "inf", "1.5", "-1"])
def test_a_whole_number_is_one(value: str) -> None:
    with pytest.raises(ConfigError, match="limit"):
        Options({"limit": value}, KNOWN).whole("limit", 1)


def test_a_flag_is_true_or_false() -> None:
    assert Options({"Force": "TRUE"}, KNOWN).flag("force", otherwise=False)
    assert Options({}, KNOWN).flag("force", otherwise=True)
    with pytest.raises(ConfigError, match="force='perhaps'"):
        Options({"force": "perhaps"}, KNOWN).flag("force", otherwise=False)


def test_one_of_several_has_to_be_said() -> None:
    assert Options({"queue": "billing"}, KNOWN).one_of("queue", "connection") == "queue"
    with pytest.raises(ConfigError, match=r"say one of the options 'queue', 'connection'$"):
        Options({}, KNOWN).one_of("queue", "connection")
    with pytest.raises(ConfigError, match="'queue' and 'connection' are both there"):
        Options({"queue": "a", "connection": "b"}, KNOWN).one_of("queue", "connection")
    with pytest.raises(ConfigError, match="option 'queue' is empty"):
        Options({"queue": " "}, KNOWN).text("queue")
