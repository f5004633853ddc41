"""Models of the Llama family from GGUF files, the format of llama.cpp.

A GGUF file holds a model's sizes, its tokenizer and its parameters, most of them quantised to a few bits. They become
float32 here. Needs the packages gguf and tokenizers.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attn_core.positions import Rotary
from attn_core.transformer import LanguageModel, SwiGLU, TransformerConfig

_MODEL = {"token_embd.weight": "embedding.tokens.weight", "output_norm.weight": "stack.norm.weight"}
_LAYER = {
    "attn_norm.weight": "add_attention.norm.weight",
    "attn_q.weight": "attention.query.weight",
    "attn_k.weight": "attention.key.weight",
    "attn_v.weight": "attention.value.weight",
    "attn_output.weight": "attention.out.weight",
    "ffn_norm.weight": "add_feed_forward.norm.weight",
    "ffn_gate.weight": "feed_forward.gate.weight",
    "ffn_up.weight": "feed_forward.hidden.weight",
    "ffn_down.weight": "feed_forward.out.weight",
}
"""What the file calls a parameter, and what our model calls it."""
_CONTROL = 3
"""The type of special tokens."""


class Pretrained(NamedTuple):
    """A model, and the tokenizer that it was trained with."""

    model: LanguageModel
    tokenizer: Any


def load_gguf(path: Path | str) -> Pretrained:
    """The model of a GGUF file of the architecture ``llama``, and its tokenizer.

    The model is in float32 on the CPU, in evaluation mode. Its embedding is also the matrix of its logits. Queries and
    keys are stored with interleaved pairs of rotary entries, as ``Rotary`` has them, so all parameters are used as they
    are.

    The tokenizer is a ``tokenizers.Tokenizer``: byte-level BPE as SmolLM splits text. ``tokenizer.encode(text).ids``
    are the tokens, and ``tokenizer.decode(ids)`` is the text again. Names of special tokens in a text, such as
    ``<|im_start|>``, are encoded as these tokens.

    Raises:
        ImportError: if gguf or tokenizers is not installed.
        FileNotFoundError: if there is no such file.
        ValueError: if the file is of another architecture, scales its positions, or has another kind of tokenizer; if
            it lacks a parameter, has one that this model has not, or one of another shape.
    """
    from gguf import GGUFReader

    if not Path(path).is_file():
        raise FileNotFoundError(f"path: expected a GGUF file, got {path}")
    reader = GGUFReader(path)
    fields = _Fields(reader.fields, path)
    return Pretrained(_model(fields, {tensor.name: tensor for tensor in reader.tensors}), _tokenizer(fields))


def _model(sizes: "_Fields", stored: dict[str, Any]) -> LanguageModel:
    path = sizes.path
    if sizes.get("general.architecture") != "llama":
        raise ValueError(f"{path}: expected a model of the architecture llama, got {sizes.get('general.architecture')}")
    scaling = [name for name in sizes.fields if name.startswith("llama.rope.scaling")]
    if scaling:
        raise ValueError(f"{path}: expected rotary positions that are not scaled, got {scaling}")
    model_dim, num_heads, layers = (
        sizes.get(f"llama.{name}") for name in ("embedding_length", "attention.head_count", "block_count")
    )
    config = TransformerConfig(
        sizes.get("llama.vocab_size"),
        model_dim=model_dim,
        num_heads=num_heads,
        num_kv_heads=sizes.get("llama.attention.head_count_kv"),
        num_layers=layers,
        feed_forward_dim=sizes.get("llama.feed_forward_length"),
        dropout=0.0,
        norm_first=True,
        norm=partial(nn.RMSNorm, eps=sizes.get("llama.attention.layer_norm_rms_epsilon")),
        feed_forward=SwiGLU,
        bias=False,
        scale_embedding=False,
    )
    rotary = partial(Rotary, model_dim // num_heads, base=sizes.get("llama.rope.freq_base"))
    with torch.device("meta"):  # no memory for parameters that are replaced at once
        model = LanguageModel(config, positions=rotary)
    names = _MODEL | {
        f"blk.{number}.{theirs}": f"stack.layers.{number}.{ours}"
        for number in range(layers)
        for theirs, ours in _LAYER.items()
    }
    missing, unknown = sorted(names.keys() - stored.keys()), sorted(stored.keys() - names.keys())
    if missing or unknown:
        raise ValueError(f"{path}: expected the parameters of a Llama; missing: {missing}; not expected: {unknown}")
    expected, found = model.state_dict(), {}
    for theirs, ours in names.items():
        tensor = _floats(stored[theirs])
        if tensor.shape != expected[ours].shape:
            shapes = f"{tuple(expected[ours].shape)}, got {tuple(tensor.shape)}"
            raise ValueError(f"{path}: expected {theirs} of shape {shapes}")
        found[ours] = tensor
    model.load_state_dict(found, assign=True)
    return model.eval()


def _tokenizer(fields: "_Fields") -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kinds = tuple(fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    if kinds != ("gpt2", "smollm"):
        raise ValueError(f"{fields.path}: expected a tokenizer ('gpt2', 'smollm'), got {kinds}")
    tokens = fields.get("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in fields.get("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    kinds_of = fields.get("tokenizer.ggml.token_type")
    special = [token for token, number in zip(tokens, kinds_of, strict=True) if number == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    return tokenizer


class _Fields:
    """What a GGUF file says beside its tensors, by name."""

    def __init__(self, fields: dict[str, Any], path: Path | str) -> None:
        self.fields, self.path = fields, path

    def get(self, name: str) -> Any:
        if name not in self.fields:
            raise ValueError(f"{self.path}: expected the field {name}, got {len(self.fields)} others")
        return self.fields[name].contents()


def _floats(tensor: Any) -> Tensor:
    from gguf import dequantize

    return torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
