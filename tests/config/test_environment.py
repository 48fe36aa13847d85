"""Settings from environment variables and `.env`, each wrong one named with where it is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from queuecraft import (
    ConfigError,
    DeadLetter,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    Retry,
    Settings,
)
from queuecraft.codec import Compressors
from queuecraft.codec.compression import GzipCompressor
from queuecraft.config import settings_from_environment
from queuecraft.testing import FakeClock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for variable in list(os.environ):
        if variable.startswith("QUEUECRAFT_"):
            monkeypatch.delenv(variable)
    return tmp_path


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings_from_environment({}) == Settings()


def test_other_variables_do_not_matter() -> None:
    environ = {
        "PATH": "/bin",
        "URL": "amqp://",
        "QUEUECRAFT_TOKEN": "t",
        "QUEUECRAFT_READ_TOKEN": "t",
        "QUEUECRAFT_FAILPOINT": "ack.before",
        "QUEUECRAFT_REDIS_URL": "redis://",
        "QUEUECRAFT_QUEUE": "billing",
        "QUEUECRAFT_FILE": "shop.csv",
        "QUEUECRAFT_KEY": "k",
        "CONCURRENCY": "9",
    }
    assert settings_from_environment(environ) == Settings()


def test_what_kubernetes_sets_for_a_service_of_our_name_does_not_matter() -> None:
    environ = {
        "QUEUECRAFT_SERVICE_HOST": "10.0.0.11",
        "QUEUECRAFT_SERVICE_PORT": "8642",
        "QUEUECRAFT_PORT": "tcp://10.0.0.11:8642",
        "QUEUECRAFT_PORT_8642_TCP": "tcp://10.0.0.11:8642",
        "QUEUECRAFT_PORT_8642_TCP_PROTO": "tcp",
        "QUEUECRAFT_PORT_8642_TCP_PORT": "8642",
        "QUEUECRAFT_PORT_8642_TCP_ADDR": "10.0.0.11",
    }
    assert settings_from_environment(environ) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("url", "local://", "local://"),
        ("url", " local:// ", "local://"),
        ("exchange", "orders", "orders"),
        ("exchange_type", "fanout", "fanout"),
        ("ttl", "2.5", 2.5),
        ("ttl", "none", None),
        ("ttl", "", None),
        ("max_redeliveries", "0", 0),
        ("concurrency", " 8 ", 8),
        ("prefetch", "None", None),
        ("batch_size", "100", 100),
        ("compression", "true", True),
        ("compression", "off", False),
        ("compression", "gzip", "gzip"),
        ("compression", "", None),
        ("publish_timeout", "5", 5.0),
        ("on_outage", "fail", "fail"),
        ("auto_reconnect", "no", False),
        ("auto_reconnect", "YES", True),
        ("auto_reconnect", "0", False),
        ("reconnect_attempts", "10", 10),
        ("redis_mode", "stream", "stream"),
        ("redis_delivery", "at-most-once", "at-most-once"),
        ("max_message_bytes", "1024", 1024),
        ("journal", "", None),
        ("journal", "./lake", Path("lake")),
        ("journal_payload", "full", "full"),
        ("journal_redact", "card.number, lines[].sku", ("card.number", "lines[].sku")),
        ("journal_redact", "none", None),
    ],
)
def test_a_variable_sets_its_setting(name: str, text: str, value: Any) -> None:
    settings = settings_from_environment({f"QUEUECRAFT_{name.upper()}": text})
    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) is type(value)


@pytest.mark.parametrize(
    ("variables", "retry"),
    [
        ({"RETRY_MAX_RETRIES": "5"}, Retry(max_retries=5)),
        ({"RETRY__MAX_RETRIES": "5"}, Retry(max_retries=5)),
        ({"RETRY_MAX_ATTEMPTS": "5"}, Retry(max_retries=5)),
        ({"MAX_DELIVERIES": "5"}, Retry(max_retries=4)),
        ({"RETRY_INITIAL_DELAY_MS": "250"}, Retry(initial_delay=0.25)),
        ({"RETRY_BACKOFF_FACTOR": "3", "RETRY_BACKOFF_MULTIPLIER": "3.0"}, Retry(factor=3)),
        ({"RETRY_JITTER": "0.2", "RETRY_MAX_DELAY": "60"}, Retry(jitter=0.2, max_delay=60)),
        ({"RETRY_ENABLED": "off", "RETRY_MAX_RETRIES": "5"}, NoRetry()),
        ({"RETRY": "no"}, NoRetry()),
        ({"RETRY": "on"}, Retry()),
    ],
    ids=str,
)
def test_retries_can_be_set(variables: dict[str, str], retry: Retry | NoRetry) -> None:
    environ = {f"QUEUECRAFT_{name}": text for name, text in variables.items()}
    assert settings_from_environment(environ) == Settings(retry=retry)


@pytest.mark.parametrize(
    ("variable", "text", "dead_letter"),
    [
        ("DEAD_LETTER_ENABLED", "false", NoDeadLetter()),
        ("DEAD_LETTER_QUEUE_ENABLED", "false", NoDeadLetter()),
        ("DEAD_LETTER", "off", NoDeadLetter()),
        ("DEAD_LETTER_ENABLED", "true", DeadLetter()),
        ("DEAD_LETTER_QUEUE", "graveyard", DeadLetter(queue="graveyard")),
    ],
)
def test_dead_letters_can_be_set(variable: str, text: str, dead_letter: Any) -> None:
    settings = settings_from_environment({f"QUEUECRAFT_{variable}": text})
    assert settings == Settings(dead_letter=dead_letter)


@pytest.mark.parametrize(
    ("variable", "seconds"),
    [("SHUTDOWN_TIMEOUT", 1500.0), ("SHUTDOWN__TIMEOUT", 1.5), ("SHUTDOWN_TIMEOUT_MS", 1.5)],
)
def test_one_underscore_is_seconds_and_two_are_milliseconds(variable: str, seconds: float) -> None:
    settings = settings_from_environment({f"QUEUECRAFT_{variable}": "1500"})
    assert settings.shutdown_timeout == seconds


def test_an_address_can_be_given_in_parts() -> None:
    environ = {
        "QUEUECRAFT_QUEUE_TYPE": "rabbitmq",
        "QUEUECRAFT_HOST": "rabbit",
        "QUEUECRAFT_PORT": "5673",
        "QUEUECRAFT_USERNAME": "ada",
        "QUEUECRAFT_PASSWORD": " s3c/ret ",
        "QUEUECRAFT_VHOST": "/",
    }
    url = settings_from_environment(environ).url
    assert url == "amqp://ada:%20s3c%2Fret%20@rabbit:5673/%2F"


def test_an_empty_part_of_an_address_is_not_given() -> None:
    environ = {"QUEUECRAFT_URL": "local://", "QUEUECRAFT_HOST": "", "QUEUECRAFT_PASSWORD": ""}
    assert settings_from_environment(environ) == Settings()


def test_a_password_may_be_any_word() -> None:
    environ = {"QUEUECRAFT_URL": "redis://host", "QUEUECRAFT_PASSWORD": "none"}
    assert settings_from_environment(environ).url == "redis://:none@host"


def test_a_file_with_credentials_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    environ = {"QUEUECRAFT_CREDENTIALS_FILE": "~/broker.json"}
    assert settings_from_environment(environ).credentials == Path("/home/ada/broker.json")
    assert settings_from_environment({"QUEUECRAFT_CREDENTIALS_FILE": ""}).credentials is None


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        (
            "CONCURRENCY",
            "many",
            "='many': expected a whole number from 1 on, such as 8 (default 1)",
        ),
        ("CONCURRENCY", "8.0", "='8.0': expected a whole number"),
        ("CONCURRENCY", "", "='': expected a whole number"),
        ("CONCURRENCY", "0", "=0: expected a whole number"),
        ("CONCURRENCY", "9" * 5000, "9…': expected a whole number"),
        ("PREFETCH", "x", "='x': expected a whole number from 1 on, or none"),
        ("TTL", "1 h", "='1 h': expected seconds above 0, or none, such as 2.5 (default none)"),
        ("PUBLISH_TIMEOUT", "nan", "=nan: expected seconds above 0, such as 2.5 (default 30.0)"),
        ("TIMEOUT", "inf", "=inf: expected seconds"),
        ("ON_OUTAGE", "panic", "='panic': expected one of 'wait', 'fail' (default 'wait')"),
        ("AUTO_RECONNECT", "maybe", "='maybe': expected true or false (default True)"),
        ("AUTO_RECONNECT", "", "='': expected true or false"),
        (
            "RETRY",
            "3",
            "='3': expected true or false (default true); did you mean "
            "QUEUECRAFT_RETRY_MAX_RETRIES?",
        ),
        ("RETRY", "maybe", "='maybe': expected true or false (default true)"),
        ("DEAD_LETTER", "lost", "(default true); did you mean QUEUECRAFT_DEAD_LETTER_QUEUE?"),
        ("MAX_RETRIES", "5", " is no setting; did you mean QUEUECRAFT_RETRY_MAX_RETRIES?"),
        ("RETRIES", "5", " is no setting; did you mean QUEUECRAFT_RETRY_MAX_RETRIES?"),
        ("FACTOR", "5", " is no setting; did you mean QUEUECRAFT_RETRY_FACTOR?"),
        (
            "DELAY",
            "5",
            " is no setting; did you mean QUEUECRAFT_RECONNECT_DELAY or "
            "QUEUECRAFT_RETRY_INITIAL_DELAY or QUEUECRAFT_RETRY_MAX_DELAY?",
        ),
        ("COMPRESSION", "lz4", "='lz4': expected one of 'gzip', 'zstd'"),
        ("SERIALIZER", "yaml", "='yaml': expected one of 'json', 'msgpack', 'protobuf', 'raw'"),
        ("URL", "queue.db", " has no scheme; for the file 'queue.db' write 'local://./queue.db'"),
        ("JOURNAL", "s3://b", "='s3://b': expected a folder of this machine, or none, such as"),
        ("JOURNAL_PAYLOAD", "all", "='all': expected one of 'none', 'headers', 'full' (default"),
        ("JOURNAL_REDACT", "a..b", "=a tuple: expected a list of fields, or none, such as card."),
        ("RETRY_MAX_RETRIES", "-1", "=-1: expected a whole number from 0 on"),
        ("RETRY_FACTOR", "0.5", "=0.5: expected a number from 1 on, such as 2 (default 2.0)"),
        ("RETRY_INITIAL_DELAY_MS", "-1", "=-1.0: expected milliseconds from 0 on, such as 1500 ("),
        ("SHUTDOWN__TIMEOUT", "0", "=0.0: expected milliseconds above 0, such as 1500 (default 30"),
        ("MAX_DELIVERIES", "0", "=0: expected a whole number from 1 on, such as 8 (default 4)"),
        ("BATCH_SIZE", "0", "=0: expected a whole number from 1 on, such as 8 (default 1)"),
        ("TYPE", "rabitmq", "='rabitmq': expected one of 'local', 'rabbitmq'"),
        ("PORT", "http", "='http': expected a whole number from 1 to 65535"),
        ("REDIS_MODE", "heap", "='heap': expected one of 'list', 'pubsub', 'stream', or none"),
        ("URL", "user:s3cret@host", " has no scheme; expected a URL such as 'local://'"),
        ("URL", "amqp://u:s3cret@h:x", "'amqp://u:***@h:***'; expected a URL such as 'amqp://us"),
        ("ON_OUTAGE", "amqp://u:s3cret@h", "='amqp://u:***@h': expected one of 'wait'"),
        ("TTL", "u:s3cret@h", "='***': expected seconds above 0"),
        ("CONCURENCY", "8", " is no setting; did you mean QUEUECRAFT_CONCURRENCY?"),
        ("PUBLISH_TIMEOUTS", "8", " is no setting; did you mean QUEUECRAFT_PUBLISH_TIMEOUT?"),
        ("PASWORD", "s3cret", " is no setting; did you mean QUEUECRAFT_PASSWORD?"),
        ("ULR", "amqp://u:s3cret@h", " is no setting; did you mean QUEUECRAFT_URL?"),
        ("URI", "amqp://u:s3cret@h", " is no setting; did you mean QUEUECRAFT_URL?"),
        ("TOKN", "s3cret", " is no setting; did you mean QUEUECRAFT_TOKEN?"),
    ],
)
def test_a_wrong_variable_is_named_with_what_is_expected(
    variable: str, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from_environment({f"QUEUECRAFT_{variable}": text})
    told = str(caught.value)
    assert told.startswith(f"QUEUECRAFT_{variable}")
    assert said in told
    assert "s3cret" not in told


def test_bytes_that_are_no_text_are_refused() -> None:
    broken = b"\xff".decode(errors="surrogateescape")
    for variable in ("URL", "PASSWORD", "USERNAME", "EXCHANGE", "HOST", "VHOST"):
        with pytest.raises(ConfigError) as caught:
            settings_from_environment({f"QUEUECRAFT_{variable}": f"local://{broken}"})
        str(caught.value).encode()


def test_all_that_is_wrong_is_told_at_once() -> None:
    environ = {
        "QUEUECRAFT_CONCURRENCY": "many",
        "QUEUECRAFT_TTL": "0",
        "QUEUECRAFT_CONCURENCY": "8",
        "QUEUECRAFT_HOST": "rabbit",
    }
    with pytest.raises(ConfigError) as caught:
        settings_from_environment(environ, given={"exchange": ""})
    first, *lines = str(caught.value).splitlines()
    assert first == "5 settings are wrong:"
    assert [line.split("=")[0].split()[0] for line in lines] == [
        "QUEUECRAFT_CONCURRENCY",
        "QUEUECRAFT_TTL",
        "QUEUECRAFT_CONCURENCY",
        "exchange",
        "type",
    ]


def test_one_setting_by_two_names_must_agree() -> None:
    environ = {"QUEUECRAFT_PREFETCH": "5", "QUEUECRAFT_QUEUE_PREFETCH": "8"}
    with pytest.raises(ConfigError) as caught:
        settings_from_environment(environ)
    assert str(caught.value) == (
        "QUEUECRAFT_PREFETCH=5 and QUEUECRAFT_QUEUE_PREFETCH=8 set the same; keep one"
    )
    environ["QUEUECRAFT_QUEUE_PREFETCH"] = "5"
    assert settings_from_environment(environ).prefetch == 5


def test_two_urls_that_differ_are_named_and_not_shown() -> None:
    environ = {"QUEUECRAFT_URL": "amqp://u:s3cret@h", "QUEUECRAFT_QUEUE_URL": "amqp://u:s3cret@i"}
    with pytest.raises(ConfigError, match="QUEUECRAFT_URL and QUEUECRAFT_QUEUE_URL") as caught:
        settings_from_environment(environ)
    assert "s3cret" not in str(caught.value)


# -- .env ------------------------------------------------------------------------------------------


def test_a_dotenv_file_is_read_and_the_environment_left_alone(folder: Path) -> None:
    (folder / ".env").write_text("# ours\nexport QUEUECRAFT_CONCURRENCY='8'\nOTHER=x\n")
    assert settings_from_environment().concurrency == 8
    assert "QUEUECRAFT_CONCURRENCY" not in os.environ
    assert "OTHER" not in os.environ


def test_a_dotenv_file_elsewhere_can_be_named(folder: Path) -> None:
    (folder / "production.env").write_text("QUEUECRAFT_CONCURRENCY=8\n")
    assert settings_from_environment(env_file="production.env").concurrency == 8
    assert QueueCraft.from_environment(env_file="production.env").settings.concurrency == 8


def test_a_dotenv_file_that_was_named_has_to_be_there() -> None:
    with pytest.raises(ConfigError, match=r"there is no file production\.env"):
        settings_from_environment(env_file="production.env")


def test_what_is_wrong_in_a_dotenv_file_is_told_with_its_line(folder: Path) -> None:
    (folder / ".env").write_text("A=1\ns3cret\nQUEUECRAFT_TTL=0\n\nQUEUECRAFT_TTLS=1\n")
    with pytest.raises(ConfigError) as caught:
        settings_from_environment()
    told = str(caught.value)
    assert ".env, line 2 is no variable; expected NAME=value" in told
    assert "QUEUECRAFT_TTL=0.0 in .env, line 3: expected seconds above 0" in told
    assert "QUEUECRAFT_TTLS in .env, line 5 is no setting; did you mean QUEUECRAFT_TTL?" in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"A=1\nB=\xff\n", "not UTF-8 in line 2"), (b"A=1\n" * 300_000, "more than 1048576 bytes")],
    ids=["latin", "huge"],
)
def test_a_dotenv_file_that_is_no_text_is_refused(folder: Path, data: bytes, said: str) -> None:
    (folder / ".env").write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        settings_from_environment()


def test_a_dotenv_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / ".env").mkdir()
    with pytest.raises(ConfigError, match=r"\.env cannot be read: Is a directory"):
        settings_from_environment()


# -- which goes first ------------------------------------------------------------------------------


def test_keywords_go_before_the_environment_before_dotenv_before_toml(folder: Path) -> None:
    every = ("max_pending", "concurrency", "prefetch", "max_redeliveries")
    (folder / "queuecraft.toml").write_text("".join(f"{name} = 1\n" for name in every))
    (folder / ".env").write_text("".join(f"QUEUECRAFT_{n.upper()}=2\n" for n in every[:3]))
    environ = {f"QUEUECRAFT_{name.upper()}": "3" for name in every[:2]}
    settings = settings_from_environment(environ, given={every[0]: 4})
    assert [getattr(settings, name) for name in every] == [4, 3, 2, 1]


@pytest.mark.parametrize("where", ["environment", ".env"])
def test_the_toml_file_can_be_named(folder: Path, where: str) -> None:
    (folder / "queuecraft.toml").write_text("ttl = 1")
    (folder / "shop.toml").write_text("ttl = 2")
    environ = {"QUEUECRAFT_CONFIG": "shop.toml"}
    if where == ".env":
        (folder / ".env").write_text("QUEUECRAFT_CONFIG=shop.toml")
        environ = {}
    assert settings_from_environment(environ).ttl == 2


def test_a_toml_file_that_was_named_has_to_be_there() -> None:
    with pytest.raises(ConfigError) as caught:
        settings_from_environment({"QUEUECRAFT_CONFIG": "shop.toml"})
    assert str(caught.value) == "there is no file shop.toml, which QUEUECRAFT_CONFIG names"


def test_a_toml_file_that_a_dotenv_file_names_has_to_be_there(folder: Path) -> None:
    (folder / ".env").write_text("A=1\nQUEUECRAFT_CONFIG=shop.toml\n")
    with pytest.raises(ConfigError, match=r"which QUEUECRAFT_CONFIG in \.env, line 2 names"):
        settings_from_environment({})


def test_a_compression_of_ones_own_can_be_chosen_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Squeeze(GzipCompressor):
        name = "squeeze"

    monkeypatch.setenv("QUEUECRAFT_COMPRESSION", "Squeeze")
    qc = QueueCraft.from_environment(compressors=Compressors(Squeeze()))
    assert qc.settings.compression == "Squeeze"
    with pytest.raises(ConfigError, match="QUEUECRAFT_COMPRESSION='Squeeze': expected one of"):
        QueueCraft.from_environment()


def test_other_names_count_across_sources_too(folder: Path) -> None:
    (folder / "queuecraft.toml").write_text("[retry]\nmax_retries = 1\nfactor = 3")
    settings = settings_from_environment({"QUEUECRAFT_RETRY_MAX_ATTEMPTS": "7"})
    assert settings.retry == Retry(max_retries=7, factor=3)


def test_a_policy_in_code_goes_before_all_of_its_table(folder: Path) -> None:
    (folder / "queuecraft.toml").write_text("[retry]\nmax_retries = 1\nfactor = 3")
    settings = settings_from_environment({}, given={"retry": Retry(jitter=0.5)})
    assert settings.retry == Retry(jitter=0.5)


TOML_FIELDS = 'type = "rabbitmq"\nhost = "one"\nusername = "ada"\npassword = "old"'


@pytest.mark.parametrize(
    ("toml", "environ", "url"),
    [
        (TOML_FIELDS, {}, "amqp://ada:old@one"),
        (TOML_FIELDS, {"HOST": "two"}, "amqp://ada:old@two"),
        (TOML_FIELDS, {"PASSWORD": "new"}, "amqp://ada:new@one"),
        (TOML_FIELDS, {"URL": "redis://two"}, "redis://two"),
        (TOML_FIELDS, {"URL": "amqp://two", "USERNAME": "u", "PASSWORD": "p"}, "amqp://u:p@two"),
        ('url = "amqp://ada:old@one/shop"', {"PASSWORD": "n/w"}, "amqp://ada:n%2Fw@one/shop"),
        ('url = "amqp://one"', {"USERNAME": "u", "PASSWORD": "p"}, "amqp://u:p@one"),
        ('url = "amqp://a:b@one"', {"TYPE": "redis", "HOST": "two"}, "redis://two"),
        ('url = "amqp://a:b@one"', {"TYPE": "rabbitmq"}, "amqp://a:b@one"),
    ],
)
def test_a_source_may_replace_an_address_or_a_part_of_it(
    folder: Path, toml: str, environ: dict[str, str], url: str
) -> None:
    (folder / "queuecraft.toml").write_text(toml)
    variables = {f"QUEUECRAFT_{name}": text for name, text in environ.items()}
    assert settings_from_environment(variables).url == url


def test_a_password_goes_to_no_other_broker_than_it_was_given_for(folder: Path) -> None:
    (folder / "queuecraft.toml").write_text('url = "amqp://ada:s3cret@one"')
    environ = {"QUEUECRAFT_HOST": "two", "QUEUECRAFT_TYPE": "rabbitmq"}
    assert settings_from_environment(environ).url == "amqp://two"


def test_of_a_password_and_a_file_with_one_the_later_source_counts(folder: Path) -> None:
    (folder / "queuecraft.toml").write_text(TOML_FIELDS)
    settings = settings_from_environment({"QUEUECRAFT_CREDENTIALS_FILE": "/run/broker"})
    assert (settings.url, settings.credentials) == ("amqp://ada@one", Path("/run/broker"))

    (folder / "queuecraft.toml").write_text('credentials_file = "/run/broker"')
    parts = {"TYPE": "amqp", "HOST": "one", "USERNAME": "ada", "PASSWORD": "new"}
    for given in ({"URL": "amqp://ada:new@one"}, parts):
        environ = {f"QUEUECRAFT_{name}": text for name, text in given.items()}
        settings = settings_from_environment(environ)
        assert (settings.url, settings.credentials) == ("amqp://ada:new@one", None)


def test_what_contradicts_itself_across_sources_is_named_with_both(folder: Path) -> None:
    (folder / "queuecraft.toml").write_text('url = "amqp://ada:s3cret@one"')
    with pytest.raises(ConfigError) as caught:
        settings_from_environment({"QUEUECRAFT_TYPE": "kafka"})
    assert str(caught.value) == (
        "QUEUECRAFT_TYPE is 'kafka', but url in queuecraft.toml begins with 'amqp://'; "
        "expected a URL such as 'kafka://one:9092,two:9092'"
    )


# -- an app ----------------------------------------------------------------------------------------


def test_an_app_may_be_made_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_URL", "local://")
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "8")
    assert QueueCraft.from_environment().settings == Settings(concurrency=8)


def test_an_app_from_the_environment_takes_what_any_app_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUEUECRAFT_CONCURRENCY", "8")
    clock = FakeClock()
    qc = QueueCraft.from_environment(clock=clock, middleware=[lambda handle: handle], ttl=60)
    assert qc.settings == Settings(concurrency=8, ttl=60)
    assert qc._engine.clock is clock
    assert len(qc._engine.middleware) == 1


def test_an_unknown_keyword_is_named() -> None:
    options: Any = {"concurency": 8}
    with pytest.raises(ConfigError, match="unknown setting 'concurency'; did you mean 'concurrenc"):
        QueueCraft.from_environment(**options)
