"""The paged cache's contenders agree whatever lay in the memory that their blocks were given."""

import math

import pytest
import torch

from benchmarks.cases import paged
from benchmarks.measure import check_same


@pytest.mark.parametrize("left_over", [math.nan, math.inf, -3e38])
def test_slots_never_written_change_nothing(left_over, monkeypatch):
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, **options: empty(*shape, **options).fill_(left_over))
    for trial in paged.trials(quick=True, device=torch.device("cpu")):
        works = {name: make() for name, make in (trial.ours | trial.peers).items()}
        check_same({name: work() for name, work in works.items()}, trial.tolerance)
