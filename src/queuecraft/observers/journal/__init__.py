"""The life of every message, written down for the lake."""
