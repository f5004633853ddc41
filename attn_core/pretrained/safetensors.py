"""Models from safetensors files, as they are published on the Hugging Face Hub: BERT, GPT-2 and Llama.

The file holds the parameters alone. The sizes of the model are in the ``config.json`` beside it, and the tokenizer in
``tokenizer.json``. Needs the package tokenizers.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

from attn_core.positions import Interpolation, Learned, YaRN
from attn_core.pretrained.checkpoint import Pretrained, Settings, Table, fill, make, make_llama, reading
from attn_core.transformer import FeedForward, LanguageModel, SegmentEncoder

# What no family's model depends on: notes, training, generation, and code that computes the same in another order.
_NOTES = """
_* *_pdrop *_token_id *attn_implementation *dropout* *dtype *no_repeat_ngram_size *suppress_tokens architectures
bad_words_ids chunk_size_feed_forward diversity_penalty do_sample early_stopping exponential_decay_length_penalty*
finetuning_task gradient_checkpointing id2label* initializer_range label2id* length_penalty max_length min_length
num_beam* num_labels num_return_sequences output_* prefix problem_type remove_invalid_values repetition_penalty
return_dict* task_specific_params* temperature tf_legacy_loss tie_encoder_decoder tie_word_embeddings tokenizer_class
top_k top_p torchscript transformers* typical_p unsloth_* use_bfloat16 use_cache
"""
_TABLES = {
    "bert": Table(
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
        needed={
            "hidden_act": ("gelu",),
            "position_embedding_type": ("absolute",),
            "is_decoder": (False,),
            "type_vocab_size": (2,),
        },
        harmless="directionality pooler_*",
        prefix="bert.",
        left_out=r"(pooler|cls)\..*|embeddings\.position_ids",
    ),
    "gpt2": Table(
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
        needed={
            "activation_function": ("gelu_new",),
            "scale_attn_weights": (True,),
            "scale_attn_by_inverse_layer_idx": (False,),
        },
        harmless="is_decoder n_ctx n_special predict_special_tokens reorder_and_upcast_attn summary_*",
        transposed=("c_attn.weight", "c_proj.weight", "c_fc.weight"),
        logits="lm_head.weight",
        prefix="transformer.",
        left_out=r"h\.\d+\.attn\.(masked_)?bias",
    ),
    "llama": Table(
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
        needed={
            "hidden_act": ("silu",),
            "attention_bias": (False,),
            "mlp_bias": (False,),
            "partial_rotary_factor": (1,),
            "rope_interleaved": (False,),
        },
        harmless="""
