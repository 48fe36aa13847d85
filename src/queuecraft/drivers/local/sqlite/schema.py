"""What the file holds, and how an older file becomes a newer one."""

from __future__ import annotations

from typing import Final

APPLICATION_ID: Final = 0x51437266  # "QCrf", in the header of every file that is ours

# Each entry takes a file one version further; `PRAGMA user_version` says how many it has had.
# A released entry is never changed: add another.
MIGRATIONS: Final = (
    """
    -- `topology` rises with every change to exchanges, queues, bindings and consumers, so that
    -- each process knows when what it remembers of them is out of date.
    CREATE TABLE state (topology INTEGER NOT NULL, boot TEXT NOT NULL);
    INSERT INTO state VALUES (1, '');

    CREATE TABLE exchange (
        name TEXT PRIMARY KEY,
        type TEXT NOT NULL,
        durable INTEGER NOT NULL,
        auto_delete INTEGER NOT NULL,
        arguments BLOB NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE queue (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        durable INTEGER NOT NULL,
        exclusive INTEGER NOT NULL,
        auto_delete INTEGER NOT NULL,
        max_priority INTEGER,
        arguments BLOB NOT NULL,
        dead_exchange TEXT,
        dead_queue TEXT,
        dead_routing_key TEXT
    );

    -- Beside `queue`, and narrow: it is written with every batch.
    CREATE TABLE counter (
        queue INTEGER PRIMARY KEY,
        next INTEGER NOT NULL DEFAULT 0,     -- place of the next message
        stored INTEGER NOT NULL DEFAULT 0,   -- rows in `message`
        delayed INTEGER NOT NULL DEFAULT 0   -- rows in `delayed`
    );

    CREATE TABLE binding (
        exchange TEXT NOT NULL,
        pattern TEXT NOT NULL,
        headers BLOB NOT NULL,
        queue INTEGER NOT NULL,
        PRIMARY KEY (exchange, pattern, headers, queue)
    ) WITHOUT ROWID;

    -- Written once and deleted once. The position is queue, priority and place in one number, so
    -- that the table itself is in the order of delivery and needs no index.
    CREATE TABLE message (position INTEGER PRIMARY KEY, data BLOB NOT NULL);

    CREATE TABLE delayed (
        number INTEGER PRIMARY KEY,
        queue INTEGER NOT NULL,
        priority INTEGER NOT NULL,
        due REAL NOT NULL,
        data BLOB NOT NULL
    );
    CREATE INDEX delayed_due ON delayed (due);

    -- A process that consumes, and the consumers in it.
    CREATE TABLE session (
        name TEXT PRIMARY KEY,
        pid INTEGER NOT NULL,
        expires REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE consumer (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        session TEXT NOT NULL,
        queue INTEGER NOT NULL,
        prefetch INTEGER NOT NULL,
        single INTEGER NOT NULL  -- whether it wants to be the only one that gets messages
    );

    -- Messages in flight: everything from `first` to `last` that is still there.
    CREATE TABLE lease (
        first INTEGER PRIMARY KEY,
        last INTEGER NOT NULL,
        consumer INTEGER NOT NULL
    );
    CREATE INDEX lease_consumer ON lease (consumer);

    CREATE TABLE redelivery (position INTEGER PRIMARY KEY, count INTEGER NOT NULL);
    """,
)
