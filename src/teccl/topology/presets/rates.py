"""What links carry: their line rates, or what measurements and NCCL's constants say of them.

`rates=line`, the default, has the vendors' peak rates and the module's latencies. `rates=effective`
replaces them, each by a public figure:

- NVLink: what NCCL takes a link to move, 20 of 25 GB/s on A100, 20.6 of 25 on H100, 40.1 of 50 on
  Blackwell (NVIDIA/nccl v2.30.7, src/graph/topo.h); H100 owners measure about 370 of 450 GB/s
  (nccl-tests issue 212).
- Network cards: 24 of 25 GB/s at 200 Gb/s and 48.5 of 50 at 400 Gb/s (nccl-tests issues 119 and
  267), 0.97 of the line; at other rates the same part, unconfirmed.
- From GPU to GPU through an NVSwitch 936.25 ns (ASTRA-sim's validated HGX-H100 network), half on
  each side; other generations alike, unconfirmed.
- A message over NVLink 0.6 us and over the network 2.7 us, NCCL's constants for a step of a ring
  with the LL protocol; of the latter 1 us to post it (src/graph/tuning.cc), the rest as latency.
- xGMI: 48 GB/s a link from MI300X to MI355X (RCCL's src/graph/topo.h; AMD measures about as much on
  MI300X). AMD states no overhead, so there is none.
"""

from dataclasses import dataclass
from fractions import Fraction

from teccl._files import shown
from teccl.errors import TopologyError
from teccl.units import parse_bandwidth, parse_duration

LINE, EFFECTIVE = "line", "effective"
_NONE = Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFigures:
    """What a kind of link costs beside its line rate.

    Parameters
    ----------
    part
        Of the line rate that data gets.
    alpha, overhead
        Latency of the link, and what a message that a GPU sends on it costs.
    """

    part: Fraction
    alpha: Fraction
    overhead: Fraction = _NONE


_NVLINK_PARTS = {
    300: Fraction(20, 25),
    400: Fraction(20, 25),
    200: Fraction(206, 250),
    450: Fraction(206, 250),
    900: Fraction(401, 500),
}
_NVSWITCH_SIDE = parse_duration("936.25ns") / 2
_NVLINK_MESSAGE = parse_duration("0.6us")
_NIC_PART = Fraction(97, 100)
_POST = parse_duration("1us")
# A message over the network takes 2.7 us; posting it is the first of them.
_NIC_SIDE = (parse_duration("2.7us") - _POST) / 2
_XGMI_RATE = parse_bandwidth("48GB/s")


def check_rates(preset: str, rates: object) -> bool:
    """Whether effective rates are asked for; refuses anything else than the two."""
    if rates not in (LINE, EFFECTIVE):
        raise TopologyError(f"preset {preset}: rates is {shown(rates)}; give line or effective")
    return rates == EFFECTIVE


def nvlink(rate: Fraction, alpha: Fraction, *, effective: bool) -> LinkFigures:
    """Figures of a GPU's links to its NVSwitch."""
    if not effective:
        return LinkFigures(part=Fraction(1), alpha=alpha)
    part = _NVLINK_PARTS[int(rate / 10**9)]
    return LinkFigures(part=part, alpha=_NVSWITCH_SIDE, overhead=_NVLINK_MESSAGE)


def nic(alpha: Fraction, *, effective: bool) -> LinkFigures:
    """Figures of a network card."""
    if not effective:
        return LinkFigures(part=Fraction(1), alpha=alpha)
    return LinkFigures(part=_NIC_PART, alpha=_NIC_SIDE, overhead=_POST)


def xgmi(rate: Fraction, alpha: Fraction, *, effective: bool) -> LinkFigures:
    """Figures of xGMI links between two AMD GPUs."""
    return LinkFigures(part=_XGMI_RATE / rate if effective else Fraction(1), alpha=alpha)
