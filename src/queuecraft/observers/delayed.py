"""What happens to delayed messages, told to people: in the log, and by a webhook."""

from __future__ import annotations

import logging

from queuecraft.observers.log import printable
from queuecraft.observers.webhook import Webhook
from queuecraft.runtime.facts import (
    DelayedAlert,
    DelayedCleaned,
    DelayedRecovered,
    DelayedRefused,
    Facts,
)


class DelayedObserver:
    """Logs cleanups and alerts; an alert is posted too, where a webhook is set."""

    def __init__(self, logger: logging.Logger, webhook: str | None = None) -> None:
        self._log = logger
        self._webhook = None if webhook is None else Webhook(webhook, logger)

    def attach(self, facts: Facts) -> None:
        """Listen from now on."""
        facts.observe(DelayedCleaned, self.cleaned)
        facts.observe(DelayedAlert, self.alerted)
        facts.observe(DelayedRecovered, self.recovered)
        facts.observe(DelayedRefused, self.refused)
        if self._webhook is not None:
            facts.observe(DelayedAlert, self.post)

    def cleaned(self, fact: DelayedCleaned) -> None:
        """A cleanup has ended; one that had nothing to do is of little interest."""
        fields = {"cleaned": fact.cleaned, "seconds": fact.seconds, "size": fact.size}
        if fact.error is not None:
            text = f"the cleanup of delayed messages failed after {fact.cleaned}: {fact.error}"
            self._say(logging.ERROR, text, error=fact.error, **fields)
            return
        refused = f", {fact.refused} refused" if fact.refused else ""
        text = (
            f"cleaned up {fact.cleaned} delayed messages ({fact.policy}) in "
            f"{fact.seconds:.3g} s{refused}; {fact.size} wait"
        )
        worth = fact.cleaned or fact.refused
        self._say(logging.INFO if worth else logging.DEBUG, text, policy=fact.policy, **fields)

    def alerted(self, fact: DelayedAlert) -> None:
        """Somebody should look."""
        level = logging.ERROR if fact.status == "critical" else logging.WARNING
        if fact.about == "growth":
            text = (
                f"delayed messages grow by {fact.growth_per_minute:.0f} a minute, which is unusual"
            )
        elif fact.status == "critical":
            text = "delayed messages are at their limit, and more are refused"
        else:
            text = "delayed messages come near their limit"
        text = f"{text}: {fact.size} of {fact.limit} wait"
        self._say(level, text, size=fact.size, limit=fact.limit, status=fact.status)

    def recovered(self, fact: DelayedRecovered) -> None:
        """No longer."""
        what = "grow as usual" if fact.about == "growth" else "are well below their limit"
        text = f"delayed messages {what} again: {fact.size} of {fact.limit} wait"
        self._say(logging.INFO, text, size=fact.size, limit=fact.limit)

    def refused(self, fact: DelayedRefused) -> None:
        """They wait longer than they should."""
        text = f"{fact.count} delayed messages could not be delivered, again later: {fact.error}"
        self._say(logging.WARNING, text, count=fact.count, error=fact.error)

    async def post(self, fact: DelayedAlert) -> None:
        """Tell the webhook, in the background."""
        assert self._webhook is not None
        await self._webhook.post(
            {
                "alert": f"delayed-{fact.about}",
                "status": fact.status,
                "size": fact.size,
                "limit": fact.limit,
                "growth_per_minute": fact.growth_per_minute,
            }
        )

    def _say(self, level: int, text: str, **fields: object) -> None:
        if self._log.isEnabledFor(level):
            known = {name: each for name, each in fields.items() if each is not None}
            self._log.log(level, "%s", printable(text), extra={"queuecraft": known})
