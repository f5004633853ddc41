"""What only this book needs: its corpus, the checks of its exercises, its widgets and plots.

It is built on ``attn_core``, which knows nothing of it.
"""
