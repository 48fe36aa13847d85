"""Numbers for Prometheus: what is published, handled, retried and dead, and how long it takes."""

from queuecraft.observers.prometheus.families import MAX_NAMES, OTHER
from queuecraft.observers.prometheus.observer import CONTENT_TYPE, PrometheusObserver
from queuecraft.observers.prometheus.spread import BUCKETS

__all__ = ["BUCKETS", "CONTENT_TYPE", "MAX_NAMES", "OTHER", "PrometheusObserver"]
