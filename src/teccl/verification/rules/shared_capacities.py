"""Rule: links that share a capacity carry one send at a time together."""

from teccl.verification.case import Case
from teccl.verification.uses import shared_uses
from teccl.verification.violation import ViolationKind


def check(case: Case) -> None:
    """Check that the sends at each shared capacity follow one another."""
    sends, timeline, topology = case.sends, case.timeline, case.topology
    if not topology.shared:
        return
    clashes = shared_uses(topology, sends.link).clashes(timeline)
    names = list(topology.shared)

    def detail(i: int) -> str:
        other = clashes.earlier[i]
        until = timeline.show(int(timeline.start[other] + timeline.held[other]))
        begins = timeline.show(int(timeline.start[clashes.later[i]]))
        holder = f"by chunk {sends.chunk[other]} until {until}"
        where = topology.link_name(int(sends.link[other]))
        what = f"shared capacity {names[clashes.place[i]]}"
        return f"begins at {begins} while {what} is held {holder} on {where}"

    case.note_each(ViolationKind.SHARED_OVERLAP, clashes.later, detail)
