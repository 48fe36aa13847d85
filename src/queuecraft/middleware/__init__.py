"""What teams put around handlers and around publishing, ready made.

Middleware is a function that takes the handling of a message and gives back another: `qc.use(…)`
for all workers, `qc.worker(…, middleware=[…])` for one, `qc.use_publishing(…)` around publishing.
"""

from queuecraft.middleware.breaker import Breaker
from queuecraft.middleware.chaos import Duplicator, InducedFailure, RandomFail
from queuecraft.middleware.claims import MemoryClaims, RedisClaims, SqliteClaims
from queuecraft.middleware.deduplication import Deduplicate
from queuecraft.middleware.idempotency import Idempotent
from queuecraft.middleware.logging import Logging
from queuecraft.middleware.outage_guard import OutageGuard
from queuecraft.middleware.rate_limit import RateLimit
from queuecraft.middleware.timeout import Timeout
from queuecraft.middleware.tracing import Tracing
from queuecraft.middleware.validation import Validation
from queuecraft.model.outcome import Postponed
from queuecraft.runtime.handler import Handle, Middleware
from queuecraft.runtime.publication import Publication, Publish, PublishMiddleware
from queuecraft.stores.claims.claims import Claims

__all__ = [
    "Breaker",
    "Claims",
    "Deduplicate",
    "Duplicator",
    "Handle",
    "Idempotent",
    "InducedFailure",
    "Logging",
    "MemoryClaims",
    "Middleware",
    "OutageGuard",
    "Postponed",
    "Publication",
    "Publish",
    "PublishMiddleware",
    "RandomFail",
    "RateLimit",
    "RedisClaims",
    "SqliteClaims",
    "Timeout",
    "Tracing",
    "Validation",
]
