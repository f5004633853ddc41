import importlib.util

import pytest

from attn_book.companion import load_d2l


def test_without_d2l_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps d2l==0\.17\.6,.*\.\[bench\]"):
        load_d2l()
