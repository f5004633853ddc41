"""Serving a language model to many requests at once: continuous batching over the paged cache."""

from attn_core.serving.engine import Engine
from attn_core.serving.prefix import PrefixTables
from attn_core.serving.request import Completion, Request
from attn_core.serving.scheduler import Scheduler
from attn_core.serving.speculative import PromptLookup

__all__ = ["Completion", "Engine", "PrefixTables", "PromptLookup", "Request", "Scheduler"]
