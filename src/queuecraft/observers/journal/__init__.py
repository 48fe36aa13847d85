"""The journal: the life of every message, written down for the lake."""

from queuecraft.observers.journal.line import Line
from queuecraft.observers.journal.observer import JournalObserver
from queuecraft.observers.journal.row import VERSION, Kind, Outcome, Row

__all__ = ["VERSION", "JournalObserver", "Kind", "Line", "Outcome", "Row"]
