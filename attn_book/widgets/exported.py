"""Trained translators and painters as JSON, with eight bits a weight so that they fit into a page, and back."""

from __future__ import annotations

import base64
import copy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from attn_book.data import Vocab
from attn_book.painter import Painter
from attn_core.contract import kind
from attn_core.mechanisms.dense import Dense
from attn_core.multi_head import MultiHeadAttention
from attn_core.positions import Learned, Sinusoidal
from attn_core.seq2seq import BahdanauDecoder, Encoder, Seq2Seq
from attn_core.transformer import Transformer, TransformerConfig

_TOP = 127  # the greatest code
_Model = TypeVar("_Model", bound=nn.Module)


def export_translator(model: nn.Module, source_vocab: Vocab, target_vocab: Vocab) -> dict[str, Any]:
    """Return a trained translator as plain data that JSON can hold and `translator_model.js` can run.

    `model` is a `Transformer`, or a `Seq2Seq` of a bidirectional `Encoder` and a `BahdanauDecoder`, one layer each.
    Each row of a matrix is stored as whole numbers from −127 to 127 and one float32 that they are multiplied by;
    vectors stay float32. Every parameter keeps its name, and its numbers are little-endian in base64. `dequantised`
    returns a model with the resulting weights.

    Raises:
        ValueError: if the model is of another kind or has a part that the page cannot run, a weight is not finite, or
            a vocabulary's size differs from the model's.
    """
    if isinstance(model, Transformer):
        settings, sizes = _transformer(model)
    elif isinstance(model, Seq2Seq):
        settings, sizes = _bahdanau(model)
    else:
        raise ValueError(f"model: expected a Transformer or a Seq2Seq, got {kind(model)}")
    for name, vocab, size in zip(("source_vocab", "target_vocab"), (source_vocab, target_vocab), sizes, strict=True):
        if not isinstance(vocab, Vocab) or len(vocab) != size:
            got = f"{len(vocab)} words" if isinstance(vocab, Vocab) else kind(vocab)
            raise ValueError(f"{name}: expected a Vocab of {size} words, as the model's, got {got}")
    words = {"source": list(source_vocab.tokens), "target": list(target_vocab.tokens)}
    return settings | words | {"weights": _stored_weights(model)}


def export_painter(model: Painter, vocab: Vocab) -> dict[str, Any]:
    """Return a trained painter as plain data that JSON can hold and `text_to_image_model.js` can run.

    The weights are stored as by `export_translator`; `load_painter` returns a model of them.

    Raises:
        ValueError: if the model is no `Painter`, the vocabulary's size differs from the model's, or a weight is not
            finite.
    """
    if not isinstance(model, Painter):
        raise ValueError(f"model: expected a Painter, got {kind(model)}")
    size = model.caption.config.vocab_size
    if not isinstance(vocab, Vocab) or len(vocab) != size:
        got = f"{len(vocab)} words" if isinstance(vocab, Vocab) else kind(vocab)
        raise ValueError(f"vocab: expected a Vocab of {size} words, as the model's, got {got}")
    settings = {"patch": model.patch_size, "heads": model.num_heads, "layers": len(model.blocks)}
    return settings | {"dim": model.inward.out_features, "words": list(vocab.tokens), "weights": _stored_weights(model)}


def load_painter(exported: dict[str, Any]) -> tuple[Painter, dict[str, int]]:
    """Return the model whose weights `export_painter` stored, and the id of each word."""
    words = exported["words"]
    sizes = {"dim": exported["dim"], "num_heads": exported["heads"], "num_layers": exported["layers"]}
    model = Painter(len(words), **sizes, patch_size=exported["patch"])
    stored = exported["weights"]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_opened(stored[name], parameter.shape))
    return model.eval(), {word: number for number, word in enumerate(words)}


def dequantised(model: _Model) -> _Model:
    """Return a copy of the model with the weights that `export_translator` stores, to measure the loss of precision.

    Raises:
        ValueError: if a weight is not finite.
    """
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in rounded.named_parameters():
            if parameter.dim() > 1:
                codes, scales = _quantised(name, parameter)
                parameter.copy_(codes * scales)
    return rounded


