"""Published models on our layers: their parameters, and the tokenizers that go with them.

Nothing is downloaded. The files come from a path, or from a package that was installed (`requirements-models.txt`).
"""

from attn_core.pretrained.files import smollm2_file
from attn_core.pretrained.gguf import Pretrained, load_gguf

__all__ = ["Pretrained", "load_gguf", "smollm2_file"]
