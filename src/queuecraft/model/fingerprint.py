"""Which errors are the same error: one short name for each group of failures."""

from __future__ import annotations

import hashlib
import re

_VARIABLE = re.compile(
    r"""0x[0-9a-f]+                                             # addresses
      | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b         # UUIDs
      | \b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b                         # hashes and hex ids
      | \b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*                  # times
      | '[^'\n]*' | "[^"\n]*"                                   # quoted values
      | \d+(?:[.,]\d+)*                                         # numbers
    """,
    re.VERBOSE | re.IGNORECASE,
)
# Tracebacks come with messages and may be hostile: nothing here backtracks over lines.
_FRAME = re.compile(r'^[ \t]*File "(?P<file>[^"]+)", line \d+, in (?P<function>\S+)', re.MULTILINE)


def normalise(message: str) -> str:
    """An error message without the parts that differ from one message to the next.

    >>> normalise("order 'o-17' not found after 3.5 s at 0x7f3a")
    'order ? not found after ? s at ?'
    """
    first_line = message.strip().split("\n", 1)[0][:1000]
    return " ".join(_VARIABLE.sub("?", first_line).split())


def fingerprint(error_type: str, message: str = "", traceback: str = "") -> str:
    """Twelve hex digits that failures with the same cause share.

    Made of the error's type, its message without ids and numbers, and the function that raised
    it; line numbers are left out, so that an unrelated edit does not split a group.

    >>> one = fingerprint("KeyError", "order 'o-1' not found")
    >>> one == fingerprint("KeyError", "order 'o-2' not found")
    True
    >>> one == fingerprint("ValueError", "order 'o-1' not found")
    False
    """
    frames = _FRAME.findall(traceback)
    file, function = frames[-1] if frames else ("", "")
    module = re.split(r"[/\\]", file)[-1]
    text = "\x00".join((error_type, normalise(message), module, function))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
