"""The recorded ring: in a single process it is attention, and so are its gradients."""

import torch

from recorded import ring


def test_one_process_alone():
    assert ring.difference() < 1e-4
    q, k, v = torch.randn(3, 1, 2, 12, 4)
    assert [x.shape for x in ring.pass_through(q, k, v)] == [q.shape] * 4
    assert ring.highest() > 50
