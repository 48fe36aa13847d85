"""Spark's way to lakes and queues."""
