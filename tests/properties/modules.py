"""Every public module of the package: how to make a small one, and how to call it on inputs of any size."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

import attn_core
from attn_book import context, contrastive, induction, painter, pretrain
from attn_book.captioner import ImageEncoder
from attn_book.context.encoder import ContextEncoder, ContextLayer
from attn_book.indexer import LightningIndexer
from attn_core import (
    Dense,
    FlashAttention,
    GatedDeltaNet,
    LatentAttention,
    LongformerAttention,
    MultiHeadAttention,
    SlidingWindow,
    masks,
    scores,
    seq2seq,
    transformer,
    vision,
)
from attn_core.positions import ALiBi, Learned, Rotary, Sinusoidal
from attn_core.seq2seq.decoder import DeepOutput
from attn_core.transformer import FeedForward, SwiGLU
from attn_core.transformer.layers import AddNorm, DecoderLayer, EncoderLayer
from attn_core.transformer.stacks import DecoderStack, EncoderStack, TokenEmbedding
from tests.properties.mechanisms import MECHANISMS, Mechanism

VOCAB, DIM, HEADS = 11, 8, 2
CONFIG = transformer.TransformerConfig(
    VOCAB, model_dim=DIM, num_heads=HEADS, num_layers=2, feed_forward_dim=12, dropout=0.0
)
GROUPED = transformer.TransformerConfig(
    VOCAB,
    model_dim=DIM,
    num_heads=HEADS,
    num_kv_heads=1,
    num_layers=1,
    feed_forward_dim=12,
    dropout=0.0,
    norm_first=True,
)
LLAMA = transformer.TransformerConfig(
    VOCAB,
    model_dim=DIM,
    num_heads=HEADS,
    num_kv_heads=1,
    num_layers=2,
    feed_forward_dim=12,
    dropout=0.0,
    norm_first=True,
    norm=nn.RMSNorm,
    feed_forward=SwiGLU,
    bias=False,
    scale_embedding=False,
)
SIZES = {"embed_dim": 6, "hidden_dim": 8}


@dataclass(frozen=True)
class Inputs:
    """So many rows and tokens, and entries that follow from a seed; the same ones however often they are asked for.

    They are drawn on the CPU, and lie on the default device: on a GPU within ``with torch.device("cuda")``. ``row``
    leaves one row alone. With ``filler``, other things lie in the padding; with ``late``, the words of ``target`` are
    others from that place on.
    """

    batch: int
    length: int
    seed: int
    dtype: torch.dtype = torch.float32
    row: int | None = None
    filler: int = 0
    late: int | None = None

    def random(self, number: int) -> torch.Generator:
        return torch.Generator("cpu").manual_seed(1000 * self.seed + number)

    def floats(self, *shape: int, number: int = 0) -> Tensor:
        """Normal entries ``(B, *shape)``."""
        return self.of_row(
            torch.randn((self.batch, *shape), generator=self.random(number), device="cpu").to(self.dtype)
        )

    def integers(self, end: int, *shape: int, number: int = 1) -> Tensor:
        """Numbers ``(B, *shape)`` from 0 to ``end`` − 1."""
        return self.of_row(torch.randint(end, (self.batch, *shape), generator=self.random(number), device="cpu"))

    def of_row(self, x: Tensor) -> Tensor:
        return (x if self.row is None else x[self.row : self.row + 1]).to(torch.get_default_device())

    def states(self, number: int = 0) -> Tensor:
        """``(B, T, C)``, padded after ``lengths``."""
        found = self.floats(self.length, DIM, number=number)
        other = self.floats(self.length, DIM, number=number + 500)
        return torch.where(self.words[..., None], found, 100 * self.filler * other)

    def tokens(self, number: int = 1) -> Tensor:
        """``(B, T)``, padded after ``lengths``."""
        found = self.integers(VOCAB, self.length, number=number)
        other = self.integers(VOCAB, self.length, number=number + 500)
        return torch.where(self.words, found, other if self.filler else 0)

    def target(self) -> Tensor:
        """Words ``(B, T)`` without padding, which a model reads from left to right."""
        found = self.integers(VOCAB, self.length, number=9)
        late = torch.arange(self.length) >= (self.length if self.late is None else self.late)
        return torch.where(late, (found + 1) % VOCAB, found)

    def sequence(self) -> Tensor:
        """Vectors ``(B, T, C)`` without padding, others from ``late`` on."""
        found = self.floats(self.length, DIM, number=11)
        late = torch.arange(self.length) >= (self.length if self.late is None else self.late)
        return torch.where(late[:, None], found.roll(1, -1) + 1, found)

    @property
    def hidden(self) -> Tensor:
        """Which keys ``(B, 1, 1, T)`` may be attended to: those of words."""
        return self.words[:, None, None]

    @property
    def bias(self) -> Tensor:
        """What is added to the scores, ``(H, T, T)``."""
        found = torch.randn(HEADS, self.length, self.length, generator=self.random(12), device="cpu")
        return found.to(torch.get_default_device(), self.dtype)

    @property
    def lengths(self) -> Tensor:
        """From 1 on; the first row is whole."""
        found = 1 + torch.randint(self.length, (self.batch,), generator=self.random(2), device="cpu")
        found[0] = self.length
        return self.of_row(found)

    @property
    def words(self) -> Tensor:
        return masks.length_mask(self.lengths, self.length)

    @property
    def heads(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v ``(B, H, T, 4)``."""
        return tuple(self.floats(HEADS, self.length, 4, number=n) for n in (3, 4, 5))

    @property
    def sentences(self) -> Tensor:
        """Numbers of sentences that go up by 0 or 1, −1 at padding."""
        found = self.integers(2, self.length, number=6).cumsum(1)
        return (found - found[:, :1]).masked_fill(~self.words, -1)

    @property
    def memory(self) -> seq2seq.Memory:
        return seq2seq.Memory(self.states(), self.floats(DIM, number=7), self.words)


