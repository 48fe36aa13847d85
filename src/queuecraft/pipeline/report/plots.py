"""Plots as SVG: shapes stretch with the page, letters and lines keep their size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from queuecraft.pipeline.report.axis import clock, ticks, time_lengths, time_ticks
from queuecraft.pipeline.report.figures import Axis, Counts, Growth, Percentiles
from queuecraft.pipeline.report.markup import Markup, element
from queuecraft.pipeline.report.units import seconds, short

DEEP = 1000  # units from the bottom of a plot to its top
ABOVE, BELOW = 20, 22  # pixels: the line that tells what is pointed at, the labels of the time
LEFT = 46  # pixels: the labels of the values
MARKS = {True: 5, False: 3}  # lines across a plot, if it is tall and if it is not
ROOM = 0.6  # of its stretch that a bar takes where there are few
OUTCOMES: tuple[tuple[str, str, Callable[[Counts], int]], ...] = (
    ("ok", "succeeded", lambda each: each.succeeded),
    ("retry", "retried", lambda each: each.retried),
    ("dead", "dead", lambda each: each.dead),
    ("other", "dropped or expired", lambda each: each.dropped + each.expired),
)
LATENCIES = (("p99", "p99"), ("p95", "p95"), ("p50", "p50"))
WIDE_SPREAD = 20.0  # the largest over the smallest; from there on a step is ten times as much


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to heights."""

    marks: Sequence[float]
    log: bool = False

    def height(self, value: float) -> int:
        """Units from the bottom."""
        low, high = self.marks[0], self.marks[-1]
        if self.log:
            value = math.log10(max(value, low))
            low, high = math.log10(low), math.log10(high)
        return round(DEEP * min(max((value - low) / (high - low), 0.0), 1.0))


def throughput_plot(axis: Axis, counts: Sequence[Counts], *, tall: bool = True) -> Markup:
    """Deliveries over time, stacked by outcome, and a line for what was published."""
    stacks = [[of(each) for _, _, of in OUTCOMES] for each in counts]
    highest = max([*map(sum, stacks), *(each.published for each in counts)], default=0)
    scale = Scale(ticks(highest, MARKS[tall], whole=True))
    shapes: list[Markup] = []
    gap = (1 - ROOM) / 2 if axis.count <= 40 else 0.1 if axis.count <= 80 else 0.0
    for number, (name, _, _) in enumerate(OUTCOMES):
        bars = "".join(
            _bar(place + gap, 1 - 2 * gap, scale, sum(stack[:number]), sum(stack[: number + 1]))
            for place, stack in enumerate(stacks)
        )
        if bars:
            shapes.append(element("path", d=bars, class_=f"fill {name}"))
    if any(each.published for each in counts):
        line = "".join(
            f"{'L' if place else 'M'}{place} {_down(scale, each.published)}H{place + 1}"
            for place, each in enumerate(counts)
        )
        shapes.append(element("path", d=line, class_="line published"))
    tips = [
        [(name, f"{of(each):,} {word}") for name, word, of in OUTCOMES if of(each)]
        + [("published", f"{each.published:,} published")]
        if each.delivered or each.published
        else None
        for each in counts
    ]
    return _plot(axis, scale, shapes, tips, tall=tall, told=short, what="Messages over time")


def latency_plot(axis: Axis, latency: Sequence[Percentiles], *, tall: bool = True) -> Markup:
    """How long messages took over time: half, 95 and 99 of a hundred stay below the lines."""
    known = [value for each in latency for value in each.values if value is not None]
    scale = _time_scale(known, MARKS[tall])
    shapes: list[Markup] = []
    runs = list(_runs(latency))
    for begin, run in runs:
        upper = _path(begin, [each.p99 for each in run], scale)
        lower = _path(begin, [each.p50 for each in run], scale, back=True)
        if len(run) > 1:
            shapes.append(element("path", d=f"{upper}L{lower[1:]}Z", class_="fill band"))
    for name, of in LATENCIES:
        line = "".join(
            _path(begin, [getattr(each, of) for each in run], scale) for begin, run in runs
        )
        if line:
            shapes.append(element("path", d=line, class_=f"line {name}"))
    tips = [
        None
        if each.p50 is None
        else [(name, f"{name} {seconds(getattr(each, of))}") for name, of in reversed(LATENCIES)]
        for each in latency
    ]
    return _plot(axis, scale, shapes, tips, tall=tall, told=seconds, what="Latency over time")


