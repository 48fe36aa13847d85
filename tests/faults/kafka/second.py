"""A second broker of a cluster: what it leads has no leader while it is down."""

from __future__ import annotations

import re
import secrets

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.brokers.kraft import Kraft


class Second(Kraft):
    """It has no say in who leads what, so that the first one goes on without it."""

    def __init__(self, first: Kraft) -> None:
        super().__init__()
        self._first = first

    def _configure(self) -> None:
        super()._configure()
        ours = ("plain", "internal")
        listeners = ",".join(f"{each.upper()}://127.0.0.1:{self.port(each)}" for each in ours)
        settings = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": f"1@127.0.0.1:{self._first.port('controller')}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("PLAIN", "INTERNAL", "CONTROLLER")
            ),
        }
        with (self.folder / "server.properties").open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())
        meta = self.folder / "data" / "meta.properties"
        told = re.sub(r"(?m)^node\.id=.*$", "node.id=2", meta.read_text(encoding="utf-8"))
        other = f"directory.id={secrets.token_urlsafe(16)}"
        meta.write_text(re.sub(r"(?m)^directory\.id=.*$", other, told), encoding="utf-8")


def halved(admin: AdminClient, topic: str) -> None:
    """Make a topic of which each of the two leads one partition."""
    made = NewTopic(topic, replica_assignment=[[1], [2]], num_partitions=2)
    admin.create_topics([made])[topic].result(10)


def leaders(admin: AdminClient, topic: str) -> list[int]:
    """Who leads its partitions, -1 for nobody; of a topic that is not known yet, none."""
    told = admin.list_topics(timeout=10).topics.get(topic)
    return [] if told is None else [each.leader for _, each in sorted(told.partitions.items())]
