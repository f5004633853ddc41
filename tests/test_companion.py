import importlib.util
import subprocess
import sys

import pytest

from attn_book.companion import load_d2l


def test_d2l_has_the_parts_that_we_compare_with(d2l):
    assert load_d2l() is d2l
    assert {"AdditiveAttention", "Seq2SeqEncoder", "masked_softmax"} <= set(dir(d2l))


def test_without_d2l_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install --no-deps d2l==0\.17\.6,.*\.\[bench\]"):
        load_d2l()


def test_a_torchvision_that_is_there_is_not_replaced(tmp_path):
    pytest.importorskip("d2l", reason="d2l is not installed: pip install --no-deps -r requirements/d2l.txt")
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from torchvision import transforms\nREAL = True\n")
    (package / "transforms.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from attn_book.companion import load_d2l; load_d2l()\n"
        "import torchvision; assert torchvision.REAL"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
