"""The web application: an answer as soon as the broker has the order."""

import logging
import os
from typing import Annotated
from uuid import uuid4

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse

from examples.fastapi_app.events import Order, Price, order_placed, price_asked
from examples.fastapi_app.workers import make
from queuecraft import (
    ConnectionLost,
    PublishError,
    QueueCraft,
    QueueError,
    QueueFull,
    RequestTimeout,
)
from queuecraft.fastapi import lifespan, use_queue

Queued = Annotated[QueueCraft, Depends(use_queue)]
Key = Annotated[str | None, Header(max_length=100)]

logging.basicConfig(level=logging.INFO)  # so that mails, and failures, are seen

workers_here = os.environ.get("SHOP_WORKERS", "here") == "here"
app = FastAPI(title="A small shop", lifespan=lifespan(make, workers=workers_here))


@app.post("/orders", status_code=202)
async def place(order: Order, qc: Queued, idempotency_key: Key = None) -> dict[str, str]:
    """Take an order. Whoever gets no answer may ask again with the same Idempotency-Key: the
    message has the same id then, and is handled once."""
    key = idempotency_key or uuid4().hex
    return {"message": await qc.publish(order_placed, order, message_id=key)}


@app.get("/prices/{product}")
async def price(product: str, qc: Queued) -> Price:
    """Ask a worker, and wait for what it says."""
    found = await qc.request(price_asked, product, Price, timeout=2)
    if found.cents is None:
        raise HTTPException(404, "there is no such product")
    return found


@app.get("/health")
async def health(qc: Queued) -> JSONResponse:
    """For whoever decides where requests go."""
    status = qc.health_check().status
    return JSONResponse({"status": status}, 200 if status == "healthy" else 503)


@app.exception_handler(RequestTimeout)
async def nobody_answers(request: Request, error: RequestTimeout) -> JSONResponse:
    """Whoever should have answered is away, or busy."""
    return JSONResponse({"detail": "nobody has answered in time"}, 504)


@app.exception_handler(ConnectionLost)
@app.exception_handler(PublishError)
@app.exception_handler(QueueFull)
async def broker_away(request: Request, error: QueueError) -> JSONResponse:
    """Nothing was stored, or nobody knows: the customer may try again."""
    return JSONResponse({"detail": "not possible at the moment; try again"}, 503)
