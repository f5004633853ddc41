"""Checks of attention layers, and broken layers to try them on."""

from attn_core.check.layer_tests import TESTS, symptoms
from attn_core.check.zoo import SPECIMENS, StepByStep, reveal, specimen

__all__ = ["SPECIMENS", "TESTS", "StepByStep", "reveal", "specimen", "symptoms"]
