"""The version of this package, written here alone."""

__version__ = "0.1.0"
