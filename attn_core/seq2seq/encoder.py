"""The encoder: a recurrent network that reads the source, and the memory that it leaves."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attn_core import masks
from attn_core.contract import check_dropout, check_flags, check_integer, check_lengths, check_tokens


class Memory(NamedTuple):
    """What an encoder hands to a decoder: ``states (B, S, C)``, ``final (B, C)`` and ``mask (B, S)``."""

    states: Tensor
    final: Tensor
    mask: Tensor

    def select(self, rows: Tensor) -> "Memory":
        """These rows of the batch."""
        return Memory(self.states[rows], self.final[rows], self.mask[rows])


class Encoder(nn.Module):
    """A GRU, unidirectional or bidirectional, that stops at each sentence's own end.

    ``hidden_dim`` is the size of one direction, so the memory of a bidirectional encoder has twice that size,
    ``memory_dim``. With more layers, the memory is the top one's. Padding is never read: ``final`` is the state at the
    last true token (forwards) and at the first (backwards). ``dropout`` acts on the embedded words, and between layers.

    Source: Cho et al. 2014, section 2.2; Bahdanau et al. 2015, section 3.2 (both ways).
    """

    def __init__(
        self,
        vocab_size: int,
        *,
        embed_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {"vocab_size": vocab_size, "embed_dim": embed_dim, "hidden_dim": hidden_dim, "num_layers": num_layers}
        for name, size in sizes.items():
            check_integer(name, size)
        check_dropout(dropout)
        check_flags(bidirectional=bidirectional)
        self.vocab_size = vocab_size
        self.embedding = embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.rnn = nn.GRU(
            embed_dim,
            hidden_dim,
            num_layers,
            batch_first=True,
            bidirectional=bidirectional,
            dropout=dropout if num_layers > 1 else 0.0,
        )
        self.memory_dim = hidden_dim * (2 if bidirectional else 1)

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """Read ``source (B, S)`` of token ids, each row true up to its entry in ``lengths (B,)``."""
        check_tokens("source", source, self.vocab_size, axes=2)
        mask = masks.length_mask(lengths, source.shape[1])
        check_lengths(lengths, source.shape[0], "sentence")
        embedded = self.dropout(self.embedding(source))
        packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
        packed_states, final = self.rnn(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=source.shape[1])
        top = final[-2:] if self.rnn.bidirectional else final[-1:]
        return Memory(states, top.transpose(0, 1).flatten(1), mask)


def embedding(vocab_size: int, embed_dim: int) -> nn.Embedding:
    """An embedding that starts at a standard deviation of 0.1.

    PyTorch's is 1, ten times that of a new GRU's states, and attention then learned much later, or not at all.
    """
    made = nn.Embedding(vocab_size, embed_dim)
    nn.init.normal_(made.weight, std=0.1)
    return made
