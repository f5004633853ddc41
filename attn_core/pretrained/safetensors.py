"""Models from safetensors files, as they are published on the Hugging Face Hub: BERT, GPT-2 and Llama.

The file holds the parameters alone. The sizes of the model are in the ``config.json`` beside it, and the tokenizer in
``tokenizer.json``. Needs the package tokenizers.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional

from attn_core.positions import Learned, Rotary
from attn_core.pretrain.models import SegmentEncoder
from attn_core.pretrained.tables import Pretrained, Table, fill
from attn_core.transformer import FeedForward, LanguageModel, SwiGLU, TransformerConfig

_BERT = Table(
    {
        "embeddings.word_embeddings": "embedding.tokens",
        "embeddings.position_embeddings": "embedding.positions",
        "embeddings.token_type_embeddings": "segments",
        "embeddings.LayerNorm": "norm",
    },
    "encoder.layer",
    {
        "attention.self.query": "attention.query",
        "attention.self.key": "attention.key",
        "attention.self.value": "attention.value",
        "attention.output.dense": "attention.out",
        "attention.output.LayerNorm": "add_attention.norm",
        "intermediate.dense": "feed_forward.hidden",
        "output.dense": "feed_forward.out",
        "output.LayerNorm": "add_feed_forward.norm",
    },
)
_GPT2 = Table(
    {"wte": "embedding.tokens", "wpe": "embedding.positions", "ln_f": "stack.norm"},
    "h",
    {
        "ln_1": "add_attention.norm",
        "attn.c_attn": "attention.query attention.key attention.value",
        "attn.c_proj": "attention.out",
        "ln_2": "add_feed_forward.norm",
        "mlp.c_fc": "feed_forward.hidden",
        "mlp.c_proj": "feed_forward.out",
    },
    transposed=("c_attn.weight", "c_proj.weight", "c_fc.weight"),
)
_LLAMA = Table(
    {"embed_tokens": "embedding.tokens", "norm": "stack.norm"},
    "layers",
    {
        "input_layernorm": "add_attention.norm",
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.o_proj": "attention.out",
        "post_attention_layernorm": "add_feed_forward.norm",
        "mlp.gate_proj": "feed_forward.gate",
        "mlp.up_proj": "feed_forward.hidden",
        "mlp.down_proj": "feed_forward.out",
    },
)


class _Settings(dict[str, Any]):
    """What ``config.json`` says, by name."""

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"config.json: expected the setting {name}, got {len(self)} others")

    @classmethod
    def read(cls, path: Path) -> "_Settings":
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: expected an object in JSON, got {error}") from error


def load_safetensors(path: Path | str, layout: str) -> Pretrained[Any]:
    """The model of a safetensors file with one of three layouts of names, and its tokenizer.

    - ``"bert"``: a ``SegmentEncoder``, post-norm, with exact GELU, learned positions and a norm of the embeddings. The
      heads that BERT was trained with, and its pooler, are left out.
    - ``"gpt2"``: a ``LanguageModel``, pre-norm, with GELU by tanh and learned positions.
    - ``"llama"``: a ``LanguageModel`` as ``load_gguf`` makes it. These files rotate entry j of a head with entry
      j + D/2, ``Rotary`` entries 2j and 2j+1, so the rows of queries and keys are put in that order. The scores stay
      the same.

    The model is in float32 on the CPU, in evaluation mode. The matrix of the logits is the embedding's own. Sizes come
    from ``config.json`` in the same folder. The tokenizer is a ``tokenizers.Tokenizer``, from ``tokenizer.json`` there;
    it neither pads nor truncates.

    Raises:
        ImportError: if tokenizers is not installed.
        FileNotFoundError: if the file, ``config.json`` or ``tokenizer.json`` is not there.
        ValueError: if ``layout`` is none of these; if the file is damaged; if a setting is missing or asks for what
            the model has not; if a parameter is missing, has another shape, or is one that this model has not.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"layout: expected one of {', '.join(_LAYOUTS)}, got {layout!r}")
    table, make, needed, prefix, left_out = _LAYOUTS[layout]
    path = Path(path)
    settings = path.with_name("config.json")
    for file in (path, settings):
        if not file.is_file():
            raise FileNotFoundError(f"path: expected a safetensors file with config.json beside it, got no {file}")
    config = _Settings.read(settings)
    for name, value in {"model_type": layout, **needed}.items():
        if config.get(name, value) != value:
            raise ValueError(f"{settings}: expected {name} to be {value!r}, got {config[name]!r}")
    with torch.device("meta"):  # no memory for parameters that are replaced at once
        model = make(config)
    try:
        with safe_open(path, "pt") as stored:
            names = {_today(name).removeprefix(prefix): name for name in stored.keys()}  # noqa: SIM118 (no dictionary)
            read = {name for name in names if not re.fullmatch(left_out, name)}
            fill(model, table, read, lambda name: stored.get_tensor(names[name]).float(), path)
            if "lm_head.weight" in names:
                head = stored.get_tensor("lm_head.weight").float()
                if not torch.equal(head, model.embedding.tokens.weight):
                    raise ValueError(f"{path}: expected lm_head.weight to be the embedding, got another matrix")
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file, got {error}") from error
    if layout == "llama":
        for layer in model.stack.layers:
            for projection in (layer.attention.query, layer.attention.key):
                projection.weight = nn.Parameter(_interleaved(projection.weight.detach(), layer.attention.head_dim))
    return Pretrained(model.eval(), _tokenizer(path.with_name("tokenizer.json")))


