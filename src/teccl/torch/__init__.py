"""A process group for stock PyTorch that executes teccl's schedules.

Importing this registers the back end ``"teccl"``::

    import torch.distributed as dist
    import teccl.torch

    dist.init_process_group("teccl", pg_options=teccl.torch.Options(plan="plans"))

Collectives that a plan covers run by its schedules over the point-to-point calls of the back end
below, gloo on CPUs and NCCL on CUDA devices; all others are made by that back end itself.
"""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError(
        "teccl.torch needs PyTorch 2.4 or newer; install it with: pip install 'teccl[torch]'",
        name="torch",
    )

from teccl.torch.backend import explain as explain
from teccl.torch.backend import records as records
from teccl.torch.backend import register
from teccl.torch.options import Options as Options
from teccl.torch.records import Record as Record

register()

__all__ = ["Options", "Record", "explain", "records"]
