"""Agreement in number in SmolLM2, head by head: by looking, by the logit lens, by cutting and by patching.

Each of 22 pairs of texts differs in one word, the number of the subject ("The key to the cabinet", "The keys to the
cabinet"); the logit of "are" minus that of "is" is the model's answer. All effects are shares of the difference
between the two answers of a pair.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attn_book.corpus.english import SUBJECTS
from attn_book.microscope import all_maps
from attn_book.published import smollm2_file
from attn_core.pretrained import load_gguf
from recorded.bahdanau import rounded

SEEDS = (0,)  # nothing is drawn


def answers(model: Any, x: Tensor, verbs: list[int]) -> Tensor:
    """The logit of "are" minus that of "is" after each text, from the stream after the last layer."""
    logits = model.embedding.logits(model.stack.norm(x[:, -1]))
    return logits[:, verbs[1]] - logits[:, verbs[0]]


def streams(model: Any, tokens: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The stream before each layer and after the last, and the heads' outputs ``(B, T, H, D)`` in each."""
    x, found, outputs = model.embedding(tokens), [], []
    for layer in model.stack.layers:
        found.append(x)
        heads = layer.attention.num_heads
        hook = layer.attention.out.register_forward_pre_hook(
            lambda _, inputs, heads=heads: outputs.append(inputs[0].unflatten(-1, (heads, -1)))
        )
        x = layer(x, causal=True)
        hook.remove()
    return [*found, x], outputs


def after(model: Any, x: Tensor, number: int, outputs: Tensor | None = None) -> Tensor:
    """The stream after the last layer, from the one before layer ``number``, whose heads' outputs may be replaced."""
    layers = model.stack.layers
    hooks = []
    if outputs is not None:
        hooks = [layers[number].attention.out.register_forward_pre_hook(lambda *_: (outputs.flatten(-2),))]
    for layer in layers[number:]:
        x = layer(x, causal=True)
    for hook in hooks:
        hook.remove()
    return x


def heads(model: Any, one: Tensor, many: Tensor, verbs: list[int]) -> dict[str, Any]:
    """Every head: its effect when it is patched from one text into the other, cut, or read by the lens."""
    (x_one, z_one), (x_many, z_many) = streams(model, one), streams(model, many)
    low, high = (answers(model, x[-1], verbs).mean() for x in (x_one, x_many))
    found: dict[str, Any] = {"answers": [low.item(), high.item()]}
    unembedding = model.embedding.tokens.weight
    axis = model.stack.norm.weight * (unembedding[verbs[1]] - unembedding[verbs[0]])
    last = [x[-1][:, -1] for x in (x_one, x_many)]
    scales = [x.square().mean(-1, keepdim=True).sqrt() for x in last]
    table: dict[str, list[list[float]]] = {name: [] for name in ("denoised", "noised", "cut", "lens")}
    for number, layer in enumerate(model.stack.layers):
        rows: dict[str, list[float]] = {name: [] for name in table}
        for head in range(layer.attention.num_heads):
            chosen = torch.zeros(layer.attention.num_heads, 1)
            chosen[head] = 1.0
            a, b = z_one[number], z_many[number]
            mixed = torch.cat([torch.where(chosen > 0, b, a), torch.where(chosen > 0, a, b)])
            mixed = torch.cat([mixed, a * (1 - chosen), b * (1 - chosen)])
            x = torch.cat([x_one[number], x_many[number]] * 2)
            patched, noised, cut_one, cut_many = answers(model, after(model, x, number, mixed), verbs).chunk(4)
            rows["denoised"].append(((patched.mean() - low) / (high - low)).item())
            rows["noised"].append(((high - noised.mean()) / (high - low)).item())
            rows["cut"].append((1 - (cut_many - cut_one).mean() / (high - low)).item())
            written = [layer.attention.out((z * chosen).flatten(-2)[:, -1]) for z in (a, b)]
            direct = [(w / scale @ axis).mean() for w, scale in zip(written, scales, strict=True)]
            rows["lens"].append(((direct[1] - direct[0]) / (high - low)).item())
        for name, row in rows.items():
            table[name].append(row)
        print(number, rounded(rows), flush=True)
    found |= table
    maps = torch.stack([all_maps(model, tokens) for tokens in (one, many)])
    found["looks"] = maps[..., -1, 1].mean((0, 2)).tolist()
    return found


def through_layers(model: Any, one: Tensor, many: Tensor, verbs: list[int]) -> dict[str, Any]:
    """The stream: the share restored when it is patched at one token before a layer, and what the lens reads there."""
    x_one, x_many = streams(model, one)[0], streams(model, many)[0]
    low, high = (answers(model, x[-1], verbs).mean() for x in (x_one, x_many))
    restored = []
    for number in range(len(model.stack.layers)):
        row = []
        for place in range(one.shape[1]):
            x = x_one[number].clone()
            x[:, place] = x_many[number][:, place]
            row.append(((answers(model, after(model, x, number), verbs).mean() - low) / (high - low)).item())
        restored.append(row)
    lens = [
        ((answers(model, b, verbs) - answers(model, a, verbs)).mean() / (high - low)).item()
        for a, b in zip(x_one, x_many, strict=True)
    ]
    return {"restored": restored, "lens": lens}


@torch.no_grad()
def run(folder: Path) -> dict[str, Any]:
    """All of it, over 22 pairs whose attractors are singular and plural in turn."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    model, tokenizer = load_gguf(smollm2_file())
    verbs = [tokenizer.encode(f" {verb}").ids[0] for verb in ("is", "are")]
    one, many = (
        torch.tensor([tokenizer.encode(s.start(number, i % 2)).ids for i, s in enumerate(SUBJECTS)])
        for number in (0, 1)
    )
    found = {"pairs": len(SUBJECTS), "stream": through_layers(model, one, many, verbs)}
    print(rounded(found), flush=True)
    return rounded(found | {"heads": heads(model, one, many, verbs)})
