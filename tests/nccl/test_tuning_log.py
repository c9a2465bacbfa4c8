"""Tables that NCCL prints of its cost model: transcribed from public threads, and made here."""

import pytest

from teccl.demand import Collective
from teccl.errors import InputError
from teccl.nccl import Algorithm, Generation, Protocol, Shape, cost, read_tuning

# Transcribed from NVIDIA/nccl issue 754 (December 2022), host name shortened.
ISSUE_754 = """\
host:9373:9456 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Tree/Simple |\
    Ring/    LL |    Ring/ LL128 |    Ring/Simple | CollNet/    LL | CollNet/ LL128 |\
 CollNet/Simple |
host:9373:9456 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |\
            512 |            640 |            256 |            512 |            640 |\
            512 |
host:9373:9456 [0] NCCL INFO     Broadcast |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |\
     6.3/   0.8 |    14.0/   0.0 |    18.0/   3.0 |     0.0/   0.0 |     0.0/   0.0 |\
     0.0/   0.0 |
host:9373:9456 [0] NCCL INFO        Reduce |     0.0/   0.0 |     0.0/   0.0 |     0.0/   0.0 |\
     6.3/   0.8 |    14.0/   0.0 |    18.0/   3.0 |     0.0/   0.0 |     0.0/   0.0 |\
     0.0/   0.0 |
"""

H100 = Shape(ranks=8, nodes=1, generation=Generation.HOPPER, intra_gbps=370.8)


def synthetic_table(shape: Shape) -> str:
    """A table as NCCL 2.30 prints it, made from the model: synthetic."""
    lines = []
    for block in (list(Algorithm)[:3], list(Algorithm)[3:6]):
        heads = " | ".join(f"{a.value.replace('_', ''):^48}" for a in block)
        lines.append(f"host:1:2 [0] NCCL INFO   Algorithm   | {heads} |")
        lines.append(
            "host:1:2 [0] NCCL INFO   Protocol    | "
            + " | ".join(f"{name:>14}" for _ in block for name in ("LL", "LL128", "Simple"))
            + " |"
        )
        for name in (Collective.ALLGATHER, Collective.ALLREDUCE):
            cells = []
            for algorithm in block:
                for protocol in Protocol:
                    found = cost(name, algorithm, protocol, shape)
                    pair = (found.latency_us, found.bandwidth_gbps) if found else (0.0, 0.0)
                    cells.append(f"{pair[0]:8.1f}/{pair[1]:6.1f}")
            title = {"allgather": "AllGather", "allreduce": "AllReduce"}[name.value]
            lines.append(f"host:1:2 [0] NCCL INFO {title:>13} |" + " |".join(cells) + " |")
    return "\n".join(lines) + "\n"


def test_a_table_from_a_public_thread(tmp_path):
    """Only what NCCL does is read: rings with LL and Simple."""
    (tmp_path / "log").write_text(ISSUE_754)
    found = {(c.collective, c.algorithm, c.protocol): c for c in read_tuning(tmp_path / "log")}
    assert len(found) == 4
    ring = found[Collective.BROADCAST, Algorithm.RING, Protocol.SIMPLE]
    assert (ring.latency_us, ring.bandwidth_gbps) == (18.0, 3.0)
    assert found[Collective.REDUCE, Algorithm.RING, Protocol.LL].latency_us == 6.3


def test_a_synthetic_table_gives_the_model_back(tmp_path):
    """What the model says, printed as NCCL prints it, is read to the digits printed."""
    (tmp_path / "log").write_text(synthetic_table(H100))
    found = read_tuning(tmp_path / "log")
    assert len(found) == 9
    for each in found:
        model = cost(each.collective, each.algorithm, each.protocol, H100)
        assert each.latency_us == pytest.approx(model.latency_us, abs=0.051)
        assert each.bandwidth_gbps == pytest.approx(model.bandwidth_gbps, abs=0.051)


@pytest.mark.parametrize("text", ["", "hello | world", "NCCL INFO Latency/AlgBw | x/y |\n"])
def test_a_file_without_a_table_is_refused(tmp_path, text):
    """The error says how to get one."""
    (tmp_path / "log").write_text(text)
    with pytest.raises(InputError, match="NCCL_DEBUG_SUBSYS=TUNING"):
        read_tuning(tmp_path / "log")
