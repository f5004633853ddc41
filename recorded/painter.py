"""A painter learns from captions of one or two shapes, and its pictures, its maps and its edits are judged.

The weights, eight bits each, go to `results/painter/model.json`, which the page runs; all scores are theirs.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attn_book.corpus.arrangements import Arrangements, draw_arrangements, judged
from attn_book.corpus.drawings import HELD_PAIRS, TRAINED_PAIRS
from attn_book.data import Vocab
from attn_book.painter import Painter, encode_captions, flow_loss, paint, to_images, to_patches
from attn_book.widgets.exported import export_painter, load_painter
from attn_core.capture import capture_attention

SEEDS = (0,)
TRAINED, STEPS, BATCH_SIZE, LEARNING_RATE, WARMUP = 40_000, 9_000, 64, 2e-3, 200
JUDGED, GUIDANCE, TIMES = 128, (1, 2, 4, 6), (0.1, 0.3, 0.5, 0.7, 0.9)


def train(data: Arrangements, vocab: Vocab, seed: int) -> tuple[Painter, list[float]]:
    """A running mean of the weights of the training, and the mean loss of every hundred steps."""
    torch.manual_seed(seed)
    model = Painter(len(vocab))
    ids, lengths = encode_captions(data.captions, {word: i for i, word in enumerate(vocab.tokens)})
    pictures = to_patches(data.images, model.patch_size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.99), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.SequentialLR(
        optimiser,
        [
            torch.optim.lr_scheduler.LinearLR(optimiser, 1 / WARMUP, 1, WARMUP),
            torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS - WARMUP, LEARNING_RATE / 50),
        ],
        [WARMUP],
    )
    mean = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998))
    losses, total = [], 0.0
    for step in range(1, STEPS + 1):
        rows = torch.randint(len(data), (BATCH_SIZE,))
        loss = flow_loss(model, pictures[rows], ids[rows], lengths[rows])
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        mean.update_parameters(model)
        total += loss.item()
        if step % 100 == 0:
            losses.append(round(total / 100, 4))
            total = 0.0
            print(step, losses[-1], flush=True)
    best = mean.module
    assert isinstance(best, Painter)
    return best, losses


def painted(model: Painter, ids_of: dict[str, int], data: Arrangements, guidance: float) -> Tensor:
    """A picture for each caption."""
    captions, lengths = encode_captions(data.captions, ids_of)
    noise = torch.randn(to_patches(data.images, model.patch_size).shape, generator=torch.Generator().manual_seed(1))
    return to_images(paint(model, captions, lengths, noise=noise, guidance=guidance), model.patch_size)


@torch.no_grad()
def found_by_words(model: Painter, ids_of: dict[str, int], data: Arrangements, time: float) -> list[float]:
    """In each block, how often the patch that gives a colour or a shape the most weight lies on its object."""
    captions, lengths = encode_captions(data.captions, ids_of)
    pictures = to_patches(data.images, model.patch_size)
    noise = torch.randn(pictures.shape, generator=torch.Generator().manual_seed(2))
    covered = functional.avg_pool2d(data.masks.float(), model.patch_size).flatten(2) >= 0.25
    with capture_attention(model) as maps:
        model((1 - time) * noise + time * pictures, torch.full((len(data),), time), captions, lengths)
    shares = []
    for k in range(len(model.blocks)):
        weights = maps[f"blocks.{k}.cross_attention"][0].mean(1)  # (B, N, T), the mean of the heads
        hits = [
            bool(covered[i, thing, weights[i, :, 1 + place].argmax()])
            for i in range(len(data))
            for place, thing in data.named(i)
        ]
        shares.append(round(sum(hits) / len(hits), 4))
    return shares


def run(folder: Path) -> dict[str, Any]:
    """Train, export, and judge what was exported."""
    torch.set_num_threads(1)  # so that a run is the same on any number of cores
    data = draw_arrangements(TRAINED, seed=1)
    vocab = Vocab(data.captions)
    model, losses = train(data, vocab, SEEDS[0])
    exported = export_painter(model, vocab)
    own = folder / "painter"
    own.mkdir(exist_ok=True)
    text = json.dumps(exported, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    (own / "model.json").write_text(text + "\n", encoding="utf-8")
    smaller, ids_of = load_painter(exported)
    tests = {
        "trained pairs": draw_arrangements(JUDGED, pairs=TRAINED_PAIRS, seed=2),
        "held-out pairs": draw_arrangements(JUDGED, pairs=HELD_PAIRS, seed=3),
    }
    scores: dict[str, Any] = {}
    for name, test in tests.items():
        for guidance in GUIDANCE:
            found = judged(painted(smaller, ids_of, test, guidance), test)
            scores.setdefault(name, {})[guidance] = {key: round(share, 4) for key, share in found.items()}
            print(name, guidance, found, flush=True)
    exact = judged(painted(model.eval(), ids_of, tests["trained pairs"], 2), tests["trained pairs"])
    area = functional.avg_pool2d(tests["trained pairs"].masks.float(), 4).flatten(2) >= 0.25
    held = area.any(2)
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "training": {"pictures": TRAINED, "steps": STEPS, "batch_size": BATCH_SIZE, "losses": losses},
        "judged": JUDGED,
        "scores": scores,
        "scores_before_export": {key: round(share, 4) for key, share in exact.items()},
        "looks": {time: found_by_words(smaller, ids_of, tests["trained pairs"], time) for time in TIMES},
        "looks_by_chance": round(area.float().mean(2)[held].mean().item(), 4),
    }
