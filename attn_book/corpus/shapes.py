"""Eight shapes and the pixels that they cover."""

import math

import torch
from torch import Tensor
from torch.nn import functional

SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring", "star", "bar")

SCALES = (0.84, 0.92, 1.0)
"""The sizes of each shape, as shares of its tile."""


def tiles(side: int) -> Tensor:
    """How much of each pixel each shape covers at each scale: ``(8, 3, side, side)``, from 0 to 1."""
    fine = 8  # points to a pixel's side
    line = (torch.arange(side * fine) + 0.5) * 2 / (side * fine) - 1
    found = []
    for scale in SCALES:
        x, y = line[None] / scale, line[:, None] / scale  # y downwards
        inside = torch.stack([_inside(shape, x, y) for shape in SHAPES])
        found.append(functional.avg_pool2d(inside.float(), fine))
    return torch.stack(found, 1)


def _inside(shape: str, x: Tensor, y: Tensor) -> Tensor:
    """Whether points lie in a shape that fills the square from −1 to 1."""
    radius, wide, high = (x**2 + y**2).sqrt(), x.abs() + 0 * y, y.abs() + 0 * x
    if shape == "circle":
        return radius <= 0.9
    if shape == "ring":
        return (radius <= 0.98) & (radius >= 0.55)
    if shape == "square":
        return torch.maximum(wide, high) <= 0.8
    if shape == "diamond":
        return wide + high <= 1.0
    if shape == "triangle":
        return (y <= 0.8) & (wide <= (y + 0.95) * 0.55)
    if shape == "cross":
        return (torch.minimum(wide, high) <= 0.26) & (torch.maximum(wide, high) <= 0.95)
    if shape == "bar":
        return (wide <= 0.98) & (high <= 0.3)
    # A star: folded onto half of one of its five points, it is all that lies on the centre's side of one edge.
    fold = 2 * math.pi / 5
    angle = torch.atan2(x + 0 * y, -y + 0 * x).remainder(fold)
    angle = torch.minimum(angle, fold - angle)
    across, along = radius * angle.sin(), radius * angle.cos()
    inner = 0.42 * torch.tensor([math.sin(fold / 2), math.cos(fold / 2)])
    return (1.05 - along) * inner[0] >= (1.05 - inner[1]) * across
