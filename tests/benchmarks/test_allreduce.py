"""The benchmark of AllReduces over size: what it asks for, and whom it compares with."""

from itertools import islice

import allreduce

from teccl.topology.presets import PRESETS


def test_every_machine_and_size_has_one_bar():
    """All presets but those of several stages are asked for, and none of 256 B to 4 KB twice."""
    found = list(allreduce.bars())
    assert len({(bar.machine, bar.size) for bar in found}) == len(found)
    names = {bar.machine.partition(":")[0] for bar in found}
    assert set(PRESETS) - names <= set(allreduce.SEVERAL_STAGES)
    assert max(bar.gap for bar in found) <= 20


def test_rivals_are_of_random_allreduces():
    """Problems are drawn as those of the distribution, of one collective."""
    found = list(islice(allreduce.drawn("allreduce", seed=4), 5))
    assert {problem.collective for problem in found} == {"allreduce"}
    assert len({problem.key for problem in found}) == 5


def test_rivals_are_one_shot_halves_and_baselines():
    """One-shot meets the bound of connected GPUs, and takes half as long as the halves there."""
    call = {"topology": "fully-connected:gpus=4", "collective": "allreduce", "size": "256B"}
    rivals = dict(allreduce._rivals({**call, "effort": "quick"}, float("inf")))
    assert set(rivals) > {"one-shot", "two halves", "ring"}
    assert rivals["one-shot"]() < 0.6 * rivals["two halves"]()


def test_schemes_are_timed():
    """A ring of four has an exchange that is faster than owners where bytes hardly count."""
    found = allreduce.scheme_times("ring:gpus=4", "256B")
    assert found["exchange"] < found["owners"]
