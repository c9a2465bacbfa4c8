"""Perfetto: timelines to look at in a browser."""
