"""What a driver is to connect to: an address, and who one is there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from queuecraft.clock import Clock
from queuecraft.drivers.credentials import current
from queuecraft.model.address import userinfo
from queuecraft.model.credentials import Credentials
from queuecraft.model.settings import Settings


@dataclass(frozen=True, slots=True)
class Target:
    """Given to the factory of a driver: the URL, which is never shown, the clock and the settings.

    >>> Target("amqp://ada:s3cret@one,two")
    Target()
    """

    url: str = field(repr=False)
    clock: Clock = field(default_factory=Clock, repr=False)
    settings: Settings = field(default_factory=Settings, repr=False)

    async def credentials(self) -> Credentials | None:
        """The credentials of this moment; ask in each `open`, since they may have been changed.

        Those of the setting `credentials` first, then those in the URL, then none. A user name
        the first leaves out is taken from the URL. Raises `ConnectionLost` when a callable or a
        file fails, without showing what it holds.

        >>> import asyncio
        >>> asyncio.run(Target("amqp://ada:s3cret@host").credentials())
        Credentials(username='ada')
        """
        username, password = userinfo(self.url)
        source = self.settings.credentials
        if source is not None:
            found = await current(source)
            return found if found.username is not None else replace(found, username=username)
        if username is None and password is None:
            return None
        return Credentials(username, password or "")
