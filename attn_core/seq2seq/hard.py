"""Hard attention: one source word at a time, sampled in training."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attn_core.mechanisms.dense import masked_softmax
from attn_core.seq2seq.bahdanau import BahdanauDecoder, BahdanauState
from attn_core.seq2seq.encoder import Memory


class Draws(NamedTuple):
    """A pass over a target: its ``logits (B, T, V)``, and the ``positions (B, T)`` of the source words drawn.

    ``log_probability (B, T)``, in nats, is that of each draw and passes gradients to the scores; ``entropy (B, T)``, in
    nats, belongs to the distribution that the position was drawn from.
    """

    logits: Tensor
    positions: Tensor
    log_probability: Tensor
    entropy: Tensor


class HardDecoder(BahdanauDecoder):
    """Bahdanau's decoder with the context of one source word instead of a mean of all.

    Called like any decoder it takes the word of greatest weight, a choice that passes no gradient. ``draw`` samples a
    word in proportion to the weights, and returns what ``reinforce_loss`` needs. The captured weights are 1 for the
    chosen word and 0 for the others.

    Source: Xu et al. 2015, section 4.1.
    """

    def draw(self, memory: Memory, target: Tensor) -> Draws:
        """A pass over ``target (B, T)`` with one source word drawn for each of its words."""
        probabilities: list[Tensor] = []
        positions: list[Tensor] = []

        def look(state: BahdanauState) -> tuple[Tensor, Tensor]:
            probability = self._probability(state)
            probabilities.append(probability.float())
            # In float32: in half precision, a word of small weight might never be drawn.
            positions.append(torch.multinomial(probability.detach().float(), 1)[:, 0])
            return self._look_at(positions[-1], state)

        state = self.init_state(memory)
        logits, *_ = self._through(self._embed_target(target, memory), state, look)
        probability, drawn = torch.stack(probabilities, dim=1), torch.stack(positions, dim=1)
        # A masked word has probability 0, and 0 · log 0 should be 0, as should its gradient.
        logs = probability.clamp(min=torch.finfo(torch.float32).tiny).log()
        log_probability = logs.gather(-1, drawn[..., None])[..., 0]
        return Draws(logits, drawn, log_probability, -(probability * logs).sum(-1))

    def _attend(self, state: BahdanauState) -> tuple[Tensor, Tensor]:
        return self._look_at(self._probability(state).argmax(-1), state)

    def _probability(self, state: BahdanauState) -> Tensor:
        """The probability ``(B, S)`` of each source word."""
        scores = self.score.score(state.hidden[:, None], state.keys)
        return masked_softmax(scores, state.memory.mask[:, None])[:, 0]

    def _look_at(self, position: Tensor, state: BahdanauState) -> tuple[Tensor, Tensor]:
        """The states ``(B, C)`` at ``position (B,)``, and the weights ``(B, S)``: 1 there, 0 elsewhere."""
        states = state.memory.states
        weights = functional.one_hot(position, states.shape[1]).to(states.dtype)
        return states[torch.arange(len(position), device=position.device), position], weights
