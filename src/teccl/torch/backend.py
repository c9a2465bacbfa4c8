"""The back end: registration with torch, and a group from what torch and the user give."""

import hashlib
import json
import weakref
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from teccl import __version__
from teccl.errors import InputError, TecclError, VerificationError
from teccl.topology import Topology
from teccl.torch.agreement import agree
from teccl.torch.choice import Choice
from teccl.torch.failures import Faults
from teccl.torch.first_use import Synthesis
from teccl.torch.group import TecclProcessGroup
from teccl.torch.options import Options, options_from
from teccl.torch.plans import Plans, check_world, read_plans
from teccl.torch.records import Record, table_of
from teccl.torch.runner import Runner

NAME = "teccl"
# The back end below for each type of device, by torch's name.
_BACKENDS = {"cpu": "GLOO", "cuda": "NCCL", "xpu": "XCCL"}

# Groups that still exist, in the order they were made.
_groups: list[weakref.ref[TecclProcessGroup]] = []
# What the first group was given; groups made from it have the same unless they say otherwise.
_given: list[Options] = []


def register() -> None:
    """Make the back end known to torch; again is harmless."""
    if NAME.upper() not in dist.Backend._plugins:  # noqa: SLF001, torch has no public name for it
        dist.Backend.register_backend(NAME, create, extended_api=True, devices=list(_BACKENDS))


def records(group: Any = None) -> tuple[Record, ...]:
    """Return what ran how, of one group or of all that there are."""
    if group is not None:
        return tuple(group.records())
    alive = [each for reference in _groups if (each := reference()) is not None]
    return tuple(record for each in alive for record in each.records())


def explain(group: Any = None) -> str:
    """Return what ran how as a table: by which schedule, or by the inner group and why.

    Parameters
    ----------
    group
        A group of this back end; None for all of this process. What a group ran is forgotten with
        the group, so ask before ``destroy_process_group``.
    """
    found = records(group)
    return table_of(found) if found else "no collective was called on a group that still exists"


def create(given: Any, options: Any) -> TecclProcessGroup:
    """Make a group; torch calls this with its own and the user's options."""
    rank, size = given.group_rank, given.group_size
    ranks = tuple(given.global_ranks_in_group) or tuple(range(size))
    timeout, store = given.timeout, given.store
    chosen = _options(options)
    what = _read(chosen, rank, size)
    mine = {
        "version of teccl": __version__,
        "version of torch": torch.__version__,
        "plan": what.plans.digest,
        "topology": _digest(what.topology),
        "option": f"{chosen.effort} {chosen.strict} {chosen.lowering}",
    }
    agree(store, rank, ranks, mine, problem=what.problem, timeout=timeout)
    faults = Faults(store, rank, ranks, timeout.total_seconds())
    try:
        backends = _backends(store, rank, size, timeout)
        inner = _plain_group(store, rank, size, backends)
        # A wire of its own, so that tags of schedules never meet those of the user.
        wire = _gloo(dist.PrefixStore("wire/", store), rank, size, timeout)
    except RuntimeError as reason:
        raise faults.of(reason, None, "the start of the process group") from None
    wires = {**backends, "cpu": wire}
    synthesis = None
    if what.topology is not None:
        synthesis = Synthesis(
            what.topology, ranks, rank, store, effort=chosen.effort, timeout=timeout
        )
    choice = Choice(what.plans, synthesis, ranks=ranks, devices=list(wires), strict=chosen.strict)
    below = list(backends.values())
    runner = Runner(rank, wires, faults, below=below, lowering=chosen.lowering)
    group = TecclProcessGroup(rank, size, inner=inner, choice=choice, runner=runner, faults=faults)
    # What torch asks of a back end directly, such as whether it splits, is the inner one's.
    _attach(group, backends)
    _groups[:] = [*(each for each in _groups if each() is not None), weakref.ref(group)]
    return group


class _Given(NamedTuple):
    """What a rank could read, and what it could not."""

    plans: Plans = Plans()
    topology: Topology | None = None
    problem: TecclError | None = None


def _read(chosen: Options, rank: int, size: int) -> _Given:
    """Read what the options name; the first rank judges it for all."""
    try:
        plans = read_plans(chosen.folders)
        world = dist.get_world_size() if dist.is_initialized() else size
        check_world(plans, world)
        topology = _topology(chosen, world)
        if rank == 0:
            _verify(plans)
    except TecclError as found:
        return _Given(problem=found)
    return _Given(plans=plans, topology=topology)


def _options(options: Any) -> Options:
    if options is None:
        return _given[0] if _given and dist.is_initialized() else _remembered(options_from())
    if not isinstance(options, Options):
        raise InputError(
            f"pg_options is a {type(options).__name__}; give teccl.torch.Options(plan=...)"
        )
    return options if dist.is_initialized() else _remembered(options)


def _remembered(options: Options) -> Options:
    _given[:] = [options]
    return options


def _topology(options: Options, world: int) -> Topology | None:
    if options.topology is None:
        return None
    topology = Topology.parse(options.topology)
    if topology.num_gpus != world:
        raise InputError(
            f"{topology!r} has {topology.num_gpus} GPUs and there are {world} ranks; "
            f"give a topology of {world}"
        )
    return topology


def _verify(plans: Plans) -> None:
    """Judge every schedule before any rank runs one."""
    from teccl.verification import verify

    for entry in plans.entries:
        faults = verify(entry.schedule)
        if faults:
            raise VerificationError(f"{entry.name} failed verification: {faults[0]}", faults)


def _digest(topology: Topology | None) -> str:
    from teccl.topology.topology_files import topology_to_dict

    if topology is None:
        return "none"
    text = json.dumps(topology_to_dict(topology), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _backends(store: Any, rank: int, size: int, timeout: timedelta) -> dict[str, Any]:
    """Return the inner back end of each type of device that is there."""
    found = {"cpu": _gloo(dist.PrefixStore("inner/", store), rank, size, timeout)}
    if torch.cuda.is_available() and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout  # noqa: SLF001, as torch itself does
        inside = dist.PrefixStore("nccl/", store)
        found["cuda"] = dist.ProcessGroupNCCL(inside, rank, size, options)
    elif hasattr(dist, "ProcessGroupXCCL") and torch.xpu.is_available():
        options = dist.ProcessGroupXCCL.Options()
        options._timeout = timeout  # noqa: SLF001
        inside = dist.PrefixStore("xccl/", store)
        found["xpu"] = dist.ProcessGroupXCCL(inside, rank, size, options)
    return found


def _gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    return dist.ProcessGroupGloo(store, rank, size, timeout)


def _type_of(device: str) -> Any:
    # Older versions do not have all of them.
    return getattr(dist.ProcessGroup.BackendType, _BACKENDS[device])


def _plain_group(store: Any, rank: int, size: int, backends: dict[str, Any]) -> Any:
    """Return an ordinary group of torch over some back ends, which chooses one by device."""
    inside = dist.PrefixStore("plain/", store)
    try:
        group = dist.ProcessGroup(inside, rank, size)
    except TypeError:
        # Before torch 2.6 a group had options of its own.
        group = dist.ProcessGroup(inside, rank, size, dist.ProcessGroup.Options("gloo"))
    _attach(group, backends)
    return group


def _attach(group: Any, backends: dict[str, Any]) -> None:
    """Give a group its back ends; torch takes the last for what has no device."""
    last = next(reversed(backends))
    if hasattr(group, "_set_default_backend"):
        group._set_default_backend(_type_of(last))  # noqa: SLF001
    for device, backend in backends.items():
        group._register_backend(torch.device(device), _type_of(device), backend)  # noqa: SLF001
