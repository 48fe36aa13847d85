"""The demo: a small shop at work on the embedded queue, with a bank that fails and is mended."""

from queuecraft.cli.demo.command import demo

__all__ = ["demo"]
