"""Training on several processes: each takes its share of every batch, and PyTorch adds up the gradients.

A process is started by ``torchrun``, which says in the environment who it is. The sum over the processes is the one
that a single process would have made, up to rounding: the shares are weighted by their numbers of target tokens.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from attn_core.data import Batch
from attn_core.device import default_device


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end; yields this one's device.

    NCCL where there is a CUDA device for each process of this machine, gloo on CPUs.

    Raises:
        ValueError: some processes of this machine would have to share a CUDA device.
    """
    if "RANK" not in os.environ:
        yield default_device()
        return
    local, beside = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cpu")
    if torch.cuda.is_available():
        if beside > torch.cuda.device_count():
            raise ValueError(
                f"LOCAL_WORLD_SIZE: expected at most {torch.cuda.device_count()} processes, one for each CUDA device, "
                f"got {beside}"
            )
        device = torch.device("cuda", local)
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        distributed.destroy_process_group()


def rank() -> int:
    """This process's number, from 0; 0 where there is only one."""
    return distributed.get_rank() if _together() else 0


def size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _together() else 1


def wait() -> None:
    """Go on when all processes are here."""
    if _together():
        distributed.barrier()


def added_up(values: Tensor) -> Tensor:
    """The sum of every process's ``values``."""
    if _together():
        distributed.all_reduce(values)
    return values


def wrapped(model: nn.Module, device: torch.device) -> nn.Module:
    """The model as this process trains it: gradients become the mean over the processes."""
    if not _together():
        return model
    return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)


def unsynchronised(model: nn.Module) -> Any:
    """A context in which gradients stay this process's own: for all but the last part of a step."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def share(batch: Batch) -> Batch:
    """This process's rows of a batch; a batch of none where it has fewer rows than there are processes."""
    return batch.rows(slice(rank(), None, size())) if size() > 1 else batch


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()
