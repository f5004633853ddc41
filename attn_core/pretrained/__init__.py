"""Published models on our layers: their parameters, and the tokenizers that go with them. Nothing is downloaded."""

from attn_core.pretrained.gguf import load_gguf
from attn_core.pretrained.safetensors import load_safetensors
from attn_core.pretrained.tables import Pretrained

__all__ = ["Pretrained", "load_gguf", "load_safetensors"]
