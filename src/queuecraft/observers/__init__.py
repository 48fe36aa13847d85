"""Listeners to facts: logs, metrics and the journal now; traces when they come."""
