"""`module:attribute`, and every way to get it wrong."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from queuecraft.cli.processes.application import Application, ApplicationError, Reference

SHOP = """
from queuecraft import QueueCraft
qc = QueueCraft()
qc.worker("billing").on("order.*", print)
qc.worker("mail").on("order.*", print)
def make(): return qc
def fail(): raise LookupError("no such shop")
def take(name): return qc
def nothing(): return None
async def later(): return qc
class Corner:
    inner = qc
empty = QueueCraft()
idle = QueueCraft()
idle.worker("billing")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A directory to run in, with an application in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "qc_shop.py").write_text(SHOP)
    (tmp_path / "qc_house").mkdir()
    (tmp_path / "qc_house" / "__init__.py").write_text("")
    (tmp_path / "qc_house" / "shop.py").write_text(SHOP)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("qc_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "text", ["qc_shop:qc", "qc_shop:make", "qc_shop:Corner.inner", "qc_house.shop:qc"]
)
def test_an_application_is_found(shop: Path, text: str) -> None:
    found = Application.load(text)
    assert [worker.queue_name for worker in found.workers] == ["billing", "mail"]


def test_workers_are_chosen_by_name(shop: Path) -> None:
    found = Application.load("qc_shop:qc", ["mail"])
    assert [worker.queue_name for worker in found.workers] == ["mail"]
    assert len(found.qc.workers) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("qc_shop", "'qc_shop' is no module:attribute; did you mean qc_shop:qc?"),
        ("qc_shop:", "did you mean qc_shop:qc?"),
        (":qc", "expected one such as shop:qc"),
        ("", "expected one such as shop:qc"),
        ("qc_shop.py:make", "did you mean qc_shop:make?"),
        ("qc_house/shop.py", "did you mean qc_house.shop:qc?"),
        ("./qc_house/shop.py:qc", "did you mean qc_house.shop:qc?"),
        ("qc shop:qc", "is no module:attribute"),
        ("qc_shop:qc()", "did you mean qc_shop:qc?"),
        ("qc_shp:qc", "there is no module qc_shp; did you mean qc_shop?"),
        ("zzz:qc", "there is no module zzz; looked in"),
        ("qc_house.shpo:qc", "there is no module qc_house.shpo; did you mean qc_house.shop?"),
        ("qc_shop.inner:qc", "qc_shop is a module, not a package"),
        ("qc_shop:q", "qc_shop has no 'q'; did you mean qc_shop:qc?"),
        ("qc_shop:zzz", "qc_shop has no 'zzz'; did you mean qc_shop:qc?"),
        ("qc_shop:Corner.outer", "has no 'outer'"),
        ("qc_shop:Corner", "qc_shop:Corner() returned a Corner; expected a QueueCraft"),
        ("qc_shop:nothing", "qc_shop:nothing() returned None"),
        ("qc_shop:take", "qc_shop:take is called without arguments: missing a required"),
        ("qc_shop:later", "qc_shop:later is an async function; expected a plain one"),
        ("qc_shop:__name__", "qc_shop:__name__ is a str; expected a QueueCraft"),
        ("qc_shop:empty", "qc_shop:empty has no workers"),
        ("qc_shop:idle", "'billing' has no handlers"),
    ],
)
def test_a_mistake_is_explained(shop: Path, text: str, told: str) -> None:
    with pytest.raises(ApplicationError) as caught:
        Application.load(text)
    assert told in caught.value.message
    assert caught.value.story == ""


def test_a_worker_that_is_not_there_is_named(shop: Path) -> None:
    with pytest.raises(ApplicationError, match="no worker 'bill'; did you mean 'billing'"):
        Application.load("qc_shop:qc", ["bill"])
    with pytest.raises(ApplicationError, match="no worker 'zzz'; it has billing, mail"):
        Application.load("qc_shop:qc", ["zzz"])


@pytest.mark.parametrize(
    ("code", "told", "line"),
    [
        ("import no_module_of_this_name", "No module named 'no_module_of_this_name'", "line 2"),
        ("1 / 0", "ZeroDivisionError: division by zero", "line 2"),
        ("x = (", "SyntaxError: '(' was never closed", "line 2"),
        ("raise SystemExit(3)", "SystemExit: 3", "line 2"),
        ("from queuecraft import Nothing", "cannot import name 'Nothing'", "line 2"),
    ],
)
def test_an_error_inside_the_module_shows_where(
    shop: Path, code: str, told: str, line: str
) -> None:
    (shop / "qc_broken.py").write_text(f"# first\n{code}\n")
    with pytest.raises(ApplicationError) as caught:
        Application.load("qc_broken:qc")
    assert caught.value.message.startswith("qc_broken cannot be imported: ")
    assert told in caught.value.message
    assert "qc_broken.py" in caught.value.story
    assert line in caught.value.story
    assert "importlib" not in caught.value.story
    assert "application.py" not in caught.value.story


def test_a_wrong_setting_is_told_in_our_words_and_shows_where(shop: Path) -> None:
    (shop / "qc_broken.py").write_text(
        "import queuecraft\nqc = queuecraft.QueueCraft(concurrency=0)\n"
    )
    with pytest.raises(ApplicationError) as caught:
        Application.load("qc_broken:qc")
    assert "qc_broken cannot be imported: concurrency=0: expected" in caught.value.message
    assert "qc_broken.py" in caught.value.story
    assert "line 2" in caught.value.story
    assert "app.py" not in caught.value.story


def test_an_error_inside_the_function_shows_where(shop: Path) -> None:
    with pytest.raises(ApplicationError, match=r"qc_shop:fail\(\) failed: LookupError") as caught:
        Application.load("qc_shop:fail")
    assert "in fail" in caught.value.story
    assert "application.py" not in caught.value.story


def test_a_module_missing_inside_a_package_of_the_same_name_is_no_missing_application(
    shop: Path,
) -> None:
    (shop / "qc_broken.py").write_text("import qc_house.nothing\n")
    with pytest.raises(ApplicationError) as caught:
        Application.load("qc_broken:qc")
    assert "No module named 'qc_house.nothing'" in caught.value.message
    assert "line 1" in caught.value.story


def test_a_queue_in_memory_is_for_one_process(shop: Path) -> None:
    Application.load("qc_shop:qc", processes=1)
    with pytest.raises(ApplicationError, match="cannot have 2 processes: local keeps messages in"):
        Application.load("qc_shop:qc", processes=2)


def test_a_reference_is_written_as_it_was_read() -> None:
    assert str(Reference.parse("shop.app:make.qc")) == "shop.app:make.qc"
