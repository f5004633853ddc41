"""Checks: of what a reader wrote for an exercise, and of attention layers; and broken layers to try them on."""

from attn_core.check.exercise import Case, Check, Inputs, Misconception, NotYet, hint
from attn_core.check.layer_tests import TESTS, symptoms
from attn_core.check.pooling import attention, edge_weights, find_beta
from attn_core.check.softmax import masked_softmax, softmax_backward
from attn_core.check.zoo import SPECIMENS, StepByStep, reveal, specimen

__all__ = [
    "SPECIMENS",
    "TESTS",
    "Case",
    "Check",
    "Inputs",
    "Misconception",
    "NotYet",
    "StepByStep",
    "attention",
    "edge_weights",
    "find_beta",
    "hint",
    "masked_softmax",
    "reveal",
    "softmax_backward",
    "specimen",
    "symptoms",
]
