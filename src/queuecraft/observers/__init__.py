"""Listeners to facts: logs now; metrics, traces and the journal when they come."""
