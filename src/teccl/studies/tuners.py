"""Tuner files: which of NCCL's own algorithms and protocols serve which sizes, in three dialects.

- ``nccl``: NCCL's example tuner plug-in up to API v6 (plugins/tuner/example/README.md of
  NVIDIA/nccl v2.30.7), read from NCCL_TUNER_CONFIG_FILE;
- ``rccl``: RCCL's copy of that plug-in, the same columns (ROCm/rccl pull request 2012), for the
  algorithms that RCCL has;
- ``ncclx``: the tuner built into NCCLX (meta-pytorch/torchcomms pull requests 2911, 3044 and
  3045), read from NCCLX_TUNER_CONFIG_FILE: sizes of one rank's share as intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

TUNER_FILES = {"nccl": "tuner.csv", "rccl": "tuner.rccl.csv", "ncclx": "tuner.ncclx.csv"}
# The largest size that NCCL's example plug-in reads.
_MOST_BYTES = 4294967295
# Algorithms that RCCL's own tuning knows (ROCm/rccl pull request 1627).
_RCCL_ALGORITHMS = ("ring", "tree")
_NCCL_HEAD = (
    "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,"
    "nNodes,nRanks,numPipeOps,regBuff"
)
_NCCLX_HEAD = "# collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,chunkSize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Sizes from `min_bytes` to `max_bytes`, both included, and what serves them."""

    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str


def rules_of(found: Sequence[tuple[Fraction, str, str]], *, low_latency_bytes: int) -> list[Rule]:
    """Join sizes with their algorithm and protocol to ranges that meet half-way between them.

    Parameters
    ----------
    found
        Size, algorithm and protocol, in order of size; without a protocol small sizes take LL.
    low_latency_bytes
        Sizes below take LL where nothing else says which protocol.

    Examples
    --------
    >>> found = [(Fraction(1000), "tree", "ll"), (Fraction(4000), "ring", "simple")]
    >>> [(rule.min_bytes, rule.max_bytes) for rule in rules_of(found, low_latency_bytes=1)]
    [(0, 1999), (2000, 4294967295)]
    """
    rules: list[Rule] = []
    for i, (size, algorithm, protocol) in enumerate(found):
        high = _MOST_BYTES
        if i + 1 < len(found):
            high = math.isqrt(math.floor(size * found[i + 1][0])) - 1
        low = rules[-1].max_bytes + 1 if rules else 0
        parts = [(protocol, low, high)]
        if not protocol:
            # The protocol changes within a range at most once: where latency stops to dominate.
            parts = [
                ("ll", low, min(high, low_latency_bytes - 1)),
                ("simple", max(low, low_latency_bytes), high),
            ]
        for name, first, last in parts:
            if first <= last:
                _add(
                    rules, Rule(min_bytes=first, max_bytes=last, algorithm=algorithm, protocol=name)
                )
    return rules


def _add(rules: list[Rule], rule: Rule) -> None:
    """Add a rule, or make the last one longer if it says the same."""
    if rules and (rules[-1].algorithm, rules[-1].protocol) == (rule.algorithm, rule.protocol):
        last = rules.pop()
        rule = Rule(
            min_bytes=last.min_bytes,
            max_bytes=rule.max_bytes,
            algorithm=rule.algorithm,
            protocol=rule.protocol,
        )
    rules.append(rule)


def tuner_files(
    collective: str, rules: Sequence[Rule], *, nodes: int, ranks: int
) -> dict[str, str]:
    """Return the text of each dialect's file.

    Examples
    --------
    >>> rule = Rule(min_bytes=0, max_bytes=7999, algorithm="ring", protocol="ll")
    >>> print(tuner_files("allgather", [rule], nodes=2, ranks=16)["ncclx"].splitlines()[1])
    allgather,[0,500),ring,ll,-1,2,8,0
    """
    return {
        "nccl": _nccl(collective, rules, nodes, ranks),
        "rccl": _nccl(collective, _for_rccl(rules), nodes, ranks),
        "ncclx": _ncclx(collective, rules, nodes, ranks),
    }


def _nccl(collective: str, rules: Sequence[Rule], nodes: int, ranks: int) -> str:
    lines = [_NCCL_HEAD] + [
        f"{collective},{rule.min_bytes},{rule.max_bytes},{rule.algorithm},{rule.protocol},"
        f"-1,{nodes},{ranks},-1,-1"
        for rule in rules
    ]
    return "\n".join(lines) + "\n"


def _for_rccl(rules: Sequence[Rule]) -> list[Rule]:
    """Replace algorithms that RCCL does not have by the ring."""
    kept: list[Rule] = []
    for rule in rules:
        algorithm = rule.algorithm if rule.algorithm in _RCCL_ALGORITHMS else "ring"
        _add(
            kept,
            Rule(
                min_bytes=rule.min_bytes,
                max_bytes=rule.max_bytes,
                algorithm=algorithm,
                protocol=rule.protocol,
            ),
        )
    return kept


def _ncclx(collective: str, rules: Sequence[Rule], nodes: int, ranks: int) -> str:
    """Intervals of bytes for each rank, open above, the last without an end."""
    lines = [_NCCLX_HEAD]
    for rule in rules:
        low, high = -(-rule.min_bytes // ranks), -(-(rule.max_bytes + 1) // ranks)
        end = "" if rule.max_bytes >= _MOST_BYTES else str(high)
        if end and high <= low:
            continue
        lines.append(
            f"{collective},[{low},{end}),{rule.algorithm},{rule.protocol},"
            f"-1,{nodes},{ranks // nodes},0"
        )
    return "\n".join(lines) + "\n"
