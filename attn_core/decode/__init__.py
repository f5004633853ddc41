"""From a trained model to sentences: greedy and beam search, and sampling."""

from attn_core.decode.pick import Pick, Sampler, argmax, top_k, top_p
from attn_core.decode.search import Hypothesis, Stepper, beam, generate, greedy, sample
