"""Claims in a place of their own."""
