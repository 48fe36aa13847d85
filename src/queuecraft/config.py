"""Where settings come from: keywords, a settings object, or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args, get_type_hints

from queuecraft.model.errors import ConfigError
from queuecraft.model.policy import DeadLetter, Retry
from queuecraft.model.settings import Settings

__all__ = ["Settings", "settings_from_environment"]


def settings_from_environment(environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from `QUEUECRAFT_<SETTING>` variables.

    >>> settings_from_environment({"QUEUECRAFT_CONCURRENCY": "8"}).concurrency
    8
    """
    environ = os.environ if environ is None else environ
    hints = get_type_hints(Settings)
    return Settings.of(
        {
            each.name: _parse(each.name, hints[each.name], environ[variable])
            for each in fields(Settings)
            if (variable := f"QUEUECRAFT_{each.name.upper()}") in environ
        }
    )


def _parse(name: str, hint: Any, text: str) -> Any:
    """A value of the setting's type from the text of an environment variable."""
    kinds = get_args(hint) or (hint,)
    if type(None) in kinds and text.lower() in ("", "none"):
        return None
    if bool in kinds and text.lower() in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        return text.lower() in ("true", "1", "yes", "on")
    try:
        if int in kinds:
            return int(text)
        if float in kinds:
            return float(text)
    except ValueError:
        kind = "a whole number" if int in kinds else "a number"
        variable = f"QUEUECRAFT_{name.upper()}"
        raise ConfigError(f"{variable}={text!r}: expected {kind}") from None
    if Retry in kinds or DeadLetter in kinds:
        raise ConfigError(f"{name!r} cannot be set by QUEUECRAFT_{name.upper()}; set it in code")
    return text
