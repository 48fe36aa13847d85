"""The page: whole, safe, the same each time, and of a size that a browser can bear."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from queuecraft.pipeline.report.axis import MOST, axis_over
from queuecraft.pipeline.report.figures import (
    Anomaly,
    Counts,
    Drift,
    FailureGroup,
    Field,
    Figures,
    Growth,
    Heat,
    Minute,
    Percentiles,
    Problem,
    QueueFigures,
    Series,
    Speed,
)
from queuecraft.pipeline.report.markup import VOID
from queuecraft.pipeline.report.page import page
from queuecraft.pipeline.report.scope import Scope
from tests.pipeline.report.written import START, at

HOSTILE = (
    "</style></title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x00\x1b[31m\u202e"
)


def figures(name: str = "billing", *, minutes: int = 90) -> Figures:
    """Something in every section, whatever it is called."""
    start = int(START.timestamp())
    axis = axis_over(start, start + 60 * (minutes - 1))
    speed = Speed(*[Percentiles(0.01, 0.5, 2.0)] * 3)
    counts = Counts(9, 8, 4, 2, 1, 1, 1, 900)
    series = Series(
        tuple(counts for _ in range(axis.count)),
        tuple(Percentiles(0.01, 0.5, 2.0 + place) for place in range(axis.count)),
    )
    return Figures(
        scope=str(Scope(queues=(name,))),
        first=at(0),
        last=at(minutes),
        axis=axis,
        counts=Counts(900, 800, 400, 200, 100, 50, 50, 9000),
        unseen=3,
        latency=speed.latency,
        series=series,
        queues=tuple(QueueFigures(each, counts, speed, series) for each in (name, f"{name}-2")),
        more_queues=7,
        worst=(Minute(at(1), name, name, counts, 2.0),),
        slowest=(Minute(at(2), None, None, counts, None),),
        growth=(Growth(name, 5, 50, 90, 85, 1, tuple(range(axis.count)), (3,)),),
        anomalies=(Anomaly(at(3), name, 50, 2, 1.0, 12.0),),
        groups=(FailureGroup(name, name, name, name, name, name, 5, at(0), at(9), (name, "m-2")),),
        more_groups=4,
        drift=Drift(1, 2, (Field(name, name, name, 5, 0.5, "type", at(0), at(9)),), 6),
        quarantine=(Problem(name, 3, name),),
        heat=Heat((("Mon 2030-01-07", (Counts(),) * 9 + (counts,) * 15),)),
    )


class Outline(HTMLParser):
    """What a browser would see: fails where elements are not closed as they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def drawn(found: Figures) -> str:
    return page(found, title="shop", lake="./lake")


def test_every_element_is_closed_and_every_link_leads_somewhere() -> None:
    outline = Outline(drawn(figures()))
    links = [value for _, name, value in outline.attributes if name == "href"]
    assert links
    assert {each.removeprefix("#") for each in links} <= set(outline.ids)
    assert len(set(outline.ids)) == len(outline.ids)


@pytest.mark.parametrize("name", ["billing", HOSTILE])
def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(name: str) -> None:
    text = drawn(figures(name))
    outline = Outline(text)
    assert outline.names.isdisjoint(
        {
            "script",
            "img",
            "link",
            "iframe",
            "object",
            "embed",
            "form",
            "input",
            "use",
            "image",
            "a:",
        }
    )
    for tag, attribute, value in outline.attributes:
        assert not attribute.startswith("on"), (tag, attribute)
        assert attribute not in {"src", "style", "xlink:href", "action", "srcset"}, (tag, attribute)
        assert attribute != "href" or value.startswith("#"), value
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"https?:", text)


def test_a_policy_allows_the_one_style_and_nothing_else() -> None:
    text = drawn(figures())
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = [
        value
        for tag, name, value in Outline(text).attributes
        if (tag, name) == ("meta", "content") and "default-src" in value
    ]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "unsafe" not in policy


def test_what_comes_from_messages_is_text_and_cannot_hide() -> None:
    outline = Outline(drawn(figures(HOSTILE)))
    harmless = Outline(drawn(figures()))
    assert outline.names == harmless.names
    assert len(outline.attributes) == len(harmless.attributes)
    assert "</style></title><script>alert(1)</script>" in outline.text
    shown = outline.text + "".join(value for _, _, value in outline.attributes)
    assert all(each.isprintable() or each == "\n" for each in shown)
    assert "\\x1b[31m" in outline.text


def test_the_same_numbers_make_the_same_page() -> None:
    assert drawn(figures()) == drawn(figures())


def test_an_empty_lake_has_a_page_that_says_so() -> None:
    outline = Outline(drawn(Figures(scope="everything")))
    assert "There is nothing in this lake yet" in outline.text
    assert "No dead letters." in outline.text


def test_one_message_has_a_page() -> None:
    start = int(START.timestamp())
    axis = axis_over(start, start)
    one, none = Counts(1, 1, 1, bytes=20), Counts()
    place = axis.place(start)
    counts = tuple(one if each == place else none for each in range(axis.count))
    quick = Percentiles(0.001, 0.001, 0.001)
    latency = tuple(quick if each == place else Percentiles() for each in range(axis.count))
    speed = Speed(quick, quick, quick)
    queue = QueueFigures("billing", one, speed, Series(counts, latency))
    found = Figures(
        scope="everything",
        first=START,
        last=START + timedelta(minutes=1),
        axis=axis,
        counts=one,
        latency=quick,
        series=Series(counts, latency),
        queues=(queue,),
        growth=(Growth("billing", 0, 0, 1, 1, 0, (None, 0, *[None] * (axis.count - 2))),),
        heat=Heat((("Mon 2030-01-07", (*[none] * 9, one, *[none] * 14)),)),
    )
    outline = Outline(drawn(found))
    assert "100 %" in outline.text
    assert "1 ms" in outline.text


def test_the_page_stays_small_however_long_the_time() -> None:
    found = figures(minutes=1_000_000)
    assert found.axis is not None
    assert found.axis.count <= MOST
    found = replace(found, queues=found.queues * 4, growth=found.growth * 8)
    assert len(drawn(found)) < 1_500_000


def test_every_plot_has_a_name_and_its_numbers_in_a_table() -> None:
    outline = Outline(drawn(figures()))
    images = [value for _, name, value in outline.attributes if (name, value) == ("role", "img")]
    labels = [
        value for tag, name, value in outline.attributes if (tag, name) == ("svg", "aria-label")
    ]
    assert len(labels) == len(images) > 0
    assert "Messages by" in outline.text
    assert "Latency by" in outline.text
    assert outline.text.count("Show the numbers") == 2
