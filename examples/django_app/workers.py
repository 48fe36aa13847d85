"""The workers: `queuecraft run examples.django_app.workers:make`."""

import logging
import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import django
from django.db import close_old_connections

from examples.django_app.events import Placed, order_placed, order_seen
from queuecraft import QueueCraft

P = ParamSpec("P")

log = logging.getLogger(__name__)


def with_database(handler: Callable[P, None]) -> Callable[P, None]:
    """Django closes stale connections around requests; around a handler, somebody else has to."""

    @wraps(handler)
    def handling(*args: P.args, **kwargs: P.kwargs) -> None:
        close_old_connections()
        try:
            handler(*args, **kwargs)
        finally:
            close_old_connections()

    return handling


def make() -> QueueCraft:
    """The workers on the broker that QUEUECRAFT_URL names."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "examples.django_app.settings")
    django.setup()
    from examples.django_app.models import Order  # only now: models need the settings

    qc = QueueCraft.from_environment()
    billing = qc.worker("billing", concurrency=4)

    @billing.on(order_placed)
    @with_database
    def charge(order: Placed) -> None:
        # Running twice does no harm: what is paid stays paid.
        Order.objects.filter(id=order.id).update(paid=True)
        log.info("%s is paid: %.2f", order.id, order.cents / 100)

    @qc.worker("screen").on(order_seen)
    async def show(id: str) -> None:
        log.info("somebody has ordered %s", id)

    return qc
