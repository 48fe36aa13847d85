"""Where settings come from: keywords, a settings object, a file, or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from queuecraft.config.choices import Choices
from queuecraft.config.environment import dotenv_layer, dotenv_lines, environment_layer
from queuecraft.config.file import pictured
from queuecraft.config.layer import Layer, keywords, merged
from queuecraft.config.report import Report
from queuecraft.config.toml import toml_layer
from queuecraft.model.checks import refusal
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.policy import DeadLetter, NoDeadLetter, NoRetry, Retry
from queuecraft.model.settings import ADDRESS, Settings, misfits

__all__ = ["Settings", "settings_from_environment", "settings_from_file"]

CONFIG = "QUEUECRAFT_CONFIG"
"""The variable that names the TOML file."""

_FIELDS = frozenset(each.name for each in fields(Settings))  # the address is one of them: its URL


def settings_from_environment(
    environ: Mapping[str, str] | None = None,
    *,
    env_file: str | os.PathLike[str] | None = None,
    given: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from, the first that says it: keywords `given`, `QUEUECRAFT_…` variables, a `.env`
    file, the TOML file that QUEUECRAFT_CONFIG names or `queuecraft.toml`, the defaults.

    >>> settings_from_environment({"QUEUECRAFT_RETRY_MAX_RETRIES": "5"}).retry.max_retries
    5
    >>> settings_from_environment({"QUEUECRAFT_CONCURENCY": "8"})
    Traceback (most recent call last):
    queuecraft.ConfigError: QUEUECRAFT_CONCURENCY is no setting; did you mean ...
    """
    environ = os.environ if environ is None else environ
    said = dict(given or {})
    choices = Choices.taken_from(said)
    report = Report()
    path = Path(".env" if env_file is None else env_file)
    lines = dotenv_lines(path, report, needed=env_file is not None)
    named, asked = environ.get(CONFIG, ""), CONFIG
    if not named and CONFIG in lines:
        named = lines[CONFIG].value
        asked = f"{CONFIG} in {pictured(path)}, line {lines[CONFIG].number}"
    toml = Path(named or "queuecraft.toml")
    layers = [
        toml_layer(toml, report, needed=bool(named), asked=asked),
        dotenv_layer(path, lines, report),
        environment_layer(environ, report),
        keywords(said, report),
    ]
    return _settings(layers, choices, report)


def settings_from_file(
    path: str | os.PathLike[str], *, given: Mapping[str, Any] | None = None
) -> Settings:
    """Settings from a TOML file, under keywords.

    >>> settings_from_file("no-such.toml")
    Traceback (most recent call last):
    queuecraft.ConfigError: there is no file no-such.toml
    """
    said = dict(given or {})
    choices = Choices.taken_from(said)
    report = Report()
    layers = [toml_layer(Path(path), report, needed=True), keywords(said, report)]
    return _settings(layers, choices, report)


def _settings(layers: Sequence[Layer], choices: Choices, report: Report) -> Settings:
    found = merged(layers)
    choices.check(found, report)
    values = {_keyword(key): each.value for key, each in found.items()}
    labels = {_keyword(key): each.label for key, each in found.items()}
    if ADDRESS.isdisjoint(map(_keyword, report.spoilt)):
        values["url"], problems = misfits(values, lambda name: labels.get(name, name))
        report.lines += problems
    if report.lines:
        raise refusal(report.lines)
    if inside := _table(found, "retry"):
        on = inside.pop("enabled", True)
        values["retry"] = Retry(**inside) if on else NoRetry()
    if inside := _table(found, "dead_letter"):
        on = inside.pop("enabled", True)
        values["dead_letter"] = DeadLetter(**inside) if on else NoDeadLetter()
    if inside := _table(found, "delayed"):
        values["delayed"] = DelayedSettings(**inside)
    return Settings(**{name: values[name] for name in values if name in _FIELDS})


def _keyword(key: str) -> str:
    """How a setting is called in code."""
    return key.replace(".", "_")


def _table(found: Layer, name: str) -> dict[str, Any]:
    start = f"{name}."
    return {k.removeprefix(start): each.value for k, each in found.items() if k.startswith(start)}
