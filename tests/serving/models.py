"""Small models in float64, whose logits differ by far more than rounding, and what the plain loop makes of them."""

import functools
import random
from dataclasses import dataclass

import torch
from torch import nn

from attn_core.decode import generate
from attn_core.mechanisms.dense import attention
from attn_core.positions import Rotary
from attn_core.serving import PromptLookup
from attn_core.transformer import LanguageModel, SwiGLU, TransformerConfig

VOCAB = 13


def small_model(seed=0, *, vocab_size=VOCAB, num_layers=2, positions=lambda: Rotary(4), dropout=0.0):
    """Rotary positions, grouped heads, RMSNorm and SwiGLU, as the models that people serve."""
    generator = torch.random.get_rng_state()
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size,
        model_dim=16,
        num_heads=4,
        num_kv_heads=2,
        num_layers=num_layers,
        feed_forward_dim=24,
        dropout=dropout,
        norm_first=True,
        norm=nn.RMSNorm,
        feed_forward=SwiGLU,
        bias=False,
    )
    model = LanguageModel(config, positions=positions).double().eval()
    torch.random.set_rng_state(generator)
    with torch.no_grad():
        for parameter in model.stack.parameters():  # texts that say something else at each step
            parameter.mul_(3 if parameter.dim() > 1 else 1)
    return model


@functools.cache
def shared_model(seed=0, window=None):
    """With a ``StreamingWindow``, each layer computes all scores and masks what lies outside."""
    model = small_model(seed)
    for layer in model.stack.layers if window is not None else ():
        layer.attention.mechanism = Windowed(window)
    return model


class Windowed(nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v, *, mask=None, bias=None, causal=True):
        assert mask is None and bias is None and causal
        position = torch.arange(k.shape[2])
        distance = position[-q.shape[2] :, None] - position
        near = (distance < self.window.size) | (position < self.window.sinks)
        return attention(q, k, v, mask=near & (distance >= 0))


@dataclass(frozen=True)
class Guesses(PromptLookup):
    """Drafts what another model would write, which is right now and then."""

    model: LanguageModel = None

    def propose(self, tokens, limit):
        count = min(limit, self.num_tokens)
        return list(enumerate(generate(self.model, [tokens], max_new_tokens=count, end_ids=())[0].ids if count else []))


@dataclass(frozen=True)
class Trees(Guesses):
    """Random trees, with what the model would write somewhere in them, and wrong tokens before, beside and below it."""

    def propose(self, tokens, limit):
        draw, right, drafts, end = random.Random(str(tokens)), super().propose(tokens, limit), [], 0
        for number in range(1, len(right) + 1):
            if draw.random() < 0.6:
                drafts.append((end, right.pop(0)[1]))
                end = number
            else:
                drafts.append((draw.randrange(number), draw.randrange(VOCAB)))
        return drafts


@functools.cache
def plain(prompt, max_new_tokens, seed=0, window=None):
    """The ids of the plain loop, and whether <eos> came. Two logits so close that rounding might swap them fail."""
    model = shared_model(seed, window)
    gaps = []

    def likeliest(logits):
        first, second = logits.topk(2).values.unbind(-1)
        gaps.append(float((first - second).min()))
        return logits.argmax(-1)

    found = generate(model, [list(prompt)], max_new_tokens=max_new_tokens, pick=likeliest)[0]
    assert min(gaps) > 1e-6
    return found.ids, found.finished
