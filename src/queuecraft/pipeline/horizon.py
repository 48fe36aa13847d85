"""How far back a lake reaches: what is older may have been let go of."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from queuecraft.pipeline.jobs.swap import write
from queuecraft.pipeline.lake import Lake

UNKNOWN: Final = datetime.max.replace(tzinfo=UTC)


class _Kept(msgspec.Struct, frozen=True):
    before: Annotated[datetime, msgspec.Meta(tz=True)]


def horizon(lake: Lake) -> datetime | None:
    """What was published before that may be gone; None if nothing has expired. Where it cannot be
    read, anything may be: `UNKNOWN`, which is later than all else.

    >>> horizon(Lake.at("no-such-lake"))
    """
    try:
        return msgspec.json.decode(lake.horizon.read_bytes(), type=_Kept).before
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # that of a text which is no UTF-8 among them
        return UNKNOWN


def move_horizon(lake: Lake, before: datetime, now: datetime) -> None:
    """Write down that what was published before is going to be removed. When this returns, no kill
    makes it forgotten; what was let go of does not come back, so the latest holds.

    >>> from datetime import timedelta
    >>> from tempfile import TemporaryDirectory
    >>> now = datetime(2026, 4, 1, tzinfo=UTC)
    >>> with TemporaryDirectory() as folder:
    ...     lake = Lake.at(folder)
    ...     for days in (30, 90):
    ...         move_horizon(lake, now - timedelta(days=days), now)
    ...     print(horizon(lake))
    2026-03-02 00:00:00+00:00
    """
    known = horizon(lake)
    if known == UNKNOWN:
        before = now  # wherever it was, it was not in the future
    elif known is not None and known >= before:
        return
    write(lake.horizon, msgspec.json.encode(_Kept(before)))