INPUTS = st.builds(Inputs, st.integers(1, 3), st.integers(1, 6), st.integers(0, 999))


@dataclass(frozen=True)
class Module:
    """``make()`` gives a small one, ``call(module, inputs)`` runs it: a tensor, or several."""

    make: Callable[[], nn.Module]
    call: Callable[[nn.Module, Inputs], Any]


def of_states(module: nn.Module, x: Inputs) -> Tensor:
    return module(x.states())


def of_mechanism(mechanism: Mechanism) -> Module:
    """A row of the table of mechanisms as one of this table, where what it makes is a module."""

    def call(module: nn.Module, x: Inputs) -> Tensor:
        q, k, v = x.heads
        return module(q, q if mechanism.draws.get("shared") else k, v)

    return Module(lambda: mechanism.made_for(*Inputs(1, 1, 0).heads), call)


def of_pairs(module: nn.Module, x: Inputs) -> Tensor:
    return module(x.states(), x.states(8))


def of_tokens(module: nn.Module, x: Inputs) -> Any:
    return module(x.target())


def of_texts(module: nn.Module, x: Inputs) -> Any:
    return module(x.tokens(), x.lengths)


def of_memory(module: nn.Module, x: Inputs) -> Tensor:
    return module(x.memory, x.target())


def of_sentences(module: nn.Module, x: Inputs) -> Tensor:
    return module(x.states(), x.sentences, x.words)


def translated(module: nn.Module, x: Inputs) -> Tensor:
    return module(x.tokens(), x.lengths, x.target())


def turned(module: Rotary, x: Inputs) -> Tensor:
    return module.rotate(x.heads[0], torch.arange(x.length) + 3)


def decoder(kind: type, **more: Any) -> Callable[[], nn.Module]:
    return lambda: kind(VOCAB, **SIZES, memory_dim=DIM, **more)


