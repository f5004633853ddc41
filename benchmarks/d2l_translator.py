"""A translator with Bahdanau attention built from d2l's classes, trained and run as d2l does it.

d2l's package has the encoder, the additive attention, the loss and the training loop; the decoder stands in its book.
Here it is written anew from the published architecture, around d2l's own `AdditiveAttention`. The argument `d2l` is
always the module that `attn_book.companion.load_d2l()` gives.

Source: Zhang et al., Dive into Deep Learning 0.17 (the architecture); Bahdanau et al. 2015.
"""

import time
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attn_book.data import Vocab

Arrays = tuple[Tensor, Tensor, Tensor, Tensor]
"""A batch as d2l has it: source (B, S), source lengths (B,), target (B, T), target lengths (B,); no <bos>."""

LEARNING_RATE = 0.005


class BahdanauDecoder(nn.Module):
    """At each step the top layer's last state asks `attention`; what it finds enters the GRU beside the token.

    The interface is d2l's: `init_state(encoder_outputs, lengths)`, and `forward(tokens (B, T), state)` gives logits
    (B, T, V) and the next state.
    """

    def __init__(
        self, attention: nn.Module, vocab_size: int, *, embed_dim: int, hidden_dim: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.rnn = nn.GRU(embed_dim + hidden_dim, hidden_dim, num_layers, dropout=dropout)
        self.dense = nn.Linear(hidden_dim, vocab_size)

    def init_state(self, encoder_outputs: tuple[Tensor, Tensor], lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values (B, S, D), the encoder's final state of every layer (layers, B, D), and the lengths."""
        states, final = encoder_outputs
        return states.transpose(0, 1), final, lengths

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Logits (B, T, V) of the tokens after these, and the state after them."""
        memory, hidden, lengths = state
        outputs = []
        for embedded in self.embedding(tokens).unbind(1):
            query = hidden[-1].unsqueeze(1)
            context = self.attention(query, memory, memory, lengths).squeeze(1)
            output, hidden = self.rnn(torch.cat([context, embedded], dim=-1).unsqueeze(0), hidden)
            outputs.append(output.squeeze(0))
        return self.dense(torch.stack(outputs, dim=1)), (memory, hidden, lengths)


def translator(
    d2l: ModuleType,
    source_size: int,
    target_size: int,
    *,
    embed_dim: int = 32,
    hidden_dim: int = 32,
    num_layers: int = 2,
    dropout: float = 0.1,
) -> nn.Module:
    """An untrained model for two vocabularies of these sizes, its weights drawn as d2l's training loop draws them."""
    attention = d2l.AdditiveAttention(hidden_dim, hidden_dim, hidden_dim, dropout)
    model = d2l.EncoderDecoder(
        d2l.Seq2SeqEncoder(source_size, embed_dim, hidden_dim, num_layers, dropout),
        BahdanauDecoder(
            attention, target_size, embed_dim=embed_dim, hidden_dim=hidden_dim, num_layers=num_layers, dropout=dropout
        ),
    )
    for module in model.modules():
        if type(module) in (nn.Linear, nn.GRU):
            for name, weight in module.named_parameters():
                if "weight" in name:
                    nn.init.xavier_uniform_(weight)
    return model


def padded(sentences: Iterable[Sequence[str]], vocab: Vocab, num_steps: int) -> tuple[Tensor, Tensor]:
    """Token ids (N, num_steps), cut or padded at the end, and the lengths (N,), <eos> counted where it was not cut."""
    rows = ([*vocab.encode(words), Vocab.EOS] + [Vocab.PAD] * num_steps for words in sentences)
    ids = torch.tensor([row[:num_steps] for row in rows])
    return ids, (ids != Vocab.PAD).sum(1)


def train_step(
    d2l: ModuleType, model: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer, arrays: Arrays
) -> Tensor:
    """One step of d2l's training loop, in its order; the loss, summed over sentences and averaged over time steps.

    `loss` is a `d2l.MaskedSoftmaxCELoss()`.
    """
    optimizer.zero_grad()
    source, source_lengths, target, target_lengths = arrays
    begin = target.new_full((len(target), 1), Vocab.BOS)
    logits, _ = model(source, torch.cat([begin, target[:, :-1]], dim=1), source_lengths)
    value = loss(logits, target, target_lengths).sum()
    value.backward()
    d2l.grad_clipping(model, 1)
    optimizer.step()
    return value.detach()


def train(
    d2l: ModuleType,
    model: nn.Module,
    batches: Iterable[Arrays],
    *,
    epochs: int,
    seconds: float | None = None,
    learning_rate: float = LEARNING_RATE,
) -> float:
    """Train in place, as `d2l.train_seq2seq` does, on the device of the model; the seconds that it took.

    `batches` is iterated once an epoch: `d2l.load_array(arrays, 64)` gives such a loader. Ends early after `seconds`.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    loss = d2l.MaskedSoftmaxCELoss()
    model.train()
    started = time.perf_counter()
    for _ in range(epochs):
        for arrays in batches:
            source, source_lengths, target, target_lengths = (x.to(device) for x in arrays)
            # Reading the loss waits for the device, so that the clock below is right.
            train_step(d2l, model, loss, optimizer, (source, source_lengths, target, target_lengths)).item()
            if seconds is not None and time.perf_counter() - started >= seconds:
                return time.perf_counter() - started
    return time.perf_counter() - started


@torch.no_grad()
def translate(
    model: nn.Module,
    sentences: Sequence[Sequence[str]],
    vocabs: tuple[Vocab, Vocab],
    *,
    num_steps: int = 10,
    batch_size: int = 256,
) -> list[list[str]]:
    """Greedy translations, in the order given: what `d2l.predict_seq2seq` finds, for whole batches at once.

    Sources are cut or padded to `num_steps`, as in training, and at most so many words come. The model is left in
    evaluation mode, as d2l leaves it.
    """
    model.eval()
    net: Any = model
    device = next(model.parameters()).device
    found: list[list[str]] = []
    for start in range(0, len(sentences), batch_size):
        chosen = sentences[start : start + batch_size]
        source, lengths = (x.to(device) for x in padded(chosen, vocabs[0], num_steps))
        state = net.decoder.init_state(net.encoder(source, lengths), lengths)
        tokens = source.new_full((len(source), 1), Vocab.BOS)
        columns = []
        for _ in range(num_steps):
            logits, state = net.decoder(tokens, state)
            tokens = logits.argmax(-1)
            columns.append(tokens)
        found += [vocabs[1].decode(row) for row in torch.cat(columns, dim=1).tolist()]
    return found
