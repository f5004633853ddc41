"""From a trained model to sentences: greedy and beam search, sampling, and teacher forcing."""

from attn_core.decode.beam import beam
from attn_core.decode.hypothesis import Hypothesis, Stepper
from attn_core.decode.pick import Pick, Sampler, argmax, top_k, top_p
from attn_core.decode.search import generate, greedy, sample
from attn_core.decode.teacher_forcing import teacher_forced_attention, teacher_forced_heads
from attn_core.decode.translate import Translation, translate

__all__ = [
    "Hypothesis",
    "Pick",
    "Sampler",
    "Stepper",
    "Translation",
    "argmax",
    "beam",
    "teacher_forced_attention",
    "teacher_forced_heads",
    "generate",
    "greedy",
    "sample",
    "top_k",
    "top_p",
    "translate",
]
