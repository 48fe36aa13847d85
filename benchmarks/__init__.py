"""QueueCraft against its peers, measured in one run: `python -m benchmarks --help`."""
