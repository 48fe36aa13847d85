"""`GET /metrics`: the numbers, as Prometheus reads them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Depends
from starlette.responses import Response

from queuecraft.admin.private import is_private
from queuecraft.app import QueueCraft
from queuecraft.http.access import Access
from queuecraft.http.refusal import refusals
from queuecraft.http.waiting import PATIENCE, DelayedReport, WaitingRoom
from queuecraft.model.errors import QueueError
from queuecraft.observers.prometheus import CONTENT_TYPE, PrometheusObserver


class MetricPages:
    """The numbers, as a page."""

    def __init__(
        self,
        router: APIRouter,
        qc: QueueCraft,
        access: Access,
        room: WaitingRoom,
        metrics: PrometheusObserver,
    ) -> None:
        self._qc = qc
        self._room = room
        self._metrics = metrics
        router.add_api_route(
            "/metrics",
            self.show,
            methods=["GET"],
            operation_id="get_metrics",
            tags=["metrics"],
            summary="Numbers for Prometheus",
            dependencies=[Depends(access.reader)],
            response_class=_Text,
            response_description="The text format of Prometheus, version 0.0.4.",
            responses=refusals(401),
            openapi_extra={"security": [{"read": []}]},
        )

    async def show(self) -> Response:
        """What this process has counted, and how deep the broker's queues are. A broker that does
        not answer leaves its numbers out; `connection_status` then says 0."""
        delayed, _ = await self._room.look()
        try:
            async with asyncio.timeout(PATIENCE):
                infos = await self._qc.admin.queues()
            queues = [info for info in infos if not is_private(info.name)]
        except (QueueError, TimeoutError):
            queues = []
        gauges = {} if delayed is None else _gauges(delayed)
        self._metrics.show(gauges=gauges, queues=queues)
        return _Text(self._metrics.text())


class _Text(Response):
    media_type = CONTENT_TYPE


def _gauges(delayed: DelayedReport) -> dict[str, tuple[str, float]]:
    cleanup = delayed.cleanup
    return {
        "delayed_messages": ("Delayed messages that wait.", delayed.size),
        "delayed_messages_max": ("The most that have waited.", delayed.max_size),
        "delayed_messages_average": ("How many wait on average.", delayed.average_size),
        "delayed_messages_limit": ("How many may wait.", delayed.limit),
        "delayed_messages_overdue": ("Those past their time.", delayed.overdue),
        "delayed_growth_per_minute": ("Messages a minute.", delayed.growth_per_minute),
        "delayed_growth_abnormal": ("1 while it grows abnormally.", delayed.abnormal_growth),
        "delayed_cleanup_runs_total": ("Cleanups so far.", cleanup.runs),
        "delayed_cleanup_failures_total": ("Cleanups that failed.", cleanup.failures),
        "delayed_cleanup_success_rate": ("The share that succeeded.", cleanup.success_rate),
        "delayed_cleaned_total": ("Messages cleaned up.", cleanup.cleaned_total),
        "delayed_cleaned_last": ("Messages of the last cleanup.", cleanup.cleaned_last),
    }