def backlog_plot(axis: Axis, growth: Growth) -> Markup:
    """How many messages wait in a queue over time; anomalies are marked."""
    known = [each for each in growth.series if each is not None]
    lowest = min([0, *known])
    upper = ticks(max([0, *known]), MARKS[False], whole=True)
    size = upper[1]
    marks = [-size * number for number in range(math.ceil(-lowest / size), 0, -1)] + upper
    scale = Scale(marks)
    line = "".join(
        f"{'M' if place == 0 or growth.series[place - 1] is None else 'L'}"
        f"{place} {_down(scale, each)}H{place + 1}"
        for place, each in enumerate(growth.series)
        if each is not None
    )
    shapes: list[Markup] = []
    if line:
        places = [place for place, each in enumerate(growth.series) if each is not None]
        floor = _down(scale, 0)
        area = f"{line}V{floor}H{places[0]}Z"
        shapes = [
            element("path", d=area, class_="fill backlog"),
            element("path", d=line, class_="line backlog"),
        ]
    marked = [(place, growth.series[place] or 0) for place in growth.marks]
    tips = [
        None
        if each is None
        else [("backlog", f"{each:,} waiting")]
        + ([("dead", "unusual growth")] if place in growth.marks else [])
        for place, each in enumerate(growth.series)
    ]
    return _plot(
        axis,
        scale,
        shapes,
        tips,
        tall=False,
        told=short,
        what=f"Backlog of {growth.queue} over time",
        marked=marked,
    )


