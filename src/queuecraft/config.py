"""Where settings come from: keywords, a settings object, or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints

from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import DeadLetter, Retry
from queuecraft.model.settings import Settings

__all__ = ["Settings", "settings_from_environment"]


PREFIX = "QUEUECRAFT_"
_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


def settings_from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `QUEUECRAFT_<SETTING>` variables.

    >>> settings_from_environment({"QUEUECRAFT_CONCURRENCY": "8"}).concurrency
    8
    >>> settings_from_environment({"QUEUECRAFT_CONCURENCY": "8"})
    Traceback (most recent call last):
    queuecraft.model.errors.ConfigError: QUEUECRAFT_CONCURENCY is no setting; did you mean ...
    """
    environ = os.environ if environ is None else environ
    hints = get_type_hints(Settings)
    variables = {PREFIX + each.name.upper(): each.name for each in fields(Settings)}
    for variable in environ:
        # Others share the prefix, such as tokens: only what looks like a slip is refused.
        if variable.startswith(PREFIX) and variable not in variables:
            close = get_close_matches(variable, variables, 1, cutoff=0.95)
            if close:
                raise ConfigError(f"{variable} is no setting; did you mean {close[0]}?")
    return Settings.of(
        {
            name: _parse(variable, hints[name], environ[variable].strip())
            for variable, name in variables.items()
            if variable in environ
        }
    )


def _parse(variable: str, hint: Any, text: str) -> Any:
    """A value of the setting's type from the text of an environment variable."""
    kinds = get_args(hint) or (hint,)
    word = text.lower()
    if Retry in kinds or DeadLetter in kinds:
        raise ConfigError(f"{variable} cannot be set in the environment; set it in code")
    if type(None) in kinds and word in ("", "none"):
        return None
    if bool in kinds and word in (*_TRUE, *_FALSE):
        return word in _TRUE
    if bool in kinds and str not in kinds:
        raise ConfigError(f"{variable}={text!r}: expected true or false")
    number = next((kind for kind in (int, float) if kind in kinds), None)
    if number is None:
        return text
    try:
        return number(text)
    except ValueError:
        expected = "a whole number" if number is int else "a number"
        raise ConfigError(f"{variable}={text!r}: expected {expected}") from None
