"""What a message costs as things grow: `python -m benchmarks.scaling --help`."""
