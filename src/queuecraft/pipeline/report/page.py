"""The report as one page that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from queuecraft.pipeline.report.axis import clock
from queuecraft.pipeline.report.figures import Figures
from queuecraft.pipeline.report.markup import Markup, element, joined
from queuecraft.pipeline.report.sections import all_of
from queuecraft.pipeline.report.units import plural

WORDS = (
    ("published", "confirmed by the broker; an event counts once, however many queues get it"),
    ("delivered", "given to a handler, or settled without one; a retry is another delivery"),
    ("failed", "deliveries that were retried, dead-lettered or dropped"),
    ("wait", "from when a message was due to its first handler"),
    ("in handlers", "all attempts of a message together"),
    ("latency", "from when a message was due until it was settled"),
    ("p95", "what 95 of 100 messages stay below"),
)


def page(figures: Figures, *, title: str, lake: str) -> str:
    """The whole page; the same numbers always make the same page.

    >>> page(Figures(scope="everything"), title="shop", lake="./lake").startswith("<!doctype html>")
    True
    """
    parts = list(all_of(figures, lake))
    style = resources.files("queuecraft.pipeline.report").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Nothing may be loaded or run, and no style but this one counts, whatever a message holds.
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{title}: QueueCraft report"),
        element("style", Markup(style)),
    )
    body = element(
        "body",
        element("a", "Skip to the report", href="#overview", class_="skip"),
        element(
            "header",
            element("h1", f"{title} ", element("small", "report")),
            element("p", _about(figures), class_="about"),
        ),
        element(
            "nav",
            element(
                "ul",
                *(element("li", element("a", part.name, href=f"#{part.id}")) for part in parts),
            ),
            aria_label="Sections",
        ),
        element("main", *(part.markup for part in parts)),
        _footer(),
    )
    return "<!doctype html>\n" + element("html", head, Markup("\n"), body, lang="en") + "\n"


def _about(figures: Figures) -> Markup:
    if figures.first is None or figures.last is None:
        return joined(f"{figures.scope} · no messages yet")
    return joined(
        f"{clock(figures.first)} to {clock(figures.last)} UTC · "
        f"{plural(len(figures.queues) + figures.more_queues, 'queue')} · {figures.scope}"
    )


def _footer() -> Markup:
    words = (joined(element("dt", word), element("dd", means)) for word, means in WORDS)
    return element(
        "footer",
        element("strong", "What the words mean"),
        element("dl", *words),
        element("p", "All times are UTC. Made by QueueCraft."),
    )
