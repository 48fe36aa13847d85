"""Line charts as SVG, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 50, 50
COLOURS = ("#2f6fde", "#d9662c", "#2b9a66", "#8e4ec6")
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
