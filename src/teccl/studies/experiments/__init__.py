"""Experiments: the paper's evaluation, as far as it can be rebuilt here, and our own."""

from teccl.studies.experiments.experiment import Experiment, ExperimentCase, Table
from teccl.studies.experiments.writing_up import run_experiments

__all__ = ["EXPERIMENTS", "Experiment", "ExperimentCase", "Table", "run_experiments"]


def __getattr__(name: str) -> object:
    if name == "EXPERIMENTS":
        from teccl.studies.experiments.catalogue import EXPERIMENTS

        return EXPERIMENTS
    raise AttributeError(f"module 'teccl.studies.experiments' has no attribute {name!r}")
