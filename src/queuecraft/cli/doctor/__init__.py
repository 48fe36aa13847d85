"""`queuecraft doctor`: what is set up here, what is not, and what to do about it."""

from queuecraft.cli.doctor.command import doctor

__all__ = ["doctor"]
