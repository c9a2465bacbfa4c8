"""Rounds: schedules as groups of sends and receives that ranks make one after the other."""
