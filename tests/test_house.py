"""What a reader of the repository relies on: pages whose code runs, links that lead somewhere."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
PATIENCE = 30.0

FENCE = re.compile(
    r"(?:<!--\s*(?P<note>[^>]*?)\s*-->[ \t]*\n\s*)?"
    r"^(?P<indent>[ \t]*)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
ANY_FENCE = re.compile(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """A fenced piece of Python on a page, and the note right before it, if any.

    `<!-- not run: reason -->` leaves it out.
    `<!-- stop after: text -->` is for a program that runs until SIGTERM: it gets the signal once
    it has printed the text, and has to end well.
    """

    page: str
    line: int
    code: str
    note: str

    @property
    def runs(self) -> bool:
        return not re.match(r"not run:\s*\S", self.note)

    @property
    def stop_after(self) -> str | None:
        found = re.match(r"stop after:\s*(.+)", self.note)
        return found[1] if found else None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(text: str, page: str = "page.md") -> list[Block]:
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start("code")) + 1,
            code=inspect.cleandoc("\n" + found["code"]) + "\n",
            note=found["note"] or "",
        )
        for found in FENCE.finditer(text)
    ]


BLOCKS = [
    block
    for page in PAGES
    for block in blocks_of(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))
]


def run(block: Block, folder: Path) -> tuple[int, str]:
    """Run the block as a program of its own, as a reader would; its exit status and output."""
    script = folder / "example.py"
    script.write_text(block.code, encoding="utf-8")
    settings = {k: v for k, v in os.environ.items() if not k.startswith("QUEUECRAFT_")}
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-u", script.name],
        cwd=folder,
        env=settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        deadline = threading.Timer(PATIENCE, process.kill)
        deadline.start()
        try:
            awaited = block.stop_after
            for line in process.stdout:
                lines.append(line)
                if awaited is not None and awaited in line:
                    awaited = None
                    process.send_signal(signal.SIGTERM)
            status = process.wait()
        finally:
            deadline.cancel()
            process.kill()
    if awaited is not None:
        lines.append(f"(never printed {awaited!r})\n")
        status = status or 1
    return status, "".join(lines)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.runs], ids=str)
def test_an_example_on_a_page_runs(block: Block, tmp_path: Path) -> None:
    compile(block.code, str(block), "exec")
    status, output = run(block, tmp_path)
    assert status == 0, f"the example at {block} ended with {status}:\n{output}"


def test_the_readme_has_an_example_that_runs() -> None:
    assert [block for block in BLOCKS if block.page == "README.md" and block.runs]


def test_a_block_is_left_out_only_with_a_reason() -> None:
    page = """
<!-- not run: needs a broker -->
```python
1 / 0
```

<!-- not run: -->
```python
first
```

1. In a list:

    ```python
    if second:
        pass
    ```

<!-- stop after: ready -->

```python
third
```

```sh
not python
```
"""
    needs_broker, first, second, third = blocks_of(page)
    assert [block.runs for block in (needs_broker, first, second, third)] == [False] + [True] * 3
    assert second.code == "if second:\n    pass\n"
    assert third.stop_after == "ready"
    assert needs_broker.line == 4


def test_a_program_that_never_says_what_it_should_fails(tmp_path: Path) -> None:
    status, output = run(Block("page.md", 1, "print('other')\n", "stop after: ready"), tmp_path)
    assert status == 1
    assert "never printed 'ready'" in output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    prose = ANY_FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [target for target in LINK.findall(prose) if not ELSEWHERE.match(target)]
    missing = [
        target
        for target in targets
        if (path := target.partition("#")[0]) and not (page.parent / path).exists()
    ]
    assert not missing, f"{page.relative_to(ROOT)} links to what is not there: {missing}"


HEAVY = (
    "confluent_kafka",
    "fastapi",
    "google.protobuf",
    "hiredis",
    "opentelemetry",
    "pamqp",
    "prometheus_client",
    "pydantic",
    "pyspark",
    "pytest",
    "redis",
    "starlette",
    "uvicorn",
    "zstandard",
)


def test_importing_the_package_imports_nothing_heavy() -> None:
    program = f"import sys, queuecraft; print(*(m for m in {HEAVY!r} if m in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.split() == []


def public_names() -> dict[str, object]:
    import queuecraft

    return {name: getattr(queuecraft, name) for name in queuecraft.__all__}


def test_the_package_root_holds_the_public_names_and_no_other() -> None:
    import queuecraft

    assert len(set(queuecraft.__all__)) == len(queuecraft.__all__)
    stray = [
        name
        for name, value in vars(queuecraft).items()
        if not name.startswith("_")
        and name not in queuecraft.__all__
        and name != "annotations"
        and not inspect.ismodule(value)
    ]
    assert not stray, f"in the package root, but not in __all__: {stray}"


def test_public_classes_and_functions_show_an_example() -> None:
    # An error is raised by us, not built by the user: its text is enough.
    lacking = [
        name
        for name, value in public_names().items()
        if (inspect.isclass(value) and not issubclass(value, BaseException))
        or inspect.isroutine(value)
        if ">>>" not in (value.__doc__ or "")
    ]
    assert not lacking, f"no `>>>` example in the docstring of: {lacking}"


def test_public_errors_and_methods_say_what_they_mean() -> None:
    classes = {name: value for name, value in public_names().items() if inspect.isclass(value)}
    silent = [name for name, value in classes.items() if not value.__dict__.get("__doc__")]
    silent += [
        f"{name}.{member}"
        for name, value in classes.items()
        for member, method in vars(value).items()
        if not member.startswith("_")
        and (inspect.isroutine(method) or isinstance(method, property))
        and not inspect.getdoc(getattr(value, member))
    ]
    assert not silent, f"no docstring: {silent}"
