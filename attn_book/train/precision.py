"""Mixed precision: the dtype of products, and for float16 the scaling of the loss."""

from contextlib import AbstractContextManager

import torch


class Precision:
    """The dtype in which autocast computes products: by default bfloat16 on CUDA, and float32 elsewhere.

    Small gradients would underflow in float16, so its ``scaler`` multiplies the loss by a large factor and divides the
    gradients by it. If they overflow, the step is left out and the factor becomes smaller.

    Raises:
        ValueError: if ``dtype`` is none of the three.

    Source: Micikevicius et al. 2018, section 3.2.
    """

    def __init__(self, dtype: torch.dtype | None, device: torch.device) -> None:
        if dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
            raise ValueError(f"precision: expected torch.float32, torch.bfloat16 or torch.float16, got {dtype!r}")
        self.device, self.dtype = device, dtype or (torch.bfloat16 if device.type == "cuda" else torch.float32)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def autocast(self) -> AbstractContextManager[None]:
        """A context in which products have this dtype."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)
