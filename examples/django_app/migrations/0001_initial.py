"""The orders, and the outbox beside them."""

from typing import Any

from django.db import migrations, models

from examples.django_app.events import outbox


def create_outbox(apps: Any, schema: Any) -> None:
    """Make the tables of the outbox, in the dialect of this database."""
    outbox.create(schema.connection)


class Migration(migrations.Migration):
    """The first one."""

    initial = True
    operations = [  # noqa: RUF012  as Django wants it
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", models.CharField(max_length=40, primary_key=True, serialize=False)),
                ("cents", models.PositiveIntegerField()),
                ("paid", models.BooleanField(default=False)),
            ],
        ),
        migrations.RunPython(create_outbox, migrations.RunPython.noop),
    ]
