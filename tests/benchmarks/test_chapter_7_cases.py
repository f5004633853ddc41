"""What the cases of the cheaper mechanisms say beside times is right."""

import math

import numpy as np
import pytest
import torch

from benchmarks import run

CPU = torch.device("cpu")


def case(name):
    return run.load(run.CASES / f"{name}.py")


def test_a_flex_attention_that_cannot_be_compiled_is_left_out_with_the_reason(monkeypatch):
    def compiled(*arguments, **options):
        def call(*arguments, **options):
            raise RuntimeError("no compiler was found\nand more lines")

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    trial = case("longformer").trials(quick=True, device=CPU)[0]
    with pytest.raises(ImportError, match="FlexAttention could not be compiled: no compiler was found$"):
        trial.peers["compiled FlexAttention"]()


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


def test_crossovers_contenders_all_face_exact_attention_and_the_result_says_what_was_compared():
    trials = case("crossover").trials(quick=True, device=CPU)
    assert all(list(trial.peers) == ["attention"] and "finite" in trial.report({}, {})["compared"] for trial in trials)
    by_name = {trial.name: set(trial.ours) for trial in trials}
    assert len(by_name) == 23
    always = {"SlidingWindow", "LinearAttention", "Performer", "LSHAttention", "BlockSelection"}
    assert by_name["8192 tokens, full, forward"] == always | {"Linformer", "flash_attention"}
    assert by_name["8192 tokens, causal, forward"] == always | {"flash_attention"}
    assert by_name["16384 tokens, causal, forward"] == always


def test_of_each_run_of_equal_queries_the_first_is_left_out():
    out = case("lsh").without_first(torch.arange(16.0).view(1, 16, 1))
    assert out.flatten().tolist() == [n for n in range(16) if n % 8]
