"""Every setting can be said in every source, and the guide says how."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from queuecraft import DeadLetter, Retry, Settings
from queuecraft.config.names import GROUPS, NAMES, VARIABLES
from queuecraft.model.delayed import DelayedSettings
from queuecraft.model.settings import NAMES as KEYWORDS

GUIDE = Path(__file__).parents[2] / "docs" / "configuration.md"

ALIASES = {
    "queue.type": "type",
    "queue.url": "url",
    "retry.max_attempts": "retry.max_retries",
    "retry.initial_delay_ms": "retry.initial_delay",
    "retry.backoff_multiplier": "retry.factor",
    "retry.backoff_factor": "retry.factor",
    "dead_letter_queue.enabled": "dead_letter.enabled",
    "message_ttl": "ttl",
    "max_deliveries": "retry.max_retries",
    "queue.prefetch": "prefetch",
    "queue.batch_size": "batch_size",
    "queue.compression": "compression",
    "shutdown.timeout": "shutdown_timeout",
}


def test_every_setting_has_a_name_in_files() -> None:
    keys = {name.key.replace(".", "_") for name in NAMES.values()}
    assert set(KEYWORDS) - {"retry", "dead_letter", "delayed"} <= keys
    assert {f"retry.{each.name}" for each in fields(Retry)} <= set(NAMES)
    assert {f"dead_letter.{each.name}" for each in fields(DeadLetter)} <= set(NAMES)
    assert {f"delayed.{each.name}" for each in fields(DelayedSettings)} <= set(NAMES)
    assert {each.name for each in fields(Settings)} <= set(KEYWORDS)


def test_every_name_has_a_variable_that_is_no_other_s() -> None:
    reached = {name.path for name in VARIABLES.values()}
    own = {name.path for name in NAMES.values()}
    assert own - reached == {"redis_mode", "redis_delivery"}  # the variable of `redis.mode`
    assert VARIABLES["QUEUECRAFT_SHUTDOWN_TIMEOUT"].path == "shutdown_timeout"
    assert VARIABLES["QUEUECRAFT_SHUTDOWN__TIMEOUT"].path == "shutdown.timeout"


def test_the_names_of_others_are_known() -> None:
    assert {alias: NAMES[alias].key for alias in ALIASES} == ALIASES
    groups = {"queue", "retry", "dead_letter", "dead_letter_queue", "shutdown", "redis", "delayed"}
    assert groups == GROUPS


def test_the_guide_lists_every_name_with_its_default() -> None:
    rows = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    told = set(re.findall(r"`([^`]+)`", "\n".join(rows)))
    assert {path for path in NAMES if path not in ("redis_mode", "redis_delivery")} <= told
    for name in NAMES.values():
        if name.path == name.key:
            variable = name.variable.removeprefix("QUEUECRAFT_")
            (row,) = [line for line in rows if line.startswith(f"| `{name.path}` |")]
            assert f"| `{variable}` |" in row
            default = name.default.replace("'", '"').replace("None", "none").removesuffix(".0")
            assert f"| {default.lower()} |" in row.replace("`", "").replace(",", ""), row
