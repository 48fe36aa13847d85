"""One folder per broker, all behind the seam in `base`."""
