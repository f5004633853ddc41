"""A Transformer on real sentences, trained by the command line in two processes, for chapter 5.

What `torchrun … -m attn_core.train` reports of itself. The same command with more processes, pairs and sizes is how
one trains on GPUs.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SEEDS = (0,)
PROCESSES = 2
SETTINGS = {
    "corpus": "tatoeba",
    "pairs": 20_000,
    "model-dim": 128,
    "num-layers": 2,
    "num-heads": 4,
    "feed-forward-dim": 256,
    "dropout": 0.2,
    "epochs": 10,
    "batch-size": 64,
    "learning-rate": 2e-3,
    "label-smoothing": 0.1,
    "beam-size": 4,
}
KEPT = ("arguments", "device", "processes", "threads", "parameters", "seconds", "target_tokens_per_second", "test")


def options() -> list[str]:
    """The settings as the command line takes them."""
    return ["--norm-first", *(part for name, value in SETTINGS.items() for part in (f"--{name}", str(value)))]


def run(folder: Path) -> dict[str, Any]:
    """One training, in processes of its own."""
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    with tempfile.TemporaryDirectory() as out:
        command = [*start, "-m", "attn_core.train", out, *options()]
        subprocess.run([sys.executable, *command], check=True, cwd=Path(__file__).parents[1])
        result = json.loads((Path(out) / "result.json").read_text(encoding="utf-8"))
    losses = result["losses"]
    shown = " ".join(["torchrun --standalone --nproc-per-node", str(PROCESSES), "-m attn_core.train OUT", *options()])
    return {"shell": shown, "losses": losses[:: max(1, len(losses) // 50)], **{name: result[name] for name in KEPT}}
