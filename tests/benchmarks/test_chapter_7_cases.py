"""What the cases of the cheaper mechanisms say beside times is right."""

import math

import numpy as np
import pytest
import torch

from benchmarks import run

CPU = torch.device("cpu")


def case(name):
    return run.load(run.CASES / f"{name}.py")


@pytest.mark.parametrize("causal", [False, True])
def test_the_performers_error_is_relative_to_exact_attention(causal):
    performer = case("performer")
    q, k, v, _ = (x.double().numpy() for x in performer.inputs(6, CPU))
    weights = np.exp(q @ k.swapaxes(2, 3) / math.sqrt(64)) * (np.tri(6) if causal else 1)
    exact = weights / weights.sum(-1, keepdims=True) @ v
    mean = np.stack([v[:, :, : (i + 1 if causal else 6)].mean(2) for i in range(6)], 2)
    works = {"half": lambda: torch.from_numpy(exact / 2).float(), "exact": lambda: torch.from_numpy(exact).float()}
    found = performer.errors(works, {}, length=6, causal=causal, device=CPU)["error"]
    assert found["half"] == pytest.approx(0.5, rel=1e-3) and found["exact"] < 1e-6
    wanted = np.linalg.norm(mean - exact) / np.linalg.norm(exact)
    assert found["mean of the values"] == pytest.approx(wanted, rel=1e-2)
