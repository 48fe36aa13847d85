"""What became of many messages: counted, and told as it happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queuecraft.cli.exits import sentence
from queuecraft.cli.output import (
    complain,
    flush_output,
    forget_output,
    on_terminal,
    say,
    say_json,
)
from queuecraft.model.errors import QueueError

SHOWN = 20  # errors told one by one


class Tally:
    """What became of the messages so far, told as it happens."""

    def __init__(self, *, as_json: bool, single: bool) -> None:
        self.published = 0
        self.failed = 0
        self._as_json = as_json
        self._single = single
        self._quiet = on_terminal() and not single

    def add(self, first: int, results: Sequence[str | QueueError]) -> None:
        """Results of messages in a row, the number of the first given."""
        self.take(dict(enumerate(results, first)))

    def take(self, results: Mapping[int, str | QueueError]) -> None:
        """Results of messages by their numbers."""
        for number in sorted(results):
            try:
                self.note(number, results[number])
            except BrokenPipeError:
                forget_output()  # that nobody reads the ids is no reason to stop publishing
        flush_output()

    def note(self, number: int, result: str | QueueError) -> None:
        """The result of one message."""
        if isinstance(result, QueueError):
            self.failed += 1
            if self._as_json:
                say_json({"number": number, "error": sentence(result)})
            elif self.failed <= SHOWN:
                complain(sentence(result), label=f"message {number}")
            return
        self.published += 1
        if self._as_json:
            say_json({"number": number, "id": result})
        elif self._single and on_terminal():
            say(f"Published {result}.")
        elif not self._quiet:
            say(result)

    def close(self, how: str = "") -> None:
        """Sum up, where that says something new."""
        if self._as_json or self._single:
            return
        if self.failed > SHOWN:
            complain(f"{self.failed - SHOWN:,} more", label="failed")
        if self.failed or how:
            text = f"{self.published:,} published, {self.failed:,} failed"
            complain(text, label=how or "done in part")
        elif self._quiet:
            say(f"Published {self.published:,} messages.")
