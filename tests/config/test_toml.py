"""Settings from a TOML file, each wrong one named with its key and its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuecraft import (
    ConfigError,
    DeadLetter,
    Journal,
    NoDeadLetter,
    NoRetry,
    QueueCraft,
    Retry,
    Settings,
)
from queuecraft.config import settings_from_file
from queuecraft.drivers.local import path_of
from queuecraft.model.errors import QueueError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("shop.toml")


FULL = """
url = "redis://:s3cret@cache/0"
exchange = "orders"
ttl = 60
concurrency = 8
compression = true

[retry]
max_retries = 5
initial_delay = 0.5

[dead_letter]
queue = "graveyard"

[redis]
mode = "stream"
delivery = "at-most-once"
"""


def test_a_file_sets_everything_it_names(file: Path) -> None:
    file.write_text(FULL)
    assert settings_from_file(file) == Settings(
        url="redis://:s3cret@cache/0",
        exchange="orders",
        ttl=60,
        concurrency=8,
        compression=True,
        retry=Retry(max_retries=5, initial_delay=0.5),
        dead_letter=DeadLetter(queue="graveyard"),
        redis_mode="stream",
        redis_delivery="at-most-once",
    )


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", Settings()),
        ('[queue]\ntype = "redis"\nurl = "redis://one"', Settings(url="redis://one")),
        ("[queue]\nprefetch = 5\nbatch_size = 100", Settings(prefetch=5, batch_size=100)),
        ("[queue]\ncompression = true", Settings(compression=True)),
        ("[retry]\nenabled = false", Settings(retry=NoRetry())),
        ("retry = false", Settings(retry=NoRetry())),
        ("[retry]\nenabled = true\nmax_attempts = 5", Settings(retry=Retry(max_retries=5))),
        ("[retry]\ninitial_delay_ms = 250", Settings(retry=Retry(initial_delay=0.25))),
        ("[retry]\nbackoff_multiplier = 3", Settings(retry=Retry(factor=3))),
        ("[retry]\nbackoff_factor = 3", Settings(retry=Retry(factor=3))),
        ("retry.factor = 3", Settings(retry=Retry(factor=3))),
        ("max_deliveries = 5", Settings(retry=Retry.deliveries(5))),
        ("message_ttl = 1500", Settings(ttl=1.5)),
        ("[shutdown]\ntimeout = 1500", Settings(shutdown_timeout=1.5)),
        ("[dead_letter]\nenabled = false", Settings(dead_letter=NoDeadLetter())),
        ("[dead_letter_queue]\nenabled = false", Settings(dead_letter=NoDeadLetter())),
        ('redis_mode = "list"', Settings(redis_mode="list")),
        (
            'type = "rabbitmq"\nhost = "rabbit"\nport = 5673\nvhost = "/"',
            Settings(url="amqp://rabbit:5673/%2F"),
        ),
    ],
)
def test_other_names_for_a_setting_are_known(file: Path, text: str, settings: Settings) -> None:
    file.write_text(text)
    assert settings_from_file(file) == settings


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("shop.toml", "queuecraft"),
        ("shop.toml", "tool.queuecraft"),
        ("pyproject.toml", "tool.queuecraft"),
    ],
)
def test_a_file_may_be_shared_with_others(file: Path, name: str, table: str) -> None:
    shared = file.with_name(name)
    shared.write_text(f"[other]\nttl = 0\n[{table}]\nttl = 5\n[{table}.retry]\nmax_retries = 1")
    assert settings_from_file(shared) == Settings(ttl=5, retry=Retry(max_retries=1))


def test_keywords_go_before_the_file(file: Path) -> None:
    file.write_text("ttl = 5\nconcurrency = 8")
    assert QueueCraft.from_file(file, ttl=6).settings == Settings(ttl=6, concurrency=8)
    assert QueueCraft.from_file(str(file), url=None).settings == Settings(ttl=5, concurrency=8)


def test_the_environment_has_no_say_in_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUECRAFT_TTL", "7")
    file.write_text("ttl = 5")
    assert settings_from_file(file).ttl == 5


def test_a_file_with_credentials_lies_beside_the_one_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('credentials_file = "broker.json"')
    assert settings_from_file(file).credentials == tmp_path / "broker.json"
    file.write_text('credentials_file = "/run/secrets/broker"')
    assert settings_from_file(file).credentials == Path("/run/secrets/broker")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("local://./my queue.db", "conf/my queue.db"),
        ("local://../queue.db", "queue.db"),
        ("LOCAL://./queue.db", "conf/queue.db"),
    ],
)
@pytest.mark.parametrize("absolute", [True, False])
def test_a_queue_in_a_file_lies_beside_the_one_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, path: str, absolute: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    file = (tmp_path if absolute else Path()) / "conf" / "shop.toml"
    file.write_text(f'url = "{url}"')
    found = path_of(settings_from_file(file).url)
    assert found is not None
    assert found.resolve() == tmp_path / path


@pytest.mark.parametrize(
    "url", ["local://", "local:///data/queue.db", "local://~/q.db", "redis://h"]
)
def test_any_other_address_stays_as_it_is_written(tmp_path: Path, url: str) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f'url = "{url}"')
    assert settings_from_file(file).url == url


@pytest.mark.parametrize(
    ("store", "path"),
    [
        ("later.db", "later.db"),
        ("../later.db", "../later.db"),
        ("/data/later.db", "/data/later.db"),
        ("~/later.db", "~/later.db"),
        ("local://./later.db", "later.db"),
    ],
)
def test_a_store_of_delayed_messages_lies_beside_the_one_that_names_it(
    tmp_path: Path, store: str, path: str
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(f'delayed.store = "{store}"')
    found = settings_from_file(file).delayed.store
    assert found is not None
    there = path_of(found) if "://" in found else Path(found)
    assert there is not None
    assert there.resolve() == (tmp_path / Path(path).expanduser()).resolve()


def test_a_store_elsewhere_stays_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text('delayed.store = "redis://h/1"')
    assert settings_from_file(file).delayed.store == "redis://h/1"


# -- what goes wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'concurrency = "8"',
            "concurrency='8' in shop.toml: expected a whole number from 1 on, such as 8 (default",
        ),
        ("ttl = 0", "ttl=0 in shop.toml: expected seconds above 0"),
        ("ttl = inf", "ttl=inf in shop.toml: expected seconds above 0"),
        ("ttl = 1979-05-27", "ttl=a date in shop.toml: expected seconds above 0"),
        (f"concurrency = 0x{'f' * 9000}", "concurrency=an int in shop.toml: expected a whole"),
        ("concurrency = {a = 1}", "concurrency=a dict in shop.toml: expected a whole number"),
        ("[retry]\ninitial_delay_ms = false", "retry.initial_delay_ms=False in shop.toml: expect"),
        ("[retry]\nmax_retries = 1.5", "retry.max_retries=1.5 in shop.toml: expected a whole"),
        ("[retry]\njitter = 2", "retry.jitter=2 in shop.toml: expected a share from 0 to 1"),
        ("[shutdown]\ntimeout = -5", "shutdown.timeout=-5 in shop.toml: expected milliseconds a"),
        ("[retry]\nmax_retrys = 1", "unknown setting 'retry.max_retrys' in shop.toml; did you m"),
        ("concurency = 1", "unknown setting 'concurency' in shop.toml; did you mean 'concurrency'"),
        ('paswort = "s3cret"', "unknown setting 'paswort' in shop.toml; did you mean 'password'"),
        ("xyz = 1", "unknown setting 'xyz' in shop.toml; known: url, type"),
        ("[retry.more]\nx = 1", "unknown setting 'retry.more' in shop.toml"),
        (
            "retry = 5",
            "retry=5 in shop.toml: expected true or false (default true); did you mean "
            "retry.max_retries?",
        ),
        ('compression = "lz4"', "compression='lz4' in shop.toml: expected one of 'gzip', 'zstd'"),
        ("ttl = false", "expected seconds above 0, such as 2.5 (default none)"),
        ("redis = 5", "redis in shop.toml is a table; set redis.mode, for example"),
        (
            "journal = 5",
            "journal=5 in shop.toml: expected a folder of this machine, such as './lak",
        ),
        ('journal_redact = "card"', "journal_redact='card' in shop.toml: expected a list of field"),
        ('password = 5\nusername = "s3cret"', "password in shop.toml: expected a text"),
        ("prefetch = 1\nqueue.prefetch = 2", "prefetch=1 in shop.toml and queue.prefetch=2 in s"),
        ("retry.factor = 2\nretry.backoff_factor = 3", "retry.factor=2 in shop.toml and retry.ba"),
        ('host = "h"', "type is missing, and host in shop.toml needs it: expected one of 'local'"),
        ('type = "kafka"', "host is missing, and type in shop.toml needs it: expected a text such"),
        ('url = "amqp://u:s3cret@h:x"', "url in shop.toml has a host or port that cannot be"),
        (
            'type = "kafka"\nurl = "one:9092,two:9092"',
            "no scheme; expected a URL such as 'local://'",
        ),
        ("url = 5", "url in shop.toml is int; expected a URL such as 'local://'"),
        ("queuecraft = 5", "queuecraft in shop.toml is 5, expected a table"),
        (
            "password = s3cret",
            "shop.toml is not TOML, at line 1, column 12: invalid value, text needs quotes; exp",
        ),
        ("password 's3cret'", "at line 1, column 10: expected '=' after a key in a key/value pair"),
        ('password = "s3cret', ": unterminated string; expected lines such as"),
        ("a = 1\na = 2\n", ": cannot overwrite a value, a name is there twice; expected lines"),
        ("a = {s3cret = 1, s3cret = 2}", "; expected lines such as"),
        ("[a]\n[a]", "shop.toml is not TOML, at line 2, column 3"),
        (f"a = {'9' * 5000}", "shop.toml is not TOML; expected lines such as"),
        (f"a = {'[' * 100_000}", "shop.toml is not TOML; expected lines such as"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings_from_file(file)
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_all_that_is_wrong_is_told_at_once(file: Path) -> None:
    file.write_text('ttl = 0\nconcurency = 1\ntype = "kafka"\n[retry]\nfactor = 0')
    with pytest.raises(ConfigError) as caught:
        QueueCraft.from_file(file, heartbeat=0)
    first, *lines = str(caught.value).splitlines()
    assert first == "5 settings are wrong:"
    assert [line.split("=")[0].split()[0] for line in lines] == [
        "ttl",
        "unknown",
        "retry.factor",
        "heartbeat",
        "host",
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"ttl = 1 # \xff", "not UTF-8 in line 1"), (b"#" * 2**21, "more than 1048576 bytes")],
    ids=["latin", "huge"],
)
def test_a_file_that_is_no_text_is_refused(file: Path, data: bytes, said: str) -> None:
    file.write_bytes(data)
    with pytest.raises(ConfigError, match=said):
        settings_from_file(file)


def test_a_file_that_is_not_there_is_named(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file shop\.toml"):
        QueueCraft.from_file("shop.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        QueueCraft.from_file(".")
    with pytest.raises(ConfigError, match="it cannot be a path"):
        QueueCraft.from_file("nul\0")


def test_a_project_file_needs_a_table_for_us(file: Path) -> None:
    file.with_name("pyproject.toml").write_text("[project]\nname = 'shop'")
    with pytest.raises(ConfigError, match=r"pyproject\.toml has no table \[tool\.queuecraft\]"):
        settings_from_file("pyproject.toml")


def test_every_error_is_one_of_ours(file: Path) -> None:
    file.write_text("ttl = 0")
    with pytest.raises(QueueError):
        settings_from_file(file)


def test_the_journal_of_a_file_is_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("""
journal = "lake"
journal_payload = "full"
journal_redact = ["card.number"]
""")
    settings = settings_from_file(file)
    expected = Journal(tmp_path / "lake", payload="full", redact=("card.number",))
    assert settings.journal_settings == expected
    given = Journal("elsewhere")  # from code, which says it all
    assert settings_from_file(file, given={"journal": given}).journal_settings is given
