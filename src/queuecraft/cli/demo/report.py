"""The last scene: what the journal wrote down becomes a lake, and the lake a page with plots."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from queuecraft import Journal
from queuecraft.cli.cluster import session, waiting
from queuecraft.cli.exits import sentence
from queuecraft.cli.report import STYLES, opened, write_whole
from queuecraft.model.errors import ConfigError
from queuecraft.observers.log import printable

SECRETS = ("card", "email", "order.card", "order.email")  # of orders, and of what holds one
QUICK = {  # so few rows are read before the code for them would be compiled
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
}


def journal_at(lake: Path) -> Journal:
    """All that happens in the shop, without what is the customers' own."""
    return Journal(lake, payload="full", redact=SECRETS, service="shop")


def make_report(console: Console, lake: Path, page: Path) -> bool:
    """Put the page there and say what stands out in it. Whether it could be made: where Spark or
    Java is missing, a line says what to install."""
    console.print("\nStarting Spark, to make a report of what the journal wrote down …")
    try:
        _write(console, lake, page)
    except ConfigError as error:
        told = f"No report: {printable(sentence(error))}"
        console.print(Text(told, "yellow"), soft_wrap=True)
        return False
    console.print(
        Text.assemble("Report: ", (str(page), f"bold link {page.absolute().as_uri()}")),
        soft_wrap=True,
    )
    return True


def _write(console: Console, path: Path, target: Path) -> None:
    from queuecraft.pipeline.arrow import require_arrow

    require_arrow()
    spark = session(None, None)
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    spark, lake = opened(path, None, None, ingest_first=True)
    from queuecraft.pipeline.report.findings import findings
    from queuecraft.pipeline.report.page import page
    from queuecraft.pipeline.report.reading import read_figures

    with waiting("reading the tables") as tell:
        figures = read_figures(spark, lake, on_step=lambda what: tell(f"reading {what}"))
    write_whole(target, page(figures, title="a small shop", lake=str(path)))
    for each in findings(figures):
        console.print(Text(f"  {printable(each.text)}", STYLES[each.level]), soft_wrap=True)
