"""Experiments: the paper's evaluation, as far as it can be rebuilt here, and our own."""

from teccl.studies.experiments.experiment import Case, Experiment, Table
from teccl.studies.experiments.writing_up import run_experiments

__all__ = ["EXPERIMENTS", "Case", "Experiment", "Table", "run_experiments"]


def __getattr__(name: str) -> object:
    if name == "EXPERIMENTS":
        from teccl.studies.experiments.catalogue import EXPERIMENTS

        return EXPERIMENTS
    raise AttributeError(f"module 'teccl.studies.experiments' has no attribute {name!r}")
