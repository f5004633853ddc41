"""Mechanisms: queries, keys and values in, weighted values out. The contract is in ``attn_core.__doc__``."""