def _bert(config: _Settings) -> SegmentEncoder:
    sizes = TransformerConfig(
        config["vocab_size"],
        model_dim=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        num_layers=config["num_hidden_layers"],
        feed_forward_dim=config["intermediate_size"],
        dropout=0.0,
        norm=partial(nn.LayerNorm, eps=config["layer_norm_eps"]),
        feed_forward=partial(FeedForward, activation=functional.gelu),
        scale_embedding=False,
    )
    positions = partial(Learned, config["max_position_embeddings"], config["hidden_size"])
    return SegmentEncoder(sizes, positions=positions, norm_embedding=True)


def _gpt2(config: _Settings) -> LanguageModel:
    sizes = TransformerConfig(
        config["vocab_size"],
        model_dim=config["n_embd"],
        num_heads=config["n_head"],
        num_layers=config["n_layer"],
        feed_forward_dim=config.get("n_inner") or 4 * config["n_embd"],
        dropout=0.0,
        norm_first=True,
        norm=partial(nn.LayerNorm, eps=config["layer_norm_epsilon"]),
        feed_forward=partial(FeedForward, activation=partial(functional.gelu, approximate="tanh")),
        scale_embedding=False,
    )
    return LanguageModel(sizes, positions=partial(Learned, config["n_positions"], config["n_embd"]))


def _llama(config: _Settings) -> LanguageModel:
    rope = config.get("rope_parameters") or {"rope_theta": config.get("rope_theta", 10_000.0)}  # by their version
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"config.json: expected rotary positions that are not scaled, got {rope}")
    sizes = TransformerConfig(
        config["vocab_size"],
        model_dim=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config.get("num_key_value_heads"),
        num_layers=config["num_hidden_layers"],
        feed_forward_dim=config["intermediate_size"],
        dropout=0.0,
        norm_first=True,
        norm=partial(nn.RMSNorm, eps=config["rms_norm_eps"]),
        feed_forward=SwiGLU,
        bias=False,
        scale_embedding=False,
    )
    return LanguageModel(sizes, positions=partial(Rotary, sizes.model_dim // sizes.num_heads, base=rope["rope_theta"]))


class _Layout(NamedTuple):
    """How to read one family of files: settings that must not say anything else, and names that are not read."""

    table: Table
    make: Callable[[_Settings], Any]
    needed: dict[str, Any]
    prefix: str
    left_out: str


_LAYOUTS = {
    "bert": _Layout(
        _BERT,
        _bert,
        {"hidden_act": "gelu", "position_embedding_type": "absolute", "is_decoder": False, "type_vocab_size": 2},
        "bert.",
        r"(pooler|cls)\..*|embeddings\.position_ids",
    ),
    "gpt2": _Layout(
        _GPT2,
        _gpt2,
        {
            "activation_function": "gelu_new",
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "tie_word_embeddings": True,
        },
        "transformer.",
        r"h\.\d+\.attn\.(masked_)?bias|lm_head\.weight",
    ),
    "llama": _Layout(
        _LLAMA,
        _llama,
        {
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "rope_scaling": None,
            "tie_word_embeddings": True,
        },
        "model.",
        r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq|lm_head\.weight",
    ),
}


def _today(name: str) -> str:
    """A parameter's name; the oldest files have TensorFlow's names for those of a norm."""
    return re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))


def _interleaved(weight: Tensor, head_dim: int) -> Tensor:
    """The rows of queries or keys, from pairs (j, j + D/2) in each head to pairs (2j, 2j + 1)."""
    return weight.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _tokenizer(path: Path) -> Any:
    from tokenizers import Tokenizer

    if not path.is_file():
        raise FileNotFoundError(f"path: expected a safetensors file with tokenizer.json beside it, got no {path}")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
