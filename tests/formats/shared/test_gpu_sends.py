"""Schedules as transfers between GPUs: switches contracted, repetitions dropped."""

import pytest

from teccl.demand import Demand
from teccl.errors import ExportError
from teccl.formats.shared.gpu_sends import gpu_sends
from teccl.problem import Problem
from teccl.schedule import Schedule, send_array
from teccl.topology import Topology
from teccl.topology.topology_files import topology_from_dict


def star(gpus, *, reduce=False):
    """Return GPUs around a switch: links 2 i to it and 2 i + 1 back, 1 GB/s without latency."""
    nodes = [{"name": f"gpu{i}"} for i in range(gpus)]
    nodes.append({"name": "hub", "kind": "switch", "reduce": reduce})
    links = []
    for i in range(gpus):
        for src, dst in ((f"gpu{i}", "hub"), ("hub", f"gpu{i}")):
            links.append({"src": src, "dst": dst, "bandwidth": "1GB/s"})
    return topology_from_dict({"nodes": nodes, "links": links})


def schedule_of(topology, collective, rows, **options):
    """Return a schedule of rows (chunk, link, start in microseconds, transfer, reduce)."""
    demand = Demand.collective(collective, size=options.pop("size", "1KB"), **options)
    chunk, link, start, transfer, reduce = zip(*rows, strict=True)
    sends = send_array(
        chunk, link, [s * 10**6 for s in start], transfer=transfer, reduce=list(reduce)
    )
    return Schedule(problem=Problem(topology=topology, demand=demand), sends=sends)


def test_a_tree_through_a_switch_is_one_transfer_to_each_end():
    """A broadcast over a hub leaves the root once and ends at two GPUs."""
    rows = [(0, 0, 0, 7, False), (0, 3, 1, 7, False), (0, 5, 1, 7, False)]
    found = gpu_sends(schedule_of(star(3), "broadcast", rows))
    assert [(s.src, s.dst, s.start_ps, s.arrival_ps) for s in found] == [
        (0, 1, 0, 2_000_000),
        (0, 2, 0, 2_000_000),
    ]


def test_what_a_gpu_carries_on_is_named():
    """The second hop of a line is fed by the first."""
    rows = [(0, 0, 0, 0, False), (0, 2, 30, 1, False)]
    found = gpu_sends(schedule_of(Topology.parse("line:gpus=3"), "broadcast", rows))
    assert [s.feeds for s in found] == [(), (0,)]


def test_useless_transfers_are_dropped():
    """A second copy, one to the source and one that nobody uses do not count."""
    line = Topology.parse("line:gpus=4")
    rows = [
        (0, 0, 0, 0, False),
        (0, 0, 40, 1, False),
        (0, 1, 80, 2, False),
        (0, 2, 120, 3, False),
    ]
    schedule = schedule_of(line, "broadcast", rows, ranks=[0, 1])
    assert [(s.src, s.dst, s.start_ps) for s in gpu_sends(schedule)] == [(0, 1, 0)]


def test_sums_in_switches_are_refused():
    """Two GPUs whose data a switch adds up have no transfer of their own."""
    rows = [(0, 0, 0, 1, True), (0, 2, 0, 1, True), (0, 5, 1, 1, True)]
    schedule = schedule_of(star(3, reduce=True), "reduce", rows, root=2)
    with pytest.raises(ExportError, match="switch hub adds up chunk 0"):
        gpu_sends(schedule)
