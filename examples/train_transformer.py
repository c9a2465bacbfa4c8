"""A small transformer trained with PyTorch on several ranks, once on gloo and once on teccl.

Every rank has its own part of the data. The model is trained with DistributedDataParallel and with
fully sharded parameters (FSDP), each on both back ends, and the losses must agree. Start it on as
many ranks as the plan has GPUs, with the plan in the environment:

    teccl sweep ring:gpus=4 allreduce --sizes 1KB,64KB,1MB --plan plans/allreduce
    TECCL_PLAN=plans torchrun --nproc-per-node 4 examples/train_transformer.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import teccl.torch

WORDS, WIDTH, HEADS, LAYERS, LENGTH, BATCH, RATE = 32, 32, 4, 2, 12, 8, 0.02


class Model(nn.Module):
    """Guesses each next word of a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.guess = nn.Linear(WIDTH, WORDS)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        """Return scores of all words for each place."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.guess(self.layers(self.words(sequence) + self.places, mask=mask))


def batch(step: int, rank: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sequences that count up in steps of one to three, and what follows each word."""
    source = torch.Generator().manual_seed(1000 * seed + 10 * step + rank)
    start = torch.randint(0, WORDS, (BATCH, 1), generator=source)
    stride = torch.randint(1, 4, (BATCH, 1), generator=source)
    sequence = (start + stride * torch.arange(LENGTH + 1)) % WORDS
    return sequence[:, :-1], sequence[:, 1:]


def train(kind: str, group: dist.ProcessGroup, steps: int, seed: int) -> list[float]:
    """Train on one group and return the mean loss of all ranks after each step."""
    torch.manual_seed(seed)
    if kind == "ddp":
        model: nn.Module = DistributedDataParallel(Model(), process_group=group)
    else:
        model = FullyShardedDataParallel(
            Model(), process_group=group, device_id=torch.device("cpu"), use_orig_params=True
        )
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for step in range(steps):
        sequence, wanted = batch(step, dist.get_rank(), seed)
        scores = model(sequence)
        loss = nn.functional.cross_entropy(scores.reshape(-1, WORDS), wanted.reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        losses.append(float(mean) / dist.get_world_size())
    return losses


def main() -> None:
    """Train four times and compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("teccl")
    gloo = dist.new_group(backend="gloo")
    for kind in ("ddp", "fsdp"):
        on_gloo = train(kind, gloo, options.steps, options.seed)
        on_teccl = train(kind, dist.group.WORLD, options.steps, options.seed)
        if dist.get_rank() == 0:
            print(f"{kind}: loss {on_gloo[0]:.4f} to {on_gloo[-1]:.4f} on gloo")
            print(f"{kind}: loss {on_teccl[0]:.4f} to {on_teccl[-1]:.4f} on teccl")
            apart = max(abs(a - b) for a, b in zip(on_gloo, on_teccl, strict=True))
            print(f"{kind}: losses are {'the same' if apart < 1e-4 else f'apart by {apart}'}")
    if dist.get_rank() == 0:
        print(teccl.torch.explain())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
