"""The replay: a schedule's order at the earliest times, on its own links or on others."""

from teccl.replay.simulation import Replay, simulate

__all__ = ["Replay", "simulate"]
