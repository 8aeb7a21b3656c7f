"""Measurements of what the package costs beside others, run by hand: ``python -m benchmarks wire``."""
