"""`python -m queuecraft` does what the `queuecraft` command does."""

from queuecraft.cli import main

main()
