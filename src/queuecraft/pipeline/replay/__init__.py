"""Sending messages of the archive again: planned first, then chunk by chunk."""
