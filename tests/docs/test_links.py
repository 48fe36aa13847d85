"""A reader never hits a dead end: links and anchors lead somewhere, every page can be found, and
everything public is in the API reference."""

from __future__ import annotations

import ast
import importlib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent.parent
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")

FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<kind>\w*)[^\n]*\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
INNER = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")  # an image that is a link
REFERENCE = re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)>?", re.MULTILINE)
ATTRIBUTE = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)[\"']", re.IGNORECASE)
MADE = re.compile(r"<\w+\b[^>]*?\b(?:id|name)=[\"']([^\"']+)[\"']", re.IGNORECASE)
HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
DIRECTIVE = re.compile(r"^:::[ \t]+([\w.]+)[ \t]*$", re.MULTILINE)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)

PUBLIC = (
    "queuecraft",
    "queuecraft.admin",
    "queuecraft.asyncapi",
    "queuecraft.codec",
    "queuecraft.facts",
    "queuecraft.fastapi",
    "queuecraft.http",
    "queuecraft.middleware",
    "queuecraft.observers.otel",
    "queuecraft.outbox",
    "queuecraft.pipeline",
    "queuecraft.sync",
    "queuecraft.testing",
)
"""The packages whose `__all__` is a promise."""


def pages(root: Path) -> list[Path]:
    front = [path for path in (root / name for name in FRONT) if path.exists()]
    return [*front, *sorted((root / "docs").rglob("*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", COMMENT.sub("", page.read_text(encoding="utf-8")))


# -- links -------------------------------------------------------------------------------------


def anchors(page: Path, docs: Path) -> set[str]:
    """What can stand after `#`: headings as the site makes them, or GitHub for pages beside it."""
    text = prose(page)
    slug = site_slug if page.is_relative_to(docs) else github_slug
    divider = "_" if page.is_relative_to(docs) else "-"
    found = set(MADE.findall(text)) | set(DIRECTIVE.findall(text))
    seen: Counter[str] = Counter()
    for _, heading in HEADING.findall(text):
        name = slug(plain(heading))
        found.add(f"{name}{divider}{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def plain(heading: str) -> str:
    """A heading as it is read: without links and marks.

    >>> plain("The `Event` of [a shop](shop.md)")
    'The Event of a shop'
    """
    return re.sub(r"[`*]", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading))


def site_slug(heading: str) -> str:
    """As Python-Markdown does it.

    >>> site_slug("What is kept, and where?")
    'what-is-kept-and-where'
    """
    letters = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", letters).strip().lower())


def github_slug(heading: str) -> str:
    """As GitHub does it.

    >>> github_slug("Start – now")
    'start--now'
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(page: Path) -> Iterator[str]:
    """Where a page leads to within the repository."""
    text = CODE.sub("", prose(page))
    for pattern in (LINK, INNER, REFERENCE, ATTRIBUTE):
        yield from (target for target in pattern.findall(text) if not ELSEWHERE.match(target))


def broken(root: Path) -> list[str]:
    """Every link that leads nowhere, with its page and why."""
    docs = root / "docs"
    found: list[str] = []
    for page in pages(root):
        name = page.relative_to(root)
        for target in dict.fromkeys(links(page)):
            path, _, anchor = target.partition("#")
            goal = (page.parent / path).resolve() if path else page
            if not goal.exists():
                found.append(f"{name}: {target} does not exist")
            elif page.is_relative_to(docs) and not goal.is_relative_to(docs.resolve()):
                found.append(f"{name}: {target} is not part of the site")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal, docs):
                found.append(f"{name}: {target} has no such heading")
    return found


def test_every_link_and_anchor_leads_somewhere() -> None:
    assert broken(ROOT) == []


def test_the_pages_are_found_and_have_links() -> None:
    assert len(pages(ROOT)) > 40
    assert sum(len(list(links(page))) for page in pages(ROOT)) > 200


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A made-up repository with a page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Shop\n\n[Orders](docs/orders.md#who-pays)\n")
    (tmp_path / "docs/orders.md").write_text(
        "# Orders\n\n## Who `pays`?\n\n## Twice\n\n## Twice\n\n[again](#twice_1), "
        "[far](https://example.com/no#such), ![plot](orders.svg)\n\n"
        "```md\n[in code](nowhere.md)\n```\n\n`[in code](nowhere.md)`\n"
    )
    (tmp_path / "docs/orders.svg").write_text("<svg/>")
    return tmp_path


def test_a_whole_set_of_pages_is_let_through(shop: Path) -> None:
    assert broken(shop) == []


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("[to](no-such.md)", "no-such.md does not exist"),
        ("![to](no-such.png)", "no-such.png does not exist"),
        ("[![to](no-such.png)](orders.md)", "no-such.png does not exist"),
        ("[to](orders.md#who-paid)", "orders.md#who-paid has no such heading"),
        ("[to](#nowhere)", "#nowhere has no such heading"),
        ("[to](#twice_2)", "#twice_2 has no such heading"),
        ("[to][it]\n\n[it]: no-such.md", "no-such.md does not exist"),
        ('<img src="no-such.png">', "no-such.png does not exist"),
        ("[to](../README.md)", "../README.md is not part of the site"),
    ],
)
def test_a_broken_link_is_told(shop: Path, link: str, why: str) -> None:
    with (shop / "docs/orders.md").open("a") as page:
        page.write(f"\n{link}\n")
    assert broken(shop) == [f"docs/orders.md: {why}"]


# -- the site ----------------------------------------------------------------------------------


def entries(nav: Any) -> Iterator[str]:
    """The pages that a menu leads to."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from entries(part)
    else:
        for part in nav:
            yield from entries(part)


def test_every_page_is_in_the_menu_once_and_the_menu_leads_to_pages() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = Counter(entries(settings["nav"]))
    docs = ROOT / "docs"
    there = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    assert sorted(there - set(listed)) == [], "pages that no menu leads to"
    assert sorted(set(listed) - there) == [], "in the menu, and not written"
    assert [page for page, times in listed.items() if times > 1] == [], "in the menu twice"


SHOWN = re.compile(
    r"!\[[^\]]*\]\(\s*<?(?:https?:)?//|<(?:img|script|iframe|link)\b[^>]*//", re.IGNORECASE
)
"""What a browser would fetch from elsewhere to show a page."""


def test_the_site_loads_nothing_from_elsewhere() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert settings["theme"]["font"] is False
    assert "//" not in str(settings | {"nav": None})
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert not SHOWN.search(prose(page)), f"{page.name} shows something from elsewhere"
        assert "```mermaid" not in text, f"{page.name}: the theme fetches Mermaid from elsewhere"


@pytest.mark.parametrize(
    "text", ["![plot](https://example.com/a.png)", '<script src="//example.com/a.js"></script>']
)
def test_what_would_be_fetched_from_elsewhere_is_noticed(text: str) -> None:
    assert SHOWN.search(text)


# -- the API reference -------------------------------------------------------------------------

DIRECTIVES = Counter(
    name
    for page in sorted((ROOT / "docs/api").glob("*.md"))
    for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))
)


