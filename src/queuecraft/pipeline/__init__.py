"""The life of every message on Spark: an archive, reports, triage and replay."""
