"""The recorded run of waiting times: its simulated clock, and what a request is said to have waited for."""

import pytest
import torch

from attn_core.transformer import LanguageModel, TransformerConfig
from recorded import arrivals


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LanguageModel(TransformerConfig(1_000, model_dim=8, num_heads=2, num_layers=1, feed_forward_dim=8)).eval()


def test_tokens_come_after_their_request_and_idle_time_is_skipped(model):
    requests = arrivals.workload(0, 4)
    at = [0.0, 0.0, 1e6, 1e6]
    served = arrivals.serve(model, requests, at, budget=2_048)
    assert [times[0] for times in served] == at
    assert all(times == sorted(times) for times in served)
    assert [len(times) - 1 for times in served] == [request.max_new_tokens for request in requests]
    assert served[1][-1] < 1e6 < served[2][1] < 1e6 + 1e5


def test_rates_are_those_of_the_process():
    times = arrivals.arrivals(5.0, 4_000, seed=0)
    assert times == sorted(times) and times[-1] == pytest.approx(800, rel=0.1)


def test_waits():
    found = arrivals.waits([1.0, 3.0, 4.0, 8.0])
    assert found == {"ttft": 2.0, "tpot": 2.5, "pause": 4.0, "end": 8.0}
