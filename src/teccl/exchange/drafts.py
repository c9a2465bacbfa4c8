"""Drafts: when every leg of every chunk begins, and the schedule that this is."""

from dataclasses import dataclass

from teccl.exchange.orders import ExchangeJobs
from teccl.exchange.tables import IntArray, Legs
from teccl.schedule import Schedule, send_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """When every leg of every chunk begins, on the turned network in mirrored time for sums."""

    jobs: ExchangeJobs
    legs: Legs
    begin: IntArray
    finish: int

    def schedule(self) -> Schedule:
        """Write out every hop."""
        from teccl.exchange.laying import hops_of

        jobs = self.jobs
        hops = hops_of(jobs.network.fabric, self.legs, jobs.hold, self.begin)
        leg, link, start, end = hops.T
        is_sum = jobs.problem.has_reductions
        sends = send_array(
            self.legs.job[leg],
            link,
            self.finish - end if is_sum else start,
            transfer=leg,
            reduce=is_sum,
        )
        return Schedule(
            problem=jobs.problem, sends=sends, method="planner", claimed_finish_ps=self.finish
        )
