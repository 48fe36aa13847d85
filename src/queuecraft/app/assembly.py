"""The parts of a QueueCraft, made and joined: the one place that knows them all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from queuecraft.app.life import Life
from queuecraft.app.vitals import Vitals
from queuecraft.clock import Clock
from queuecraft.codec import Codec, Compressors, Serializers
from queuecraft.drivers.base import Driver
from queuecraft.drivers.registry import Drivers
from queuecraft.drivers.target import Target
from queuecraft.middleware.breaker import Breaker
from queuecraft.model.settings import Settings
from queuecraft.observers.delayed import DelayedObserver
from queuecraft.observers.journal import JournalObserver
from queuecraft.observers.log import LogObserver
from queuecraft.runtime.connection import Connection
from queuecraft.runtime.delayed import Delayed
from queuecraft.runtime.engine import Engine
from queuecraft.runtime.facts import Facts, Reconnected, WorkerStarted
from queuecraft.runtime.pauses import Pauses
from queuecraft.runtime.presence import LifeSigns
from queuecraft.runtime.publication import Publishing
from queuecraft.runtime.publisher import Publisher
from queuecraft.runtime.requests import Requests
from queuecraft.runtime.roster import Roster
from queuecraft.runtime.signals import Signals
from queuecraft.runtime.watchdog import Watchdog


class Assembly:
    """What works for a QueueCraft from its making to its shutdown. The workers on the roster are
    the application's own; everything else is made here."""

    def __init__(
        self,
        settings: Settings,
        drivers: Drivers | Sequence[Driver] | None,
        clock: Clock,
        roster: Roster,
        *,
        serializers: Serializers | None,
        compressors: Compressors | None,
        breaker: Breaker | None,
        logger: logging.Logger | None,
    ) -> None:
        self._roster = roster
        self._serializers = serializers
        self._compressors = compressors
        self._breaker = breaker
        facts = Facts(logger)
        codec = Codec(
            serializer=settings.serializer,
            compression=settings.compression,
            threshold=settings.compression_threshold,
            max_bytes=settings.max_message_bytes,
            serializers=serializers,
            compressors=compressors,
        )
        if drivers is None or isinstance(drivers, Drivers):
            drivers = (drivers or Drivers()).create(Target(settings.url, clock, settings))
        connection = Connection(drivers, settings, clock, facts)
        LogObserver(facts.log).attach(facts)
        DelayedObserver(facts.log, settings.delayed.webhook).attach(facts)
        journal: JournalObserver | None = None
        if settings.journal_settings is not None:
            journal = JournalObserver(settings.journal_settings, codec, clock, facts.log)
            journal.attach(facts)
        if breaker is not None:
            facts.observe(Reconnected, lambda _: breaker.close())
        publisher = Publisher(connection, codec, settings, clock, facts)
        self.engine = Engine(
            settings=settings,
            clock=clock,
            facts=facts,
            codec=codec,
            connection=connection,
            publisher=publisher,
            signals=Signals(facts.log),
            watchdog=Watchdog(facts),
            pauses=Pauses(connection, clock),
            policy=settings.policy,
            publishing=Publishing(publisher),
        )
        self.requests = Requests(connection, codec, clock, facts)
        self.delayed = Delayed(self.engine)
        if settings.delayed.service:
            self.delayed.check()
            facts.observe(WorkerStarted, lambda _: self.delayed.start())
        self.vitals = Vitals(self.engine, roster, breaker, journal)
        self.presence = LifeSigns(self.engine, roster, lambda: self.vitals.connection_state)
        self.life = Life(self.engine, roster, self.presence, self.requests, self.delayed)

    def rehearsal(self, drivers: Sequence[Driver], clock: Clock) -> Assembly:
        """The same once more, with other drivers and another clock, and without a journal. Policy,
        middleware and overrides are those there are now."""
        engine = self.engine
        here = replace(engine.settings.delayed, store=None, webhook=None)
        other = Assembly(
            replace(engine.settings, url="local://", journal=None, delayed=here),
            drivers,
            clock,
            self._roster,
            serializers=self._serializers,
            compressors=self._compressors,
            breaker=self._breaker,
            logger=engine.facts.log,
        )
        other.engine.policy = engine.policy
        other.engine.overrides = engine.overrides
        other.engine.use(engine.middleware)
        other.engine.use_publishing(engine.publishing.middleware)
        return other
