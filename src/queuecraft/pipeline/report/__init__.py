"""What a lake tells: tables for the terminal, and one page with plots."""

from __future__ import annotations
