from __future__ import annotations

from pathlib import Path

import pytest

from queuecraft.config import settings_from_environment
from queuecraft.model.errors import ConfigError
from queuecraft.pipeline.connections import connection_settings

SHOP = "QUEUECRAFT_CONNECTION_SHOP_"


def test_a_connection_has_the_settings_of_an_application_under_its_name() -> None:
    settings = connection_settings(
        "shop",
        {
            f"{SHOP}TYPE": "rabbitmq",
            f"{SHOP}HOST": "rabbit",
            f"{SHOP}USERNAME": "ada",
            f"{SHOP}PASSWORD": "p@ss",
            f"{SHOP}PUBLISH_TIMEOUT": "5",
        },
    )
    assert settings.url == "amqp://ada:p%40ss@rabbit"
    assert settings.publish_timeout == 5


def test_names_may_have_dashes_and_are_not_mixed_up() -> None:
    environ = {
        f"{SHOP}URL": "redis://one/0?mode=list",
        "QUEUECRAFT_CONNECTION_SHOP_EU_URL": "redis://two/0?mode=list",
        "QUEUECRAFT_CONNECTION_SHOP_EU_PASSWORD": "s3cret",
    }
    assert connection_settings("shop", environ).url == "redis://one/0?mode=list"
    assert connection_settings("Shop-EU", environ).url == "redis://:s3cret@two/0?mode=list"


def test_a_slip_in_a_variable_is_told_with_its_whole_name() -> None:
    environ = {f"{SHOP}URL": "redis://one/0?mode=list", f"{SHOP}PASWORD": "s3cret"}
    with pytest.raises(ConfigError, match=f"{SHOP}PASWORD is no setting; did you mean") as caught:
        connection_settings("shop", environ)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"connection 'shop': {SHOP}TIMEOUT='soon'"):
        connection_settings("shop", {f"{SHOP}URL": "redis://one", f"{SHOP}TIMEOUT": "soon"})


def test_a_connection_takes_nothing_that_was_said_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("QUEUECRAFT_PASSWORD=s3cret\nQUEUECRAFT_USERNAME=ada\n")
    (tmp_path / "queuecraft.toml").write_text('username = "bob"\npassword = "geheim"\n')
    environ = {f"{SHOP}URL": "amqp://rabbit", "QUEUECRAFT_PASSWORD": "other"}
    assert connection_settings("shop", environ).url == "amqp://rabbit"


def test_a_connection_may_be_written_down_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "shop.toml"
    path.write_text('url = "amqp://rabbit/shop"\nmax_message_bytes = 1000\n')
    settings = connection_settings("shop", {f"{SHOP}CONFIG": str(path)})
    assert (settings.url, settings.max_message_bytes) == ("amqp://rabbit/shop", 1000)
    with pytest.raises(ConfigError, match=rf"there is no file .*, which {SHOP}CONFIG names"):
        connection_settings("shop", {f"{SHOP}CONFIG": str(tmp_path / "none.toml")})


def test_the_default_connection_is_that_of_the_application() -> None:
    environ = {"QUEUECRAFT_URL": "amqp://rabbit"}
    assert connection_settings(environ=environ).url == "amqp://rabbit"
    environ["QUEUECRAFT_CONNECTION_DEFAULT_URL"] = "amqp://other"
    assert connection_settings("default", environ).url == "amqp://other"


def test_a_url_takes_of_an_address_only_what_it_says_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("QUEUECRAFT_USERNAME=ada\nQUEUECRAFT_PASSWORD=s3cret\n")
    environ = {
        "QUEUECRAFT_TYPE": "rabbitmq",
        "QUEUECRAFT_HOST": "rabbit",
        "QUEUECRAFT_PASSWORD": "s3cret",
        "QUEUECRAFT_CONNECTION_DEFAULT_URL": "amqp://ada:s3cret@rabbit",
        "QUEUECRAFT_PUBLISH_TIMEOUT": "5",
    }
    settings = connection_settings("default", environ, url="amqp://staging/shop")
    assert (settings.url, settings.publish_timeout) == ("amqp://staging/shop", 5)
    with pytest.raises(ConfigError, match="url is 'local://', a queue in the memory"):
        connection_settings(url="local://")
    with pytest.raises(ConfigError, match="url is a file of one machine"):
        connection_settings(url="local:///data/queue.db", local=False)


def test_an_application_does_not_mind_the_variables_of_connections() -> None:
    environ = {
        f"QUEUECRAFT_CONNECTION_{name}_{setting}": "amqp://rabbit"
        for name in ("SHOP", "DEFAULT", "REDIS", "QUEUE", "A", "RETRY")
        for setting in ("URL", "PASSWORD", "TIMEOUT", "CONFIG", "MAX_RETRIES")
    }
    assert settings_from_environment(environ).url == "local://"


@pytest.mark.parametrize("name", ["amqp://ada:s3cret@rabbit", "a b", "", "-x", "s$op"])
def test_a_connection_is_named_and_never_addressed(name: str) -> None:
    with pytest.raises(ConfigError, match="a name") as caught:
        connection_settings(name, {})
    assert "s3cret" not in str(caught.value)


def test_a_queue_in_memory_is_refused_everywhere() -> None:
    with pytest.raises(ConfigError, match="would each have an empty one"):
        connection_settings("shop", {f"{SHOP}URL": "local://"})
    with pytest.raises(ConfigError, match=r"'default' \(QUEUECRAFT_URL\) is 'local://'"):
        connection_settings(environ={})


def test_a_queue_in_a_file_is_refused_where_there_are_other_machines() -> None:
    environ = {f"{SHOP}URL": "local:///data/queue.db"}
    assert connection_settings("shop", environ, local=True).url == "local:///data/queue.db"
    with pytest.raises(ConfigError, match=r"a file of one machine.*master='local\[\*\]'"):
        connection_settings("shop", environ, local=False)
