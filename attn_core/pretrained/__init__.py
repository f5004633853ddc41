"""Published models on our layers: their parameters, and the tokenizers that go with them.

Nothing is downloaded. The files come from a path, or from a package that was installed (`requirements/models.txt`).
"""

from attn_core.pretrained.files import minilm_files, smollm2_file
from attn_core.pretrained.gguf import load_gguf
from attn_core.pretrained.safetensors import load_safetensors
from attn_core.pretrained.tables import Pretrained

__all__ = ["Pretrained", "load_gguf", "load_safetensors", "minilm_files", "smollm2_file"]
