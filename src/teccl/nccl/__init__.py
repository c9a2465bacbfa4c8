"""What NCCL's own cost model says of a network, and what logs say beside it.

`Shape` is what the model knows of a machine, `cost` its latency and bandwidth for a collective, an
algorithm and a protocol, `best` the cheapest of them for a size. Everything here is a model with
NCCL's published constants; it is not a measurement.
"""

from teccl.nccl.beside import model_of
from teccl.nccl.constants import Algorithm, Generation, Protocol
from teccl.nccl.cost_model import Cost, best, cost, costs
from teccl.nccl.shape import Shape, shape_of
from teccl.nccl.tuning_log import TunedChoice, read_choices, read_tuning

__all__ = [
    "Algorithm",
    "Cost",
    "Generation",
    "Protocol",
    "Shape",
    "TunedChoice",
    "best",
    "cost",
    "costs",
    "model_of",
    "read_choices",
    "read_tuning",
    "shape_of",
]
