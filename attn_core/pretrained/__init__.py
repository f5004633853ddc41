"""Published models on our layers: their parameters, and the tokenizers that go with them. Nothing is downloaded."""

from attn_core.pretrained.checkpoint import Pretrained
from attn_core.pretrained.gguf import load_gguf
from attn_core.pretrained.safetensors import load_safetensors

__all__ = ["Pretrained", "load_gguf", "load_safetensors"]