def sparkline(values: Sequence[float | None], name: str = "ok") -> Markup:
    """A small line without axes, for beside a number that tells more."""
    known = [each for each in values if each is not None]
    scale = Scale([0.0, max([*known, 1e-9])])
    line = "".join(
        f"{'M' if place == 0 or values[place - 1] is None else 'L'}"
        f"{place} {_down(scale, each)}H{place + 1}"
        for place, each in enumerate(values)
        if each is not None
    )
    return element(
        "svg",
        element("path", d=line or "M0 0", class_=f"line {name}"),
        class_="spark",
        viewBox=f"0 0 {max(len(values), 1)} {DEEP}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def share_bar(share: float, name: str = "dead") -> Markup:
    """A bar that is as long as a share is large."""
    return element(
        "svg",
        element("rect", width="100%", height=6, rx=3, class_="track"),
        element("rect", width=_percent(max(share, 0.005)), height=6, rx=3, class_=f"fill {name}"),
        class_="share",
        height=6,
        aria_hidden="true",
    )


def _plot(
    axis: Axis,
    scale: Scale,
    shapes: Iterable[Markup],
    tips: Sequence[Sequence[tuple[str, str]] | None],
    *,
    tall: bool,
    told: Callable[[float], str],
    what: str,
    marked: Sequence[tuple[int, float]] = (),
) -> Markup:
    deep = 200 if tall else 110
    above = ABOVE if tall else 8
    whole = above + deep + BELOW

    def pixel(value: float) -> str:
        return f"{above + deep * (1 - scale.height(value) / DEEP):.1f}"

    labels = [
        element("text", told(value), x=LEFT - 8, y=pixel(value), dy="0.32em", text_anchor="end")
        for value in (scale.marks if tall else _thinned(scale.marks))
    ]
    lines = [
        element("line", x1=0, x2="100%", y1=pixel(value), y2=pixel(value), class_="grid")
        for value in (scale.marks if tall else _thinned(scale.marks))
    ]
    times = [
        element(
            "text",
            text,
            x=_percent(at),
            y=whole - 6,
            text_anchor="start" if at < 0.02 else "end" if at > 0.97 else "middle",
            class_="time" if number % 2 == 0 else "time wide",
        )
        for number, (at, text) in enumerate(time_ticks(axis))
    ]
    dots = [
        element(
            "circle", cx=_percent((place + 0.5) / axis.count), cy=pixel(value), r=4, class_="mark"
        )
        for place, value in marked
    ]
    draw = _spoken_tip if tall else _quiet_tip
    return element(
        "div",
        element("svg", *labels, class_="ys", width=LEFT, height=whole, aria_hidden="true"),
        element(
            "svg",
            *lines,
            element(
                "svg",
                *shapes,
                y=above,
                width="100%",
                height=deep,
                viewBox=f"0 0 {axis.count} {DEEP}",
                preserveAspectRatio="none",
            ),
            *dots,
            *times,
            *(
                draw(axis, place, tip, above, deep)
                for place, tip in enumerate(tips)
                if tip is not None
            ),
            class_="xs",
            height=whole,
            role="img",
            aria_label=f"{what}. The numbers are in the table below.",
        ),
        class_="plot",
    )


def _spoken_tip(
    axis: Axis, place: int, tip: Sequence[tuple[str, str]], above: int, deep: int
) -> Markup:
    """What a stretch of time holds, on a line above the plot while it is pointed at."""
    middle = (place + 0.5) / axis.count
    parts = [element("tspan", text, dx=10, class_=f"ink {name}") for name, text in tip]
    right = middle > 0.5
    return element(
        "g",
        element(
            "rect",
            x=_percent(place / axis.count),
            y=0,
            width=_percent(1 / axis.count),
            height=above + deep,
        ),
        element("line", x1=_percent(middle), x2=_percent(middle), y1=above, y2=above + deep),
        element(
            "text",
            element("tspan", clock(axis.moment(place)), class_="when"),
            *parts,
            x="100%" if right else 0,
            y=12,
            text_anchor="end" if right else "start",
        ),
        class_="tip",
    )


def _quiet_tip(
    axis: Axis, place: int, tip: Sequence[tuple[str, str]], above: int, deep: int
) -> Markup:
    """The same for the browser to show, where a plot has no room for it."""
    text = ", ".join(text for _, text in tip)
    return element(
        "rect",
        element("title", f"{clock(axis.moment(place))}: {text}"),
        x=_percent(place / axis.count),
        y=0,
        width=_percent(1 / axis.count),
        height=above + deep,
        class_="hit",
    )


def _time_scale(known: Sequence[float], most: int) -> Scale:
    positive = [each for each in known if each > 0]
    if not positive:
        return Scale([0.0, 1.0])
    # Faster than a microsecond is not measured, and would only stretch the scale.
    lowest, highest = max(min(positive), 1e-6), max(max(positive), 1e-6)
    if highest / lowest > WIDE_SPREAD:
        return Scale(time_lengths(lowest, highest), log=True)
    return Scale(ticks(highest, most))


def _runs(latency: Sequence[Percentiles]) -> Iterable[tuple[int, list[Percentiles]]]:
    """Stretches of time that follow each other and have something measured in them."""
    run: list[Percentiles] = []
    for place, each in enumerate([*latency, Percentiles()]):
        if each.p50 is not None:
            run.append(each)
        elif run:
            yield place - len(run), run
            run = []


def _path(begin: int, values: Sequence[float | None], scale: Scale, *, back: bool = False) -> str:
    points = [
        f"{begin + place + 0.5} {_down(scale, value or 0.0)}" for place, value in enumerate(values)
    ]
    if len(points) == 1:  # a line needs a length to be seen
        down = _down(scale, values[0] or 0.0)
        points = [f"{begin + 0.2} {down}", f"{begin + 0.8} {down}"]
    return "M" + "L".join(reversed(points) if back else points)


def _bar(left: float, width: float, scale: Scale, low: float, high: float) -> str:
    if high <= low:
        return ""
    top, bottom = _down(scale, high), _down(scale, low)
    top = min(top, bottom - 4)  # so few that they would not be seen are seen all the same
    return f"M{left:g} {bottom}V{top}h{width:g}V{bottom}Z"


def _down(scale: Scale, value: float) -> int:
    """Units from the top, as SVG counts."""
    return DEEP - scale.height(value)


def _thinned(marks: Sequence[float]) -> Sequence[float]:
    """Every other from the top, where there is less room."""
    return marks if len(marks) <= 4 else marks[::-1][::2]


def _percent(share: float) -> str:
    return f"{share * 100:.3f}".rstrip("0").rstrip(".") + "%"


def legend(*names: tuple[str, str]) -> Markup:
    """Which colour is what."""
    return element(
        "ul",
        *(
            element("li", element("span", class_=f"key {name}", aria_hidden="true"), text)
            for name, text in names
        ),
        class_="legend",
    )
