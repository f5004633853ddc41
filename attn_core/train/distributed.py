"""Training on several processes: each takes its share of every batch, and PyTorch adds up the gradients.

A process is started by ``torchrun``, which says in the environment who it is. The sum over the processes is the one
that a single process would have made, up to rounding: the shares are weighted by their numbers of target tokens.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from attn_core.data import Batch
from attn_core.device import default_device

Loss = Callable[[nn.Module, Batch], Tensor]
Made = TypeVar("Made")


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end; yields this one's device.

    NCCL where there is a CUDA device for each process of this machine, gloo on CPUs.

    Raises:
        ValueError: some processes of this machine would have to share a CUDA device.
    """
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
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
    if device.type == "cuda":
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
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


def broadcast_from_rank0(make: Callable[[], Made]) -> Made:
    """What ``make`` gives in the first process, for all of them, and at the same time; it has to be picklable.

    What it raises there is raised in all: no process goes on and waits for one that has stopped.
    """
    if not _together():
        return make()
    outcome: list[Any] = [None, None]
    if rank() == 0:
        try:
            outcome[0] = make()
        except Exception as error:
            outcome[1] = error
    distributed.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def all_reduce_sum(values: Tensor) -> Tensor:
    """The sum of every process's ``values``."""
    if _together():
        distributed.all_reduce(values)
    return values


class _LossOf(nn.Module):
    """A loss as a module: ``DistributedDataParallel`` sees one call, however the loss uses the model."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> Tensor:
        return self.loss(self.model, batch)


def wrapped(model: nn.Module, loss: Loss, device: torch.device) -> tuple[nn.Module, Loss]:
    """The model and its loss as this process trains them: gradients become the mean over the processes.

    All start from the first one's weights.
    """
    if not _together():
        return model, loss
    ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(_LossOf(model, loss), device_ids=ids), lambda trained, batch: trained(batch)


def unsynchronised(model: nn.Module) -> Any:
    """A context in which gradients stay this process's own: for all but the last part of a step."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def share(batch: Batch) -> Batch:
    """This process's rows of a batch; a batch of none where it has fewer rows than there are processes."""
    return batch.rows(slice(rank(), None, size())) if size() > 1 else batch


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()
