"""How hard attention is trained: by rewards for what it drew."""

import torch
from torch import Tensor, nn

from attn_book.data import Batch
from attn_core.contract import accum_dtype, check_number, is_number, shown
from attn_core.seq2seq import HardDecoder


def reinforce_loss(
    model: nn.Module,
    batch: Batch,
    *,
    discount: float = 0.0,
    entropy_weight: float = 0.01,
    padding_id: int | None = 0,
) -> tuple[Tensor, Tensor]:
    """The loss of hard attention, summed over the target tokens, in nats, and their number: for ``fit(loss=…)``.

    The cross-entropy of the target, given the draws, teaches everything except where to look, which no gradient
    reaches. REINFORCE teaches that: a draw becomes more probable by as much as it made tokens more probable than the
    positions of greatest weight did (in the same mode, with dropout of its own). With ``discount`` 1, a draw is
    credited with all tokens from its own on, which is unbiased and noisy; with 0, with its own token alone; in between,
    a token counts less by that factor for each step. Entropy, weighed by ``entropy_weight``, keeps other positions in
    play. Target tokens equal to ``padding_id`` are padding; with None every token counts.

    Raises:
        ValueError: if the model's decoder is not a ``HardDecoder``, ``discount`` lies outside [0, 1], or
            ``entropy_weight`` is negative or infinite.

    Source: Xu et al. 2015, section 4.1; Williams 1992. The baseline, the model's own best guess instead of a running
    mean, is that of Rennie et al. 2017.
    """
    decoder = getattr(model, "decoder", None)
    if not isinstance(decoder, HardDecoder):
        raise ValueError(f"model: expected a HardDecoder as its decoder, got {type(decoder).__name__}")
    if not is_number(discount) or not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount: expected a number from 0 to 1, got {shown(discount)}")
    check_number("entropy_weight", entropy_weight, at_least=0)
    memory = model.encoder(batch.source, batch.source_lengths)  # type: ignore[operator]
    draws = decoder.draw(memory, batch.target_in)
    target = batch.target_out
    true = torch.ones_like(target, dtype=torch.bool) if padding_id is None else target != padding_id
    words = _log_probability(draws.logits, target, true)
    with torch.no_grad():
        advantage = words - _log_probability(decoder(memory, batch.target_in), target, true)
        for step in range(advantage.shape[1] - 2, -1, -1):
            advantage[:, step] += discount * advantage[:, step + 1]
    objective = words + (advantage * draws.log_probability + entropy_weight * draws.entropy) * true
    return -objective.sum(), true.sum()


def _log_probability(logits: Tensor, target: Tensor, true: Tensor) -> Tensor:
    """Of each target word ``(B, T)``, in nats; 0 where it is not ``true``."""
    words = target.long().masked_fill(~true, 0)
    logs = logits.to(accum_dtype(logits)).log_softmax(-1).gather(-1, words[..., None])[..., 0]
    return logs.masked_fill(~true, 0.0)
