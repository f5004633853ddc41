"""Softmax attention with a sink: a learned logit in each head's softmax that takes weight and gives no value."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from attn_core.contract import Call, Mechanism, check_integer, kind
from attn_core.mechanisms.dense import attention, weigh


class SinkAttention(Mechanism):
    """Softmax attention in which each head has one more score, the same learned number for all queries.

    What the softmax gives to it is taken from the keys, so the weights of a query sum to less than 1, and a head can
    attend to nothing. ``sinks (H,)`` are the scores; they start at zero.

    The sink is a key whose value is zero, and whose score is a bias. Fused kernels compute no gradient of a bias, so
    training keeps the ``(B, H, T, S)`` weights, and decoding does not.

    Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b model card", section 2; Miller 2023 (a score of zero).
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        check_integer("num_heads", num_heads)
        self.sinks = nn.Parameter(torch.zeros(num_heads))

    def attend_with_weights(self, call: Call) -> tuple[Tensor, Tensor]:
        """The output, and the weights ``(B, H, T, S)`` of the keys."""
        out, weights = weigh(self._with_sink(call))
        return out, weights[..., 1:]

    def attend(self, call: Call) -> Tensor:
        """The output through ``attention``."""
        return attention(**self._with_sink(call)._asdict())

    def _with_sink(self, call: Call) -> Call:
        """The call with one more key before the others, whose scores are the sinks and whose value is zero."""
        heads, keys = call.q.shape[1], call.k.shape[2]
        if heads != len(self.sinks):
            raise ValueError(f"q: expected {len(self.sinks)} heads, as there are sinks, got {kind(call.q)}")
        k, v = (functional.pad(x, (0, 0, 1, 0)) for x in (call.k, call.v))
        bias = self.sinks[:, None, None].expand(heads, 1, 1)
        if call.bias is None:
            bias = functional.pad(bias, (0, keys))
        else:
            shape = torch.broadcast_shapes(call.bias.shape, (heads, 1, keys))
            bias = torch.cat((bias.to(call.bias.dtype).expand(*shape[:-1], 1), call.bias.expand(shape)), -1)
        mask = call.mask
        if mask is not None:
            mask = functional.pad(mask.expand(*mask.shape[:-1], keys), (1, 0), value=True)
        return call._replace(k=k, v=v, bias=bias, mask=mask)
