"""Figures: what is drawn are the data, in the axes that were given."""

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest

import teccl
from teccl.plotting import plot_gantt, plot_sweep, plot_topology, plot_utilisation
from teccl.plotting._axes import PlottingError
from teccl.plotting.utilisation import busy_parts
from teccl.schedule import Schedule
from teccl.topology import Topology


@pytest.fixture(autouse=True)
def quiet_figures() -> Iterator[None]:
    """Draw without a screen and close what was opened."""
    mpl.use("agg")
    yield
    from matplotlib import pyplot as plt

    plt.close("all")


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    result = teccl.solve("ring:gpus=4", "allgather", size="1MB", method="ring", chunks=1)
    assert result.schedule is not None
    return result.schedule


@pytest.fixture
def ax():
    from matplotlib import pyplot as plt

    return plt.figure().subplots()


def test_gantt_has_a_bar_per_send(schedule, ax):
    """Every send is a bar at its place, and the given axes are used."""
    assert plot_gantt(schedule, ax=ax) is ax
    (bars,) = [c for c in ax.collections if len(c.get_paths()) == len(schedule)]
    lefts = sorted(path.vertices[:, 0].min() for path in bars.get_paths())
    assert np.allclose(lefts, np.sort(schedule.sends["start_ps"]) / 1e6)
    used = len(set(schedule.sends["link"].tolist()))
    assert [t.get_text() for t in ax.get_yticklabels()] != []
    assert len(ax.get_yticklabels()) == used
    assert ax.get_xlabel() == "time (us)"


def test_gantt_limits_its_links(schedule):
    """The busiest links are kept."""
    ax = plot_gantt(schedule, max_links=2, critical=False)
    assert len(ax.get_yticklabels()) == 2


def test_gantt_marks_bound_and_finish(schedule):
    """Two lines across are at the bound and the finish."""
    marks = {line.get_label(): line.get_xdata()[0] for line in plot_gantt(schedule).lines}
    assert marks["finish"] == pytest.approx(schedule.finish_time_s * 1e6)
    assert marks["bound"] == pytest.approx(schedule.bound.physical_ps / 1e6)


def test_busy_parts_add_up(schedule):
    """The parts of a link are its utilisation on average."""
    parts = busy_parts(schedule, 50)
    assert np.allclose(parts.mean(axis=1), schedule.utilisation())
    assert parts.max() <= 1


def test_utilisation_is_an_image_of_the_links(schedule, ax):
    """Rows are links, busiest first, columns pieces of time."""
    assert plot_utilisation(schedule, ax=ax, bins=30) is ax
    (image,) = ax.images
    assert image.get_array().shape == (np.count_nonzero(schedule.utilisation()), 30)
    assert np.allclose(
        image.get_array().mean(axis=1),
        np.sort(schedule.utilisation())[::-1][: len(image.get_array())],
    )


def test_topology_has_a_line_per_link(ax):
    """Nodes are named, links drawn, and kinds explained."""
    topology = Topology.parse("ndv2:chassis=2")
    assert plot_topology(topology, ax=ax) is ax
    assert len(ax.collections[0].get_paths()) == topology.num_links
    names = {text.get_text() for text in ax.texts}
    assert {"gpu0", "c0", "c1"} <= names
    assert len(ax.get_legend().get_texts()) == 3


def test_topology_takes_values(schedule):
    """Values colour the links; a wrong number of them is refused."""
    topology = schedule.problem.topology
    ax = plot_topology(topology, values=schedule.utilisation())
    assert np.allclose(ax.collections[0].get_array(), schedule.utilisation())
    with pytest.raises(PlottingError, match="give one each"):
        plot_topology(topology, values=[1.0])


def test_topology_refuses_what_nobody_could_read():
    """Too many nodes are refused."""
    with pytest.raises(PlottingError, match="too many"):
        plot_topology(Topology.parse("ring:gpus=500"))


def test_awkward_names_are_drawn():
    """A dollar sign starts no formula."""
    topology = Topology.parse("ring:gpus=4")
    from dataclasses import replace

    nodes = tuple(replace(node, name=f"$x_{i}^") for i, node in enumerate(topology.nodes))
    ax = plot_topology(replace(topology, nodes=nodes))
    ax.figure.canvas.draw()
    assert "$x_0^" in {text.get_text() for text in ax.texts}


def test_sweep_draws_methods_and_bound(ax):
    """A line per method through its bandwidths, and the bound above all of them."""
    results = [
        teccl.solve("ring:gpus=4", "allgather", size=size, method=method, chunks=1)
        for method in ("ring", "shortest-path")
        for size in ("1MB", "64KB")
    ]
    assert plot_sweep(results, ax=ax) is ax
    lines = {line.get_label(): line for line in ax.lines}
    assert set(lines) == {"ring", "shortest-path", "bound"}
    assert lines["ring"].get_xdata().tolist() == [64e3, 1e6]
    expected = [results[1].algbw_GBps, results[0].algbw_GBps]
    assert lines["ring"].get_ydata().tolist() == expected
    for name in ("ring", "shortest-path"):
        assert np.all(lines[name].get_ydata() <= np.array(lines["bound"].get_ydata()) * (1 + 1e-9))


def test_sweep_needs_a_schedule():
    """Nothing to draw is said, not drawn."""
    with pytest.raises(PlottingError, match="no result has a schedule"):
        plot_sweep([])
