"""How long `import attn_core` takes beyond torch: `make bench-quick` fails where that is longer than LIMIT."""

import subprocess
import sys

LIMIT = 0.3
"""Seconds: ten times what a quiet machine takes."""
CODE = "import torch, time; start = time.perf_counter(); import attn_core; print(time.perf_counter() - start)"


def seconds() -> float:
    """The least of three processes, because a busy machine can only add."""
    runs = [subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True) for _ in range(3)]
    return min(float(run.stdout) for run in runs)


def main() -> int:
    """Print the time; 1 if it is above the limit."""
    found = seconds()
    print(f"import attn_core, beyond torch: {found:.3f} s (at most {LIMIT} s)")
    return int(found > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
