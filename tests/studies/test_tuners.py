"""Tuner files: ranges without gaps, and the columns of each dialect."""

import itertools
import re
from fractions import Fraction

from teccl.studies.planning import write_plan
from teccl.studies.running import Workplace
from teccl.studies.sweeping import sweep
from teccl.studies.tuners import Rule, rules_of, tuner_files

FOUND = [
    (Fraction(1000), "tree", "ll"),
    (Fraction(4000), "tree", "ll"),
    (Fraction(16000), "nvls", "simple"),
    (Fraction(10**9), "ring", "simple"),
]


def rows(text: str) -> list[str]:
    """Lines without comments."""
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_ranges_meet_and_cover_everything():
    """Equal neighbours are one range, the first begins at 0, the last at NCCL's largest size."""
    rules = rules_of(FOUND, low_latency_bytes=65536)
    assert [rule.algorithm for rule in rules] == ["tree", "nvls", "ring"]
    assert (rules[0].min_bytes, rules[-1].max_bytes) == (0, 4294967295)
    assert rules[0].max_bytes == 7999
    for one, two in itertools.pairwise(rules):
        assert two.min_bytes == one.max_bytes + 1


def test_without_a_protocol_small_sizes_take_ll():
    """The protocol changes once, where the caller says."""
    rules = rules_of([(Fraction(10**6), "ring", "")], low_latency_bytes=65536)
    assert [(rule.protocol, rule.min_bytes) for rule in rules] == [("ll", 0), ("simple", 65536)]


def test_columns_of_nccl():
    """Ten columns as the example plug-in of API v6 reads them."""
    text = tuner_files("allreduce", rules_of(FOUND, low_latency_bytes=1), nodes=2, ranks=16)["nccl"]
    assert rows(text)[0] == "allreduce,0,7999,tree,ll,-1,2,16,-1,-1"
    assert all(line.count(",") == 9 for line in rows(text))


def test_columns_of_rccl():
    """The same columns, NVLS replaced by the ring and joined with it."""
    text = tuner_files("allreduce", rules_of(FOUND, low_latency_bytes=1), nodes=2, ranks=16)["rccl"]
    assert [line.split(",")[3] for line in rows(text)] == ["tree", "ring"]


def test_columns_of_ncclx():
    """Intervals of a rank's bytes, the last without an end, and GPUs of a node."""
    text = tuner_files("allgather", rules_of(FOUND, low_latency_bytes=1), nodes=2, ranks=16)[
        "ncclx"
    ]
    first, *_, last = rows(text)
    assert first == "allgather,[0,500),tree,ll,-1,2,8,0"
    assert re.fullmatch(r"allgather,\[\d+,\),ring,simple,-1,2,8,0", last)


def test_a_range_smaller_than_a_byte_a_rank_is_left_out():
    """NCCLX counts whole bytes of a rank."""
    rules = [
        Rule(min_bytes=0, max_bytes=1, algorithm="tree", protocol="ll"),
        Rule(min_bytes=2, max_bytes=3, algorithm="ring", protocol="ll"),
    ]
    assert len(rows(tuner_files("allgather", rules, nodes=1, ranks=8)["ncclx"])) == 1


def test_a_plan_has_all_dialects(tmp_path):
    """On a machine that NCCL's model knows, the model chooses: LL for 1 KB, Simple for 1 GB."""
    here = Workplace(jobs=1, store=False)
    found = sweep("dgx-h100", "allgather", sizes="1KB,1GB", effort="quick", place=here)
    plan = write_plan(found, tmp_path / "plan", targets=("msccl",), place=here)
    assert set(plan["tuners"]) == {"nccl", "rccl", "ncclx"}
    lines = rows((tmp_path / "plan" / "tuner.csv").read_text())
    assert [line.split(",")[3:5] for line in lines] == [["ring", "ll"], ["ring", "simple"]]
    for name in plan["tuners"].values():
        assert rows((tmp_path / "plan" / name).read_text())
