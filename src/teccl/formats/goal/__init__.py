"""GOAL: sends, receives and computations of every rank, as text for LogGOPSim and its kin."""
