"""A vision Transformer as a whole: ours and Hugging Face's `ViTModel`, with the same weights, on the same images.

Sizes as published for the tiny and the small model with patches of 16 pixels; with ReLU in the feed-forward networks on
both sides, which is what our layers have. Theirs runs the attention it chooses by itself.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attn_core.transformer import TransformerConfig
from attn_core.vision import VisionTransformer
from benchmarks.measure import Trial, Work, forward, forward_and_backward

SIZES = {"tiny": (192, 3, 12), "small": (384, 6, 12)}
"""The vectors' size, heads, layers: Touvron et al. 2021, table 1."""
BATCH, SIDE, PATCH = 4, 224, 16


def ours(dim: int, heads: int, layers: int, side: int) -> VisionTransformer:
    """Our model, whose weights both have."""
    config = TransformerConfig(
        1,
        model_dim=dim,
        num_heads=heads,
        num_layers=layers,
        feed_forward_dim=4 * dim,
        dropout=0.0,
        norm_first=True,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return VisionTransformer(config, image_size=side, patch_size=PATCH)


def of_hugging_face(dim: int, heads: int, layers: int, side: int) -> nn.Module:
    """Theirs, with the weights of ours.

    Raises ImportError where transformers is not installed.
    """
    from transformers import ViTConfig, ViTModel

    source = ours(dim, heads, layers, side)
    config = ViTConfig(
        hidden_size=dim,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * dim,
        hidden_act="relu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-5,
        image_size=side,
        patch_size=PATCH,
    )
    model = ViTModel(config, add_pooling_layer=False)
    weights = {}
    for name, weight in source.state_dict().items():
        weights[their_name(name)] = weight
    weights["embeddings.cls_token"] = weights["embeddings.cls_token"].view(1, 1, dim)
    weights["embeddings.position_embeddings"] = weights["embeddings.position_embeddings"][None]
    filters = weights["embeddings.patch_embeddings.projection.weight"]
    weights["embeddings.patch_embeddings.projection.weight"] = filters.unflatten(1, (3, PATCH, PATCH))
    model.load_state_dict(weights)
    return model


def their_name(name: str) -> str:
    """What they call one of our weights."""
    for own, their in (
        ("stack.", ""),
        ("class_token", "embeddings.cls_token"),
        ("patches.", "embeddings.patch_embeddings."),
        ("positions.weight", "embeddings.position_embeddings"),
        ("attention.query", "attention.q_proj"),
        ("attention.key", "attention.k_proj"),
        ("attention.value", "attention.v_proj"),
        ("attention.out", "attention.o_proj"),
        ("feed_forward.hidden", "mlp.fc1"),
        ("feed_forward.out", "mlp.fc2"),
        ("add_attention.norm", "layernorm_before"),
        ("add_feed_forward.norm", "layernorm_after"),
    ):
        name = name.replace(own, their)
    return "layernorm" + name.removeprefix("norm") if name.startswith("norm.") else name


def prepare(make: Callable[..., nn.Module], *sizes: int, batch: int, backward: bool, device: torch.device) -> Work:
    """The images, the same for both, and the work on them: the class token's vectors, and the images' gradient."""
    side = sizes[-1]
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(batch, 3, side, side, generator=draw).to(device)
    toward = torch.randn(batch, sizes[0], generator=draw).to(device) / sizes[0] ** 0.5
    model = make(*sizes).to(device).train(backward)

    def vectors(x: Tensor) -> Tensor:
        found = model(x)
        return found if isinstance(found, Tensor) else found.last_hidden_state[:, 0]

    return forward_and_backward(vectors, images, toward) if backward else forward(vectors, images)


def trials(*, quick: bool, device: torch.device) -> list[Trial]:
    """Two sizes, forward and both ways."""
    found = []
    for name, (dim, heads, layers) in SIZES.items():
        sizes = (12, heads, 2, 32) if quick else (dim, heads, layers, SIDE)
        for backward in (False, True):
            setting = functools.partial(prepare, batch=2 if quick else BATCH, backward=backward, device=device)
            found.append(
                Trial(
                    f"{name}, {'forward and backward' if backward else 'forward'}",
                    {"B": 2 if quick else BATCH, "image": sizes[3], "C": sizes[0], "H": heads, "layers": sizes[2]},
                    torch.float32,
                    ours={"VisionTransformer": functools.partial(setting, ours, *sizes)},
                    peers={"transformers ViTModel": functools.partial(setting, of_hugging_face, *sizes)},
                    rounds=11,
                )
            )
    return found
