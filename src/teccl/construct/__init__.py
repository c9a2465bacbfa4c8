"""Constructive schedulers: schedules built directly, without a solver."""
