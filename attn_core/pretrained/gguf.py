"""Models of the Llama family from GGUF files, the format of llama.cpp.

A GGUF file holds a model's sizes, its tokenizer and its parameters, most of them quantised to a few bits. Needs the
packages gguf and tokenizers.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_core.positions import Interpolation
from attn_core.pretrained.checkpoint import Pretrained, Settings, Table, fill, make_llama, reading
from attn_core.transformer import LanguageModel

_OFF = """
attention.clamp_kqv attention.max_alibi_bias attention.sliding_window expert_count expert_used_count
use_parallel_residual
""".split()
_OFF_IN_TOKENIZER = "add_bos_token add_eos_token add_sep_token add_space_prefix remove_extra_whitespaces".split()
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
    needed={
        "general.architecture": ("llama",),
        "general.type": ("model",),
        "general.quantization_version": (2,),
        "llama.attention.causal": (True,),
        "llama.rope.scaling.attn_factor": (1,),
        "llama.rope.scaling.type": ("linear", "none"),
        "llama.tensor_data_layout": ("reference", "Meta AI original pth"),
        **{f"llama.{name}": (False, 0) for name in _OFF},
        **{f"tokenizer.ggml.{name}": (False, 0) for name in _OFF_IN_TOKENIZER},
    },
    harmless="""
GGUF.* general.* llama.context_length llama.rope.scaling.finetuned llama.rope.scaling.original_context_length quantize.*
split.* tokenizer.chat_template* tokenizer.ggml.*_token_id tokenizer.ggml.scores tokenizer.ggml.token_type_count
tokenizer.huggingface.json
""",
    logits="output.weight",
)
_SIZES = {
    "model_dim": "llama.embedding_length",
    "num_heads": "llama.attention.head_count",
    "num_layers": "llama.block_count",
    "feed_forward_dim": "llama.feed_forward_length",
}
# Types of tokens. Those of the last three are never split; the last type is ordinary text all the same.
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4


def load_gguf(path: Path | str) -> Pretrained[LanguageModel]:
    """The model of a GGUF file of the architecture ``llama``, its tokenizer, and the tokens that end a text.

    The model is in float32 on the CPU, in evaluation mode. Its embedding is also the matrix of its logits. The
    tokenizer is a ``tokenizers.Tokenizer``: byte-level BPE as SmolLM splits text. ``tokenizer.encode(text).ids`` are
    the tokens, and ``tokenizer.decode(ids)`` is the text again. Names of special tokens in a text, such as
    ``<|im_start|>``, and of tokens that the model's authors added, such as ``<think>``, are encoded as these tokens.

    Raises:
        ImportError: if gguf or tokenizers is not installed.
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, one of several shards, or of another byte order; if a setting is missing,
            unknown here, or asks for what the model has not; if a parameter is missing, unknown, or of another shape or
            an unknown format.
    """
    from gguf import GGUFReader, dequantize

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"path: expected a GGUF file, got {path}")
    with reading(path, "a GGUF file"):
        reader = GGUFReader(path)
        settings = Settings(path, {name: field.contents() for name, field in reader.fields.items()})
    if reader.byte_order != "I":
        raise ValueError(f"{path}: expected the byte order of this machine, got {reader.endianess.name.lower()}-endian")
    if settings.values.get("split.count", 0) not in (0, 1):
        raise ValueError(f"{path}: expected one file with all parameters, got a shard")
    for name, accepted in _LLAMA.needed.items():
        settings.expect(name, *accepted)
    model, tokenizer = _model(settings), _tokenizer(settings)
    ends = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
    end_ids = settings.token_ids(*ends, vocab_size=model.config.vocab_size)
    settings.refuse_others(_LLAMA.harmless.split())
    stored = {tensor.name: tensor for tensor in reader.tensors}

    def read(name: str) -> Tensor:
        with reading(path, f"{name} in a format that gguf dequantises"):
            return torch.from_numpy(dequantize(stored[name].data, stored[name].tensor_type).copy())

    fill(model, _LLAMA, stored, read, path)
    return Pretrained(model.eval(), tokenizer, end_ids)


def _model(settings: Settings) -> LanguageModel:
    sizes = settings.sizes(_SIZES)
    sizes["vocab_size"] = settings.get("llama.vocab_size", int, len(settings.get("tokenizer.ggml.tokens", list)))
    head_dim = settings.get("llama.attention.key_length", int, sizes["model_dim"] // sizes["num_heads"])
    settings.expect("llama.attention.value_length", head_dim)
    factor = settings.get("llama.rope.scaling.factor", float, settings.get("llama.rope.scale_linear", float, 1.0))
    scaled = factor != 1 and settings.values.get("llama.rope.scaling.type") != "none"
    return make_llama(
        settings,
        sizes,
        kv="llama.attention.head_count_kv",
        head="llama.attention.key_length",
        eps="llama.attention.layer_norm_rms_epsilon",
        rotary={
            "base": settings.get("llama.rope.freq_base", float, 10_000.0),
            "rotary_dim": settings.get("llama.rope.dimension_count", int, None),
            "scaling": Interpolation(factor) if scaled else None,
        },
    )


def _tokenizer(settings: Settings) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kinds = tuple(settings.get(f"tokenizer.ggml.{name}", str) for name in ("model", "pre"))
    if kinds != ("gpt2", "smollm"):
        raise ValueError(f"{settings.path}: expected a tokenizer ('gpt2', 'smollm'), got {kinds}")
    tokens, merges = (settings.get(f"tokenizer.ggml.{name}", list) for name in ("tokens", "merges"))
    types = settings.get("tokenizer.ggml.token_type", list, [_NORMAL] * len(tokens))
    with reading(settings.path, "tokens, merges and types of tokens that fit together"):
        vocab = {token: number for number, token in enumerate(tokens)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(merge.split(" ")) for merge in merges]))
        whole = [
            AddedToken(token, normalized=False, special=kind != _USER_DEFINED)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]
    tokenizer.add_tokens(whole)
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
