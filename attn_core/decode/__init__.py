"""From a trained model to sentences: greedy and beam search, sampling, and forced decoding of a known target."""

from attn_core.decode.beam import beam
from attn_core.decode.forced import forced_attention, forced_heads
from attn_core.decode.hypothesis import Hypothesis, Stepper
from attn_core.decode.pick import Pick, Sampler, likeliest, top_k, top_p
from attn_core.decode.search import generate, greedy, sample
from attn_core.decode.translate import Translation, translate

__all__ = [
    "Hypothesis",
    "Pick",
    "Sampler",
    "Stepper",
    "Translation",
    "beam",
    "forced_attention",
    "forced_heads",
    "generate",
    "greedy",
    "likeliest",
    "sample",
    "top_k",
    "top_p",
    "translate",
]