def named(path: str) -> object:
    """What a dotted path means; raises if there is no such thing."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def test_everything_public_is_in_the_reference() -> None:
    shown = {id(named(path)) for path in DIRECTIVES}
    missing = [
        f"{module}.{name}"
        for module in PUBLIC
        for name in importlib.import_module(module).__all__
        if f"{module}.{name}" not in DIRECTIVES and id(named(f"{module}.{name}")) not in shown
    ]
    assert missing == [], "public, and in no page of docs/api"


def test_the_reference_shows_what_exists_and_each_once() -> None:
    lost: list[str] = []
    for path in DIRECTIVES:
        try:
            named(path)
        except (ImportError, AttributeError):
            lost.append(path)
    assert lost == []
    assert [path for path, times in DIRECTIVES.items() if times > 1] == []


def imported(code: str) -> Iterator[str]:
    """The names of ours that a piece of Python imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "queuecraft":
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_what_guides_import_is_in_the_reference() -> None:
    shown = {id(named(path)) for path in DIRECTIVES}
    unknown = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in pages(ROOT)
        for block in FENCE.finditer(page.read_text(encoding="utf-8"))
        if block["kind"] == "python"
        for path in imported(_flush(block["code"], block["indent"]))
        if path not in DIRECTIVES and id(named(path)) not in shown
    }
    assert unknown == set(), "a guide uses what the reference does not show"


def _flush(code: str, indent: str) -> str:
    """Code of a block inside a list, brought to the left margin."""
    return "\n".join(line.removeprefix(indent) for line in code.splitlines())
