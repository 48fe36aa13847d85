"""What the project keeps."""

from django.db import models


class Order(models.Model):
    """An order, from the request that places it to the worker that is paid for it."""

    id = models.CharField(primary_key=True, max_length=40)
    cents = models.PositiveIntegerField()
    paid = models.BooleanField(default=False)