def segments() -> transformer.SegmentEncoder:
    return transformer.SegmentEncoder(CONFIG)


def in_segments(module: nn.Module, x: Inputs, *more: Tensor) -> Tensor:
    return module(x.tokens(), x.lengths, x.integers(2, x.length, number=10), *more)


MODULES: dict[str, Module] = {
    # scores and mechanisms
    "Dot": Module(scores.Dot, of_pairs),
    "ScaledDot": Module(scores.ScaledDot, of_pairs),
    "General": Module(lambda: scores.General(DIM, DIM), of_pairs),
    "Additive": Module(lambda: scores.Additive(DIM, DIM, 5), of_pairs),
    **{
        name: of_mechanism(one)
        for name, one in MECHANISMS.items()
        if name in attn_core.__all__ and isinstance(one.made_for(*Inputs(1, 1, 0).heads), nn.Module)
    },
    # positions
    "Sinusoidal": Module(lambda: Sinusoidal(DIM), lambda m, x: m(x.states(), offset=2)),
    "Learned": Module(lambda: Learned(8, DIM), lambda m, x: m(x.states(), offset=2)),
    "Rotary": Module(lambda: Rotary(4), turned),
    "ALiBi": Module(lambda: ALiBi(HEADS), lambda m, x: m.bias(torch.arange(x.length) + 2, torch.arange(5))),
    # layers
    "MultiHeadAttention": Module(lambda: MultiHeadAttention(DIM, 4, num_kv_heads=2, positions=Rotary(2)), of_states),
    "MultiHeadAttention, masked": Module(
        lambda: MultiHeadAttention(DIM, HEADS), lambda m, x: m(x.states(), mask=x.hidden, bias=x.bias)
    ),
    "MultiHeadAttention, of others": Module(
        lambda: MultiHeadAttention(DIM, HEADS, positions=ALiBi(HEADS)),
        lambda m, x: m(x.sequence(), x.states(), mask=x.hidden),
    ),
    "MultiHeadAttention, causal": Module(
        lambda: MultiHeadAttention(DIM, HEADS, positions=Rotary(DIM // HEADS)),
        lambda m, x: m(x.sequence(), bias=x.bias, causal=True),
    ),
    "MultiHeadAttention, normed and gated": Module(
        lambda: MultiHeadAttention(DIM, HEADS, query_key_norm=nn.LayerNorm, gate=True),
        lambda m, x: m(x.sequence(), x.states(), mask=x.hidden),
    ),
    "GatedDeltaNet": Module(lambda: GatedDeltaNet(DIM, HEADS, conv_size=3), lambda m, x: m(x.sequence(), causal=True)),
    "LatentAttention, masked": Module(
        lambda: LatentAttention(DIM, HEADS, latent_dim=6, rotary_dim=2, bias=True),
        lambda m, x: m(x.states(), mask=x.hidden, bias=x.bias),
    ),
    "LatentAttention, causal": Module(
        lambda: LatentAttention(DIM, HEADS, latent_dim=6, rotary_dim=2), lambda m, x: m(x.sequence(), causal=True)
    ),
    "LatentAttention, absorbed, causal": Module(
        lambda: LatentAttention(DIM, HEADS, latent_dim=6, rotary_dim=2),
        lambda m, x: m.attend_absorbed(*m.project(x.sequence()), bias=x.bias, causal=True),
    ),
    "LongformerAttention": Module(
        lambda: LongformerAttention(DIM, HEADS, 1), lambda m, x: m(x.states(), x.integers(2, x.length).bool(), x.words)
    ),
    "FeedForward": Module(lambda: FeedForward(DIM, 12), lambda m, x: m(x.sequence())),  # at 0, its ReLU has no slope
    "SwiGLU": Module(lambda: SwiGLU(DIM, 12, bias=False), lambda m, x: m(x.states())),
    "AddNorm": Module(lambda: AddNorm(DIM, dropout=0.0, norm_first=True), lambda m, x: m(x.states(), torch.tanh)),
    "EncoderLayer": Module(lambda: EncoderLayer(GROUPED, positions=ALiBi(HEADS)), of_states),
    "EncoderLayer, masked": Module(lambda: EncoderLayer(CONFIG), lambda m, x: m(x.states(), mask=x.hidden)),
    "EncoderLayer, causal": Module(
        lambda: EncoderLayer(GROUPED, mechanism=SlidingWindow(1)), lambda m, x: m(x.sequence(), causal=True)
    ),
    "DecoderLayer": Module(
        lambda: DecoderLayer(CONFIG),
        lambda m, x: m(x.sequence(), m.cross_attention.project_kv(x.states()), memory_mask=x.hidden),
    ),
    "EncoderStack": Module(lambda: EncoderStack(CONFIG, mechanism=Dense), lambda m, x: m(x.states(), mask=x.hidden)),
    "EncoderStack, causal": Module(
        lambda: EncoderStack(CONFIG, mechanism=FlashAttention), lambda m, x: m(x.sequence(), causal=True)
    ),
    "DecoderStack": Module(
        lambda: DecoderStack(CONFIG, mechanism=Dense, cross_mechanism=Dense),
        lambda m, x: m(
            x.sequence(), [layer.cross_attention.project_kv(x.states()) for layer in m.layers], memory_mask=x.hidden
        ),
    ),
    "TokenEmbedding": Module(lambda: TokenEmbedding(VOCAB, CONFIG, Sinusoidal(DIM)), of_tokens),
    # models
    "Transformer": Module(lambda: transformer.Transformer(CONFIG), translated),
    "TransformerEncoder": Module(
        lambda: transformer.TransformerEncoder(GROUPED, positions=lambda: Rotary(DIM // HEADS)), of_texts
    ),
    "LanguageModel": Module(lambda: transformer.LanguageModel(CONFIG), of_tokens),
    "LanguageModel, of the Llama family": Module(
        lambda: transformer.LanguageModel(LLAMA, positions=lambda: Rotary(DIM // HEADS)), of_tokens
    ),
    "AttentionOnly": Module(
        lambda: induction.AttentionOnly(VOCAB, model_dim=DIM, num_heads=HEADS, num_layers=2), of_tokens
    ),
    "Encoder": Module(lambda: seq2seq.Encoder(VOCAB, embed_dim=6, hidden_dim=4), of_texts),
    "FixedContextDecoder": Module(decoder(seq2seq.FixedContextDecoder), of_memory),
    "BahdanauDecoder": Module(decoder(seq2seq.BahdanauDecoder), of_memory),
    "HardDecoder": Module(decoder(seq2seq.HardDecoder), of_memory),
    "LuongDecoder": Module(
        lambda: decoder(seq2seq.LuongDecoder, score=scores.General(8, DIM), window=seq2seq.LocalPredictive(8, 2))(),
        of_memory,
    ),
    "MultiHeadDecoder": Module(decoder(seq2seq.MultiHeadDecoder, num_heads=HEADS), of_memory),
    "DeepOutput": Module(lambda: DeepOutput(VOCAB, 2 * DIM, 6), of_pairs),
    "Seq2Seq": Module(
        lambda: seq2seq.Seq2Seq(seq2seq.Encoder(VOCAB, embed_dim=6, hidden_dim=4), decoder(seq2seq.BahdanauDecoder)()),
        translated,
    ),
    "LocalMonotonic": Module(lambda: seq2seq.LocalMonotonic(1), lambda m, x: m(x.states()[:, :1], x.words, 1)),
    "LocalPredictive": Module(lambda: seq2seq.LocalPredictive(DIM, 1), lambda m, x: m(x.states()[:, :1], x.words, 1)),
    # context
    "ContextAttention": Module(lambda: context.ContextAttention(DIM, HEADS, context_dim=DIM), of_pairs),
    "GlobalContext": Module(lambda: context.GlobalContext(DIM), of_sentences),
    "AttentionPooling": Module(
        lambda: context.AttentionPooling(DIM),
        lambda m, x: m(x.states(), context.sentence_members(x.sentences, x.words)),
    ),
    "HierarchicalContext": Module(lambda: context.HierarchicalContext(DIM), of_sentences),
    "DynamicContext": Module(lambda: context.DynamicContext(DIM), of_sentences),
    "ContextLayer": Module(
        lambda: ContextLayer(CONFIG, context.GlobalContext(DIM)),
        lambda m, x: m(x.states(), x.sentences, x.words, mask=x.words[:, None, None]),
    ),
    "ContextEncoder": Module(
        lambda: ContextEncoder(CONFIG, context.HierarchicalContext), lambda m, x: m(x.tokens(), x.lengths, x.sentences)
    ),
    # pretraining
    "SegmentEncoder": Module(segments, in_segments),
    "ClassHead": Module(lambda: pretrain.ClassHead(DIM, 3), of_states),
    "MaskedLanguageModel": Module(
        lambda: pretrain.MaskedLanguageModel(segments()), lambda m, x: in_segments(m, x, x.words)
    ),
    "NextSentenceModel": Module(
        lambda: pretrain.NextSentenceModel(segments()), lambda m, x: in_segments(m, x, x.words)
    ),
    "Classifier": Module(
        lambda: pretrain.Classifier(segments(), 3), lambda m, x: in_segments(m, x, torch.zeros_like(x.lengths))
    ),
    # vision
    "PatchEmbedding": Module(lambda: vision.PatchEmbedding(4, DIM), lambda m, x: m(x.floats(3, 8, 8))),
    "VisionTransformer": Module(
        lambda: vision.VisionTransformer(CONFIG, image_size=8, patch_size=4), lambda m, x: m(x.floats(3, 8, 8))
    ),
    "ImageEncoder": Module(
        lambda: ImageEncoder(image_size=16, memory_dim=DIM),
        lambda m, x: m(x.floats(3, 16, 16), torch.full_like(x.lengths, 4)),
    ),
    "ContrastivePair": Module(
        lambda: contrastive.ContrastivePair(
            vision.VisionTransformer(CONFIG, image_size=8, patch_size=4),
            transformer.TransformerEncoder(CONFIG),
            shared_dim=4,
        ),
        lambda m, x: m(x.floats(3, 8, 8), x.tokens(), x.lengths),
    ),
    "PainterBlock": Module(
        lambda: painter.PainterBlock(DIM, HEADS),
        lambda m, x: m(x.floats(4, DIM), x.floats(6, DIM, number=7), x.states(8), x.hidden),
    ),
    "Painter": Module(
        lambda: painter.Painter(VOCAB, dim=DIM, num_heads=HEADS, num_layers=1, patch_size=16),
        lambda m, x: m(x.floats(4, 768), x.floats(number=7).sigmoid(), x.tokens(), x.lengths),
    ),
    # what ranks keys
    "LightningIndexer": Module(
        lambda: LightningIndexer(DIM, num_heads=2, head_dim=4), lambda m, x: m(x.sequence()).softmax(-1)
    ),
}


def outputs(found: Any) -> list[Tensor]:
    """The tensors of what a module returned."""
    if isinstance(found, Tensor):
        return [found]
    return [tensor for one in found or () for tensor in outputs(one)]


def reachable(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that an object holds, in attributes, lists and dictionaries, registered or not."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | torch.Generator):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from reachable(inner, seen)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from reachable(inner, seen)
    elif hasattr(value, "__dict__") and type(value).__module__.split(".")[0] in ("attn_core", "attn_book", "torch"):
        yield from reachable(vars(value), seen)