is_decoder is_llama_config max_position_embeddings max_sequence_length pretraining_tp
rope_*.original_max_position_embeddings
""",
        logits="lm_head.weight",
        prefix="model.",
        left_out=r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    ),
}
_SIZES = {
    "vocab_size": "vocab_size",
    "model_dim": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_layers": "num_hidden_layers",
    "feed_forward_dim": "intermediate_size",
}
_FORMATS = ("F64", "F32", "F16", "BF16")


def load_safetensors(path: Path | str, layout: str) -> Pretrained[Any]:
    """The model of a safetensors file with one of three layouts of names, its tokenizer, and what ends a text.

    - ``"bert"``: a ``SegmentEncoder``, post-norm, with exact GELU, learned positions and a norm of the embeddings. The
      heads that BERT was trained with, and its pooler, are left out.
    - ``"gpt2"``: a ``LanguageModel``, pre-norm, with GELU by tanh and learned positions.
    - ``"llama"``: a ``LanguageModel`` as ``load_gguf`` makes it. These files rotate entry j of a head with entry
      j + D/2, ``Rotary`` entries 2j and 2j+1, so the rows of queries and keys are put in that order.

    The model is in float32 on the CPU, in evaluation mode. The matrix of the logits is the embedding's own. Sizes come
    from ``config.json`` in the same folder. The tokenizer is a ``tokenizers.Tokenizer``, from ``tokenizer.json`` there;
    it neither pads nor truncates. A language model's ``end_ids`` are those of ``generation_config.json``, if that is
    there, and of ``config.json``.

    Raises:
        ImportError: if tokenizers is not installed.
        FileNotFoundError: if the file, ``config.json`` or ``tokenizer.json`` is not there.
        ValueError: if ``layout`` is none of these; if a file is damaged, or one of several shards; if a setting is
            missing, unknown here, or asks for what the model has not; if a parameter is missing, unknown, of another
            shape, or not stored as floating numbers of 16, 32 or 64 bits.
    """
    from tokenizers import Tokenizer

    if layout not in _TABLES:
        raise ValueError(f"layout: expected one of {', '.join(_TABLES)}, got {layout!r}")
    table = _TABLES[layout]
    path = Path(path)
    index = path.with_name(f"{path.name}.index.json")
    if re.search(r"-of-(?!0*1\.)\d+\.|\.index\.json$", path.name) or (index.is_file() and not path.is_file()):
        raise ValueError(f"{path}: expected one file with all parameters, got a shard, or the index of shards")
    settings, splitter = path.with_name("config.json"), path.with_name("tokenizer.json")
    for file in (path, settings, splitter):
        if not file.is_file():
            beside = f"{settings.name} and {splitter.name} beside it"
            raise FileNotFoundError(f"path: expected a safetensors file with {beside}, got no {file}")
    config = Settings.from_json(settings)
    config.expect("model_type", layout)
    for name, accepted in {"is_encoder_decoder": (False,), "add_cross_attention": (False,), **table.needed}.items():
        config.expect(name, *accepted)
    model: Any = {"bert": _bert, "gpt2": _gpt2, "llama": _llama}[layout](config)
    end_ids: tuple[int, ...] = ()
    if isinstance(model, LanguageModel):
        generation = path.with_name("generation_config.json")
        for source in ([Settings.from_json(generation)] if generation.is_file() else []) + [config]:
            end_ids += source.token_ids("eos_token_id", vocab_size=model.config.vocab_size)
    config.refuse_others((_NOTES + table.harmless).split())
    with reading(path, "a safetensors file"):
        opened = safe_open(path, "pt")
    with opened as stored:
        names = {}
        for name in stored.keys():  # noqa: SIM118 (no dictionary)
            today = re.sub(r"gamma$", "weight", re.sub(r"beta$", "bias", name))  # the oldest files name norms otherwise
            names[today.removeprefix(table.prefix)] = name
        if table.logits and table.logits not in names:
            config.expect("tie_word_embeddings", True)

        def read(name: str) -> Tensor:
            kind = stored.get_slice(names[name]).get_dtype()
            if kind not in _FORMATS:  # integers, for example, would need scales
                raise ValueError(f"{path}: expected {names[name]} as {', '.join(_FORMATS)}, got {kind}")
            return stored.get_tensor(names[name]).float()

        fill(model, table, {name for name in names if not re.fullmatch(table.left_out, name)}, read, path)
    if layout == "llama":
        for layer in model.stack.layers:
            for projection in (layer.attention.query, layer.attention.key):
                # From pairs of rows (j, j + D/2) in each head to pairs (2j, 2j + 1).
                pairs = projection.weight.detach().unflatten(0, (-1, 2, layer.attention.head_dim // 2))
                projection.weight = nn.Parameter(pairs.transpose(1, 2).flatten(0, 2))
    with reading(splitter, "a tokenizer"):
        tokenizer = Tokenizer.from_file(str(splitter))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return Pretrained(model.eval(), tokenizer, tuple(dict.fromkeys(end_ids)))


def _bert(config: Settings) -> SegmentEncoder:
    sizes = config.sizes(_SIZES)
    return make(
        config.path,
        partial(SegmentEncoder, norm_embedding=True),
        partial(Learned, config.get("max_position_embeddings", int), sizes["model_dim"]),
        norm=partial(nn.LayerNorm, eps=config.get("layer_norm_eps", float)),
        feed_forward=partial(FeedForward, activation=functional.gelu),
        **sizes,
    )


def _gpt2(config: Settings) -> LanguageModel:
    names = {"vocab_size": "vocab_size", "model_dim": "n_embd", "num_heads": "n_head", "num_layers": "n_layer"}
    sizes = config.sizes(names)
    return make(
        config.path,
        LanguageModel,
        partial(Learned, config.get("n_positions", int), sizes["model_dim"]),
        feed_forward_dim=config.get("n_inner", int, 4 * sizes["model_dim"]),
        norm_first=True,
        norm=partial(nn.LayerNorm, eps=config.get("layer_norm_epsilon", float)),
        feed_forward=partial(FeedForward, activation=partial(functional.gelu, approximate="tanh")),
        **sizes,
    )


def _llama(config: Settings) -> LanguageModel:
    config.expect("layer_types", ["full_attention"] * config.get("num_hidden_layers", int))
    names = {"kv": "num_key_value_heads", "head": "head_dim", "eps": "rms_norm_eps"}
    return make_llama(config, config.sizes(_SIZES), rotary=_rotary(config), **names)


def _rotary(config: Settings) -> dict[str, Any]:
    """The base and the scaling, which older and newer files call by other names; of both, the older name counts."""
    old = any(name.startswith("rope_scaling.") for name in config.values)
    rope = "rope_scaling" if old else "rope_parameters"
    kind = config.get(f"{rope}.rope_type", str, config.get(f"{rope}.type", str, "default"))
    config.expect(f"{rope}.type", kind)
    config.expect(f"{rope}.partial_rotary_factor", 1)
    base = config.get(f"{rope}.rope_theta", float, config.get("rope_theta", float, 10_000.0))
    if kind == "default":
        return {"base": base}
    if kind not in ("linear", "llama3"):
        raise ValueError(f"{config.path}: {rope}.rope_type: expected default, linear or llama3, got {kind}")
    factor = config.get(f"{rope}.factor", float)
    if kind == "linear":
        return {"base": base, "scaling": Interpolation(factor)}
    slow, fast = (config.get(f"{rope}.{name}_freq_factor", float) for name in ("low", "high"))
    trained = config.get(f"{rope}.original_max_position_embeddings", int)
    return {"base": base, "scaling": YaRN(factor, trained, slow=slow, fast=fast, magnitude=1.0)}
