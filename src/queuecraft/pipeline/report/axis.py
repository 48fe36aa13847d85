"""How time is cut into stretches, and where a plot's lines and labels go."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from queuecraft.pipeline.report.figures import Axis, moment

MINUTE, HOUR, DAY = 60, 3600, 86400
WEEK = 7 * DAY
MONDAY = 4 * DAY  # the first one after the epoch
MOST, FEWEST = 120, 12  # stretches of time in a plot
_STEPS = (
    *(MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY),
)


def axis_over(first: int, last: int) -> Axis:
    """Stretches from the minute `first` to the minute `last`, at most 120 however long that is.

    >>> axis_over(0, 3540)
    Axis(start=0, step=60, count=60)
    >>> axis_over(0, 60 * 1_000_000).count <= MOST
    True
    """
    length = last - first + MINUTE
    step = next((each for each in _STEPS if _stretches(first, length, each) <= MOST), 0)
    if not step:
        step = WEEK * math.ceil(length / (MOST - 1) / WEEK)
    origin = MONDAY if step % WEEK == 0 else 0
    start = (first - origin) // step * step + origin
    count = (last - start) // step + 1
    if count < FEWEST:  # so that one message is a bar, and not a wall
        start -= (FEWEST - count) // 2 * step
        count = FEWEST
    return Axis(start, step, count)


def _stretches(first: int, length: int, step: int) -> int:
    return (first % step + length + step - 1) // step


def ticks(highest: float, most: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers from 0 to at least `highest`, not closer than 1 if they are `whole`.

    >>> ticks(7), ticks(300), ticks(0), ticks(2, whole=True)
    ([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 100.0, 200.0, 300.0], [0.0, 1.0], [0.0, 1.0, 2.0])
    """
    if highest < 1e-9:
        return [0.0, 1.0]
    rough = highest / most
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(each * power for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    if whole:
        size = max(size, 1.0)
    count = max(1, math.ceil(highest / size - 1e-9))
    return [number * size for number in range(count + 1)]


_LENGTHS = (  # of time, each several times the one before
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY),
    *(10 * DAY, 100 * DAY, 1000 * DAY, 1e4 * DAY, 1e5 * DAY, 1e6 * DAY, 1e7 * DAY),
)


def time_lengths(lowest: float, highest: float) -> list[float]:
    """Round lengths of time around two, seven at most.

    >>> time_lengths(0.003, 25)
    [0.001, 0.01, 0.1, 1.0, 10.0, 60]
    """
    low = max((place for place, each in enumerate(_LENGTHS) if each <= lowest), default=0)
    above = (place for place, each in enumerate(_LENGTHS) if each >= highest)
    high = max(next(above, len(_LENGTHS) - 1), low + 1)
    every = math.ceil((high - low) / 6)
    low = max(0, high - math.ceil((high - low) / every) * every)
    chosen = list(_LENGTHS[low : high + 1 : every])
    return chosen if chosen[-1] == _LENGTHS[high] else [*chosen, _LENGTHS[high]]


_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_TICKS = (
    *(MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE),
    *(HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, WEEK, 2 * WEEK),
)


def time_ticks(axis: Axis, most: int = 8) -> list[tuple[float, str]]:
    """Where labels of the time go, as shares of the axis, and what they say.

    >>> time_ticks(Axis(0, 3600, 24), most=3)
    [(0.0, '1 Jan'), (0.5, '12:00')]
    """
    length = axis.end - axis.start
    step = next((each for each in _TICKS if length / each <= most), 0)
    if not step:
        step = 4 * WEEK * math.ceil(length / most / (4 * WEEK))
    origin = MONDAY if step % WEEK == 0 else 0
    first = -((origin - axis.start) // step) * step + origin
    return [
        ((at - axis.start) / length, _label(moment(at), step, length))
        for at in range(first, axis.end, step)
    ]


def _label(at: datetime, step: int, length: int) -> str:
    if step < DAY and (at.hour or at.minute):
        return at.strftime("%H:%M")
    day = f"{at.day} {_MONTHS[at.month - 1]}"
    return f"{day} {at.year}" if length > 300 * DAY else day


def stretch(axis: Axis) -> str:
    """How long one stretch is, in words.

    >>> stretch(Axis(0, 300, 12)), stretch(Axis(0, 86400, 12))
    ('5 minutes', 'day')
    """
    for name, size in (("week", WEEK), ("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if axis.step % size == 0:
            count = axis.step // size
            return name if count == 1 else f"{count} {name}s"
    return f"{axis.step} seconds"


def clock(at: datetime) -> str:
    """A moment as a person reads it.

    >>> clock(datetime(2030, 1, 2, 3, 4, tzinfo=UTC))
    '2030-01-02 03:04'
    """
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")
