"""Requests: an order is placed, or looked at."""

from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_http_methods

from examples.django_app.events import Placed, order_placed, order_seen, outbox, qc
from examples.django_app.models import Order


@require_http_methods(["GET", "POST"])
def order(request: HttpRequest, id: str) -> HttpResponse:
    """`POST /orders/o-1` with a form that says `cents`, `GET /orders/o-1`."""
    return place(request, id) if request.method == "POST" else show(id)


def place(request: HttpRequest, id: str) -> HttpResponse:
    """Write the order down and have it announced: both, or neither.

    What must not get lost goes through the outbox, in the same transaction as the row. What may
    is published after the commit: a crash in between loses it, and a broker that is away is
    logged (`robust`) and does not fail an order that is in the books.
    """
    try:
        placed = Placed(id, int(request.POST["cents"]))
    except (KeyError, ValueError):
        return JsonResponse({"error": "say how many cents"}, status=400)
    try:
        with transaction.atomic():
            Order.objects.create(id=placed.id, cents=placed.cents)
            outbox.publish(connection, order_placed, placed)
            transaction.on_commit(lambda: qc.publish(order_seen, placed.id), robust=True)
    except IntegrityError:
        return JsonResponse({"error": f"there is an order {id} already"}, status=409)
    return JsonResponse({"id": placed.id}, status=202)


def show(id: str) -> HttpResponse:
    """How it stands."""
    found = get_object_or_404(Order, id=id)
    return JsonResponse({"id": found.id, "cents": found.cents, "paid": found.paid})
