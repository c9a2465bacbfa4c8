"""Figures with matplotlib: one function each, all drawing into the axes they are given.

They need the extra ``plot``. Without `ax` a function makes a figure of a fitting size; it returns
the axes, so that titles, limits and files are the caller's matter:

>>> import matplotlib
>>> matplotlib.use("agg")
>>> import teccl
>>> from teccl.plotting import plot_gantt
>>> result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
>>> ax = plot_gantt(result.schedule)
>>> ax.get_xlabel()
'time (us)'
"""

from teccl.plotting.gantt import plot_gantt
from teccl.plotting.sweep import plot_sweep
from teccl.plotting.topology import plot_topology
from teccl.plotting.utilisation import plot_utilisation

__all__ = ["plot_gantt", "plot_sweep", "plot_topology", "plot_utilisation"]