def _quantised(name: str, matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Whole numbers `(R, C)` and scales `(R, 1)`, both float32, whose product approximates the matrix `(R, C)`."""
    _check_finite(name, matrix)
    matrix = matrix.detach().float().cpu()
    scales = matrix.abs().amax(1, keepdim=True) / _TOP
    return torch.where(scales > 0, matrix / scales, 0.0).round(), scales


def _stored(name: str, weight: Tensor) -> dict[str, str]:
    """A vector as it is, or the codes and scales of a matrix."""
    if weight.dim() == 1:
        _check_finite(name, weight)
        return {"values": _text(weight.detach().float().cpu())}
    codes, scales = _quantised(name, weight)
    return {"codes": _text(codes.to(torch.int8)), "scales": _text(scales)}


def _stored_weights(model: nn.Module) -> dict[str, dict[str, str]]:
    return {name: _stored(name, x) for name, x in model.named_parameters()}


def _opened(stored: dict[str, str], shape: torch.Size) -> Tensor:
    """What `_stored` was given, as far as eight bits hold it."""

    def numbers(name: str, dtype: torch.dtype) -> Tensor:
        return torch.frombuffer(bytearray(base64.b64decode(stored[name])), dtype=dtype)

    if "values" in stored:
        return numbers("values", torch.float32).view(shape)
    return numbers("codes", torch.int8).view(shape) * numbers("scales", torch.float32)[:, None]


def _check_finite(name: str, weight: Tensor) -> None:
    if not bool(torch.isfinite(weight).all()):
        raise ValueError(f"model: expected finite weights, got others in {name}")


def _text(numbers: Tensor) -> str:
    array = numbers.contiguous().numpy()
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def _bahdanau(model: Seq2Seq) -> tuple[dict[str, Any], tuple[int, int]]:
    """The settings that the page needs beside the weights, and the sizes of the two vocabularies."""
    encoder, decoder = model.encoder, model.decoder
    # Not a subclass of one of these, such as hard attention, which computes something else.
    if type(encoder) is not Encoder or type(decoder) is not BahdanauDecoder:
        raise ValueError(f"model: expected an Encoder and a BahdanauDecoder, got {kind(encoder)} and {kind(decoder)}")
    if not encoder.rnn.bidirectional:
        raise ValueError("model: expected an Encoder with bidirectional=True, got a unidirectional one")
    if encoder.rnn.num_layers != 1:
        raise ValueError(f"model: expected num_layers=1 in the Encoder, got {encoder.rnn.num_layers}")
    return {"kind": "bahdanau"}, (encoder.embedding.num_embeddings, decoder.embedding.num_embeddings)


def _transformer(model: Transformer) -> tuple[dict[str, Any], tuple[int, int]]:
    """The settings that the page needs beside the weights, and the sizes of the two vocabularies."""
    config = model.config
    for name, part in model.named_modules():
        if isinstance(part, MultiHeadAttention):
            _check_attention(name, part)
    usual = TransformerConfig(config.vocab_size)
    for name in ("norm", "feed_forward", "bias", "scale_embedding"):
        if getattr(config, name) != getattr(usual, name):
            raise ValueError(f"model: expected {name}={getattr(usual, name)}, got {getattr(config, name)}")
    encodings = [model.source_embedding.positions, model.target_embedding.positions]
    for positions in encodings:
        if type(positions) not in (Sinusoidal, Learned):
            raise ValueError(f"model: expected Sinusoidal or Learned positions, got {kind(positions)}")
    settings = {"kind": "transformer", "layers": config.num_layers, "heads": config.num_heads}
    settings |= {"norm_first": config.norm_first, "base": getattr(encodings[0], "base", None)}
    return settings, (config.source_vocab_size or config.vocab_size, config.vocab_size)


def _check_attention(name: str, layer: MultiHeadAttention) -> None:
    if type(layer.mechanism) is not Dense:
        raise ValueError(f"model: expected Dense attention in {name}, got {kind(layer.mechanism)}")
    if layer.positions is not None:
        raise ValueError(
            f"model: expected positions that are added to the words, got {kind(layer.positions)} in {name}"
        )
    if layer.num_kv_heads != layer.num_heads:
        got = f"{layer.num_kv_heads} for {layer.num_heads} heads"
        raise ValueError(f"model: expected as many key-value heads as heads in {name}, got {got}")
    if layer.key is layer.query:
        raise ValueError(f"model: expected keys with a projection of their own in {name}, got share_query_key")
