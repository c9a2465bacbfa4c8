"""Random small problems, what becomes of them, and the smallest that still fail."""
