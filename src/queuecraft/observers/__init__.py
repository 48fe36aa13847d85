"""Listeners to facts: logs and metrics now; traces and the journal when they come."""
