"""Models of the Llama family from GGUF files, the format of llama.cpp.

A GGUF file holds a model's sizes, its tokenizer and its parameters, most of them quantised to a few bits. They become
float32 here. Needs the packages gguf and tokenizers.
"""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_core.positions import Rotary
from attn_core.pretrained.tables import Pretrained, Table, fill
from attn_core.transformer import LanguageModel, SwiGLU, TransformerConfig

_LLAMA = Table(
    {"token_embd": "embedding.tokens", "output_norm": "stack.norm"},
    "blk",
    {
        "attn_norm": "add_attention.norm",
        "attn_q": "attention.query",
        "attn_k": "attention.key",
        "attn_v": "attention.value",
        "attn_output": "attention.out",
        "ffn_norm": "add_feed_forward.norm",
        "ffn_gate": "feed_forward.gate",
        "ffn_up": "feed_forward.hidden",
        "ffn_down": "feed_forward.out",
    },
)
_CONTROL = 3
"""The type of special tokens."""


def load_gguf(path: Path | str) -> Pretrained[LanguageModel]:
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
    fill(model, _LLAMA, stored, lambda name: _floats(stored[name]), path)
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
