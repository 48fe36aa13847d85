"""Whatever a source holds, the answer is settings or a `ConfigError`, and no secret is told."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queuecraft import ConfigError, Settings
from queuecraft.config import settings_from_environment, settings_from_file
from queuecraft.config.names import NAMES, VARIABLES

SECRET = "s3cReT"


def told(settings: Settings | ConfigError) -> str:
    return f"{settings} {settings!r}"


def harmless(answer: Settings | ConfigError) -> bool:
    """Whether it can be shown on any terminal, and takes no more than a screen."""
    lines = str(answer).split("\n")
    return len(lines) <= 22 and all(line.isprintable() for line in lines) and bool(repr(answer))


def made(**source: Any) -> Settings | ConfigError:
    """Settings, or the error that says why not; anything else that is raised fails the test."""
    try:
        return settings_from_environment(**source)
    except ConfigError as error:
        return error


@contextmanager
def file(name: str, content: str | bytes) -> Generator[Path]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        data = content if isinstance(content, bytes) else content.encode(errors="replace")
        path.write_bytes(data)
        yield path


def read(content: str | bytes) -> Settings | ConfigError:
    with file("queuecraft.toml", content) as path:
        try:
            return settings_from_file(path)
        except ConfigError as error:
            return error


# -- any text at all -------------------------------------------------------------------------------

environ_text = st.text(st.characters(exclude_characters="\0"), max_size=30)
numbers = st.integers().map(str) | st.floats().map(str)
words = st.sampled_from(
    ["", "none", "true", "off", "local", "rabbitmq", "redis", "kafka", "amqp://h", "redis://h?mode=x",
     "local://", "amqp://a:b@h", "one,two", "::1", "list", "stream", "wait", "gzip", "5672"]
)  # fmt: skip
values = words | numbers | environ_text


@given(st.dictionaries(st.sampled_from(sorted(VARIABLES)), values, max_size=8))
def test_any_environment_gives_settings_or_one_error(environ: Mapping[str, str]) -> None:
    assert harmless(made(environ=environ))


@given(environ_text.map(lambda text: f"QUEUECRAFT_{text}"), environ_text)
def test_any_variable_gives_settings_or_one_error(variable: str, text: str) -> None:
    assert harmless(made(environ={variable: text}))


@given(st.text() | st.binary())
def test_any_dotenv_file_gives_settings_or_one_error(content: str | bytes) -> None:
    with file(".env", content) as path:
        assert harmless(made(environ={}, env_file=path))


@given(st.text() | st.binary())
def test_any_file_gives_settings_or_one_error(content: str | bytes) -> None:
    assert harmless(read(content))


toml_values = st.one_of(
    numbers.filter(lambda text: "e" not in text),
    st.booleans().map(lambda value: str(value).lower()),
    words.map(lambda text: f'"{text}"'),
    st.integers(0, 2**200).map(hex),
    st.sampled_from(["[]", "{}", "1979-05-27", "07:32:00", "[1, 2]", "{a = 1}", "''", '"\\u0000"']),
)
toml_keys = st.sampled_from(sorted(NAMES)) | st.sampled_from(
    ["", "a.b", "queue", "retry.x", "tool"]
)


@given(st.dictionaries(toml_keys, toml_values, max_size=8), st.sampled_from(["", "[queuecraft]\n"]))
def test_any_keys_and_values_give_settings_or_one_error(
    table: Mapping[str, str], head: str
) -> None:
    lines = [f"{key} = {value}" for key, value in table.items()]
    assert harmless(read(head + "\n".join(lines)))


@given(st.dictionaries(st.sampled_from(sorted(NAMES)) | st.text(), st.from_type(object) | values))
def test_any_keywords_give_settings_or_one_error(given: Mapping[str, Any]) -> None:
    assert harmless(made(environ={}, given=given))


# -- a secret among it -----------------------------------------------------------------------------

around = st.text("ab:/?#@[],%&= \t'\"\\\n", max_size=5)
secrets = st.tuples(around, around).map(lambda both: f"{both[0]}{SECRET}{both[1]}")
in_urls = st.builds(
    "{}://{}{}@{}{}".format,
    st.sampled_from(["amqp", "redis", "kafka", "local", "mine", "AMQPS", "", "1"]),
    st.sampled_from(["ada:", ":"]),
    secrets,
    st.sampled_from(["host", "one,two:5", "", "[::1]", "host:port", "host:0"]),
    st.sampled_from(["", "/shop", "?mode=heap", "/a b", "?x"]),
)
SECRETIVE = {"url": in_urls, "queue.url": in_urls, "password": secrets}
others = st.dictionaries(
    st.sampled_from(["type", "host", "port", "username", "vhost", "credentials_file", "ttl"]), words
)


@given(
    st.sampled_from(sorted(SECRETIVE)).flatmap(lambda k: st.tuples(st.just(k), SECRETIVE[k])),
    others,
)
def test_a_secret_in_the_environment_is_never_told(
    secret: tuple[str, str], rest: Mapping[str, str]
) -> None:
    given = {NAMES[path].variable: text for path, text in [*rest.items(), secret]}
    assert SECRET not in told(made(environ=given))
    twice = given | {"QUEUECRAFT_QUEUE_URL": "local://", "QUEUECRAFT_TTL": "0"}
    assert SECRET not in told(made(environ=twice))


@given(
    st.sampled_from(sorted(SECRETIVE)).flatmap(lambda k: st.tuples(st.just(k), SECRETIVE[k])),
    others,
)
def test_a_secret_in_a_file_is_never_told(secret: tuple[str, str], rest: Mapping[str, str]) -> None:
    key, text = secret
    lines = [f'{name} = "{value}"' for name, value in rest.items()]
    escaped = text.translate({each: f"\\u{each:04x}" for each in map(ord, '"\\\n\t')})
    for line in (f'{key} = "{escaped}"', f"{key} = {text}", f"{key} = [{text}]", text):
        assert SECRET not in told(read("\n".join([*lines, line])))


@given(secrets)
def test_a_secret_in_a_dotenv_file_is_never_told(text: str) -> None:
    for line in (text, f"QUEUECRAFT_PASSWORD={text}", f'QUEUECRAFT_PASSWORD="{text}"', f"={text}"):
        with file(".env", f"QUEUECRAFT_TTL=0\n{line}\n") as path:
            assert SECRET not in told(made(environ={}, env_file=path))


@pytest.mark.parametrize("key", ["url", "password"])
@given(secrets)
def test_a_secret_in_code_is_never_told(key: str, text: str) -> None:
    for value in (text, f"amqp://ada:{text}@host", [text], text.encode(), {"a": text}):
        assert SECRET not in told(made(environ={}, given={key: value, "ttl": 0}))
