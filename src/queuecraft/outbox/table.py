"""The tables of an outbox, and every statement that is run on them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from queuecraft.model.errors import ConfigError, PayloadError
from queuecraft.outbox.executor import Dialect, Executor, Values
from queuecraft.outbox.row import Refused, Row, Stored, decode, encode

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

NAME = "queuecraft_outbox"

_TYPES: dict[Dialect, tuple[str, str]] = {
    # Never the number of a row that was there before: a relay may be about to delete that one.
    "sqlite": ("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB"),
    "postgresql": ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "BYTEA"),
}
_DDL = """\
CREATE TABLE IF NOT EXISTS {name} (
    position {identity},
    id VARCHAR(255) NOT NULL,
    target VARCHAR(255) NOT NULL,
    message_key TEXT,
    message {binary} NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    failed_at DOUBLE PRECISION,
    error TEXT
)
CREATE TABLE IF NOT EXISTS {name}_relay (
    name VARCHAR(40) PRIMARY KEY,
    owner VARCHAR(40) NOT NULL,
    beat BIGINT NOT NULL
)
"""


class OutboxTable:
    """Where messages wait, and beside it a small one where the relays agree on who is at work.

    >>> print(OutboxTable().ddl("postgresql")[1])
    CREATE TABLE IF NOT EXISTS queuecraft_outbox_relay (
        name VARCHAR(40) PRIMARY KEY,
        owner VARCHAR(40) NOT NULL,
        beat BIGINT NOT NULL
    )
    """

    def __init__(self, name: str = NAME) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}(\.[a-z_][a-z0-9_]{0,40})?", name):
            raise ConfigError(
                f"table={name!r}: expected a name of a-z, 0-9 and _, perhaps with a schema, such "
                f"as {NAME!r}"
            )
        self.name = name

    def ddl(self, dialect: Dialect) -> list[str]:
        """The statements that make the tables, for a migration."""
        if dialect not in _TYPES:
            raise ConfigError(f"{dialect!r} is no known database; use one of {', '.join(_TYPES)}")
        identity, binary = _TYPES[dialect]
        made = _DDL.format(name=self.name, identity=identity, binary=binary)
        return [f"CREATE{each}".strip() for each in made.split("CREATE") if each]

    def sqlalchemy(self, metadata: MetaData) -> Table:
        """The same as a `Table`, and its small companion, in a MetaData of SQLAlchemy."""
        import sqlalchemy as sa

        schema, _, name = self.name.rpartition(".")
        number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
        made = sa.Table(
            name,
            metadata,
            sa.Column("position", number, sa.Identity(always=True), primary_key=True),
            sa.Column("id", sa.String(255), nullable=False),
            sa.Column("target", sa.String(255), nullable=False),
            sa.Column("message_key", sa.Text()),
            sa.Column("message", sa.LargeBinary(), nullable=False),
            sa.Column("created_at", sa.Double(), nullable=False),
            sa.Column("failed_at", sa.Double()),
            sa.Column("error", sa.Text()),
            schema=schema or None,
            sqlite_autoincrement=True,
        )
        sa.Table(
            f"{name}_relay",
            metadata,
            sa.Column("name", sa.String(40), primary_key=True),
            sa.Column("owner", sa.String(40), nullable=False),
            sa.Column("beat", sa.BigInteger(), nullable=False),
            schema=schema or None,
        )
        return made

    # -- writing -------------------------------------------------------------------------------

    @property
    def insertion(self) -> str:
        """The statement that adds a message, with the values of `values_of`."""
        return (
            f"INSERT INTO {self.name} (id, target, message_key, message, created_at) "
            "VALUES (:id, :target, :message_key, :message, :created_at)"
        )

    def values_of(self, stored: Stored, now: float) -> Values:
        """What is written for a message."""
        message = stored.message
        if "\0" in f"{message.id}{message.routing_key}{message.key or ''}":
            raise PayloadError(
                "the id, key or event has a character that PostgreSQL cannot keep, \\x00",
                operation="outbox",
            )
        return {
            "id": message.id,
            "target": message.routing_key if message.queue is None else message.queue,
            "message_key": message.key,
            "message": encode(stored),
            "created_at": now,
        }

    # -- relaying ------------------------------------------------------------------------------

    def read(self, on: Executor, limit: int, held: Collection[str | int] = ()) -> list[Row]:
        """The next messages, oldest first, without the keys, and the rows, that are held back."""
        values: dict[str, object] = {"limit": limit}
        conditions = ["failed_at IS NULL"]
        if keys := _named("key", [each for each in held if isinstance(each, str)], values):
            conditions.append(f"(message_key IS NULL OR message_key NOT IN ({keys}))")
        if places := _named("place", [each for each in held if isinstance(each, int)], values):
            conditions.append(f"position NOT IN ({places})")
        found = on.run(
            f"SELECT position, message_key, message FROM {self.name} "
            f"WHERE {' AND '.join(conditions)} ORDER BY position LIMIT :limit",
            values,
        )
        return [
            Row(int(at), None if key is None else str(key), decode(message))
            for at, key, message in found
        ]

    def forget(self, on: Executor, positions: Collection[int]) -> None:
        """Delete messages that the broker has."""
        values: dict[str, object] = {}
        names = _named("place", positions, values)
        on.run(f"DELETE FROM {self.name} WHERE position IN ({names})", values)

    def set_aside(self, on: Executor, refused: Sequence[tuple[int, str]], now: float) -> None:
        """Keep messages that cannot be published, with the reason."""
        for position, error in refused:
            on.run(
                f"UPDATE {self.name} SET failed_at = :now, error = :error WHERE position = :place",
                {"now": now, "error": error, "place": position},
            )

    # -- operating -----------------------------------------------------------------------------

    def waiting(self, on: Executor) -> tuple[int, float | None]:
        """How many messages wait, and since when the oldest does."""
        sql = f"SELECT COUNT(*), MIN(created_at) FROM {self.name} WHERE failed_at IS NULL"
        ((count, oldest),) = on.run(sql, {})
        return int(count), oldest

    def refused(self, on: Executor, limit: int) -> list[Refused]:
        """Those kept aside, oldest first."""
        found = on.run(
            f"SELECT id, target, message_key, failed_at, error FROM {self.name} "
            "WHERE failed_at IS NOT NULL ORDER BY position LIMIT :limit",
            {"limit": limit},
        )
        return [
            Refused(id, target, key, datetime.fromtimestamp(at, UTC), error)
            for id, target, key, at, error in found
        ]

    def count_refused(self, on: Executor) -> int:
        """How many are kept aside."""
        sql = f"SELECT COUNT(*) FROM {self.name} WHERE failed_at IS NOT NULL"
        return int(on.run(sql, {})[0][0])

    def put_back(self, on: Executor, ids: Sequence[str] | None) -> int:
        """Let those kept aside be tried again, in their old places; how many."""
        return self._settle(on, ids, f"UPDATE {self.name} SET failed_at = NULL, error = NULL")

    def discard(self, on: Executor, ids: Sequence[str] | None) -> int:
        """Delete those kept aside; how many."""
        return self._settle(on, ids, f"DELETE FROM {self.name}")

    def _settle(self, on: Executor, ids: Sequence[str] | None, change: str) -> int:
        values: dict[str, object] = {}
        which = "failed_at IS NOT NULL"
        if ids is not None:
            if not ids:
                return 0
            which += f" AND id IN ({_named('id', ids, values)})"
        ((count,),) = on.run(f"SELECT COUNT(*) FROM {self.name} WHERE {which}", values)
        on.run(f"{change} WHERE {which}", values)
        return int(count)


def _named(name: str, given: Collection[object], values: dict[str, object]) -> str:
    """Parameters for a list, whose values are added to those of the statement."""
    names = [f"{name}_{number}" for number in range(len(given))]
    values.update(zip(names, given, strict=True))
    return ", ".join(f":{each}" for each in names)
