"""Charts as SVG, of lines and of bars, readable on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 50
COLOURS = ("#2f6fde", "#d9662c", "#2b9a66", "#8e4ec6", "#c2417c")
GREY = "#888888"


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points."""

    name: str
    points: Sequence[tuple[float, float]]


def chart(title: str, lines: Sequence[Line], *, x: str, y: str) -> str:
    """A chart whose axes start at zero, so that flat looks flat.

    >>> svg = chart("Rate", [Line("publish", [(0, 10), (1, 11)])], x="messages", y="msg/s")
    >>> svg.startswith("<svg") and "publish" in svg
    True
    """
    most_x = max(point[0] for line in lines for point in line.points)
    most_y = _round_up(max(point[1] for line in lines for point in line.points))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: tuple[float, float]) -> str:
        across = LEFT + wide * point[0] / most_x
        up = TOP + high * (1 - point[1] / most_y)
        return f"{across:.1f},{up:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{GREY}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for step in range(5):
        value, height = most_y * step / 4, TOP + high * (1 - step / 4)
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" '
            f'stroke="{GREY}" stroke-opacity="0.3"/>',
            f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">{_short(value)}</text>',
        ]
        value, across = most_x * step / 4, LEFT + wide * step / 4
        parts.append(
            f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{_short(value)}</text>"
        )
    parts += [
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>',
        f'<text x="{LEFT}" y="{TOP - 12}">{escape(y)}</text>',
    ]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        parts += [
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
            f'points="{" ".join(place(point) for point in line.points)}"/>',
            f'<text x="{WIDTH - RIGHT - 130 * (len(lines) - number) + 20}" y="{TOP - 12}" '
            f'fill="{colour}">{escape(line.name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class Bar:
    """A named length, and how far it reached in other rounds."""

    name: str
    value: float
    low: float
    high: float
    marked: bool = False
    """Drawn in the colour of ours."""


BAR_HEIGHT = 22
BAR_LEFT, BAR_WIDTH = 350, 800


def bars(title: str, drawn: Sequence[Bar], *, unit: str) -> str:
    """Horizontal bars from zero, a thin line from the lowest round to the highest.

    >>> svg = bars("Publish", [Bar("ours", 10, 9, 12, marked=True)], unit="msg/s")
    >>> svg.startswith("<svg") and "ours" in svg
    True
    """
    wide = BAR_WIDTH - BAR_LEFT - 90
    most = max(max(bar.high for bar in drawn), 1e-12)
    high = 60 + BAR_HEIGHT * len(drawn)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {BAR_WIDTH} {high}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{GREY}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="10" y="20" font-size="15">{escape(title)}, {escape(unit)}</text>',
    ]
    for number, bar in enumerate(drawn):
        top = 38 + BAR_HEIGHT * number
        middle = top + BAR_HEIGHT / 2 - 3
        reach, low, far = (wide * each / most for each in (bar.value, bar.low, bar.high))
        colour = COLOURS[0] if bar.marked else GREY
        parts += [
            f'<text x="{BAR_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(bar.name)}</text>',
            f'<rect x="{BAR_LEFT}" y="{top}" width="{max(1.0, reach):.1f}" '
            f'height="{BAR_HEIGHT - 6}" fill="{colour}" fill-opacity="0.75"/>',
            f'<line x1="{BAR_LEFT + low:.1f}" x2="{BAR_LEFT + far:.1f}" y1="{middle:.1f}" '
            f'y2="{middle:.1f}" stroke="{COLOURS[1]}" stroke-width="1.5"/>',
            f'<text x="{BAR_LEFT + max(reach, far) + 6:.1f}" y="{top + 13}">'
            f"{_short(_rounded(bar.value))}</text>",
        ]
    return "\n".join([*parts, "</svg>", ""])


def curves(title: str, lines: Sequence[Line], *, x: str, y: str) -> str:
    """A chart with both axes logarithmic, for figures that lie far apart.

    >>> svg = curves("Cost", [Line("file", [(100, 5), (1e6, 900)])], x="bytes", y="µs")
    >>> svg.startswith("<svg") and "file" in svg
    True
    """
    points = [point for line in lines for point in line.points if min(point) > 0]
    first_x, last_x = _decades([point[0] for point in points])
    first_y, last_y = _decades([point[1] for point in points])
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (math.log10(point[0]) - first_x) / (last_x - first_x)
        up = (math.log10(point[1]) - first_y) / (last_y - first_y)
        return LEFT + wide * across, TOP + high * (1 - up)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{GREY}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>',
    ]
    for power in range(first_y, last_y + 1):
        height = place((10.0**first_x, 10.0**power))[1]
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{height:.1f}" y2="{height:.1f}" '
            f'stroke="{GREY}" stroke-opacity="0.3"/>',
            f'<text x="{LEFT - 8}" y="{height + 4:.1f}" text-anchor="end">'
            f"{_short(10.0**power)}</text>",
        ]
    for power in range(first_x, last_x + 1):
        across = place((10.0**power, 10.0**first_y))[0]
        parts.append(
            f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{_short(10.0**power)}</text>"
        )
    parts += [
        f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x)}</text>',
        f'<text x="{LEFT}" y="{TOP - 12}">{escape(y)}</text>',
    ]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        placed = [place(point) for point in line.points if min(point) > 0]
        dots = [
            f'<circle cx="{across:.1f}" cy="{up:.1f}" r="2.5" fill="{colour}"/>'
            for across, up in placed
        ]
        through = " ".join(f"{across:.1f},{up:.1f}" for across, up in placed)
        parts += [
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{through}"/>',
            *dots,
            f'<text x="{WIDTH - RIGHT - 110 * (len(lines) - number) + 20}" y="{TOP - 12}" '
            f'fill="{colour}">{escape(line.name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around some values, at least one apart."""
    first = math.floor(math.log10(min(values)))
    return first, max(first + 1, math.ceil(math.log10(max(values))))


def _rounded(value: float) -> float:
    """Three digits, as more would claim too much.

    >>> _rounded(123_456), _rounded(0.012345)
    (123000.0, 0.0123)
    """
    return float(f"{value:.3g}")


def _round_up(value: float) -> float:
    """The next number that is easy to divide by four."""
    scale = 1.0
    while scale * 10 <= value:
        scale *= 10
    return next(step * scale for step in (1, 2, 4, 6, 8, 10) if step * scale >= value)


def _short(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
