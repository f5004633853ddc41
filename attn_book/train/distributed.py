"""Training on several processes: each computes its shard of every batch, and PyTorch adds up the gradients.

``torchrun`` starts the processes, and tells each of them its number through the environment. A step is the one that a
single process would have made of the whole batches, up to rounding.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from attn_book.data.batches import AnyBatch
from attn_book.train.losses import Loss
from attn_core.device import default_device

Result = TypeVar("Result")


@contextmanager
def process_group() -> Iterator[torch.device]:
    """Join the processes that ``torchrun`` started, if it did, and leave them at the end; yields this one's device.

    They communicate by NCCL on CUDA, where each process of this machine needs a device of its own, and by gloo on CPUs.
    """
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        yield default_device()
        return
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        distributed.init_process_group("nccl", device_id=device)
    else:
        distributed.init_process_group("gloo")
    try:
        yield device
    finally:
        distributed.destroy_process_group()


def rank() -> int:
    """The number of this process, from 0; 0 if it is the only one."""
    return distributed.get_rank() if _is_initialized() else 0


def size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if _is_initialized() else 1


def broadcast_from_rank0(make: Callable[[], Result]) -> Result:
    """Call ``make`` in the first process alone, and return its result, which must be picklable, in all of them.

    An error that it raises there is raised in all, so that no process waits for one that has stopped.
    """
    if not _is_initialized():
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
    if _is_initialized():
        distributed.all_reduce(values)
    return values


class _LossOf(nn.Module):
    """A loss as a module: ``DistributedDataParallel`` sees one call, however the loss uses the model."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Any) -> Any:
        return self.loss(self.model, batch)


def wrap_ddp(model: nn.Module, loss: Loss, device: torch.device) -> tuple[nn.Module, Loss]:
    """The model and its loss as this process trains them: gradients become the mean over the processes.

    All start from the parameters of the first process.
    """
    if not _is_initialized():
        return model, loss
    ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(_LossOf(model, loss), device_ids=ids), lambda trained, batch: trained(batch)


def no_sync(model: nn.Module) -> AbstractContextManager[None]:
    """A context in which gradients stay this process's own: for all batches of a step but the last."""
    return model.no_sync() if isinstance(model, DistributedDataParallel) else nullcontext()


def shard(batch: AnyBatch) -> tuple[AnyBatch, int]:
    """This process's rows of a batch, and 1, what they count.

    A process without rows gets the first row, which counts 0, because every process has to take part in a step.
    """
    if size() == 1:
        return batch, 1
    rows = batch.rows(slice(rank(), None, size()))
    return (rows, 1) if len(rows) else (batch.rows(slice(0, 1)), 0)


def _is_initialized() -> bool:
    return distributed.is_available() and distributed.is_initialized()
