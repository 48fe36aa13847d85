"""A Django project that takes orders, with an outbox in its database.

`python -m examples.django_app migrate` makes the tables, `python -m examples.django_app runserver`
serves it.
"""
