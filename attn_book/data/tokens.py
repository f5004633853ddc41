"""Text to words, the same way for English and French."""

from __future__ import annotations

import re
import unicodedata

from attn_core.contract import shown

INVISIBLE = "\u00ad\u200b\ufeff"
"""Soft hyphen, zero-width space, byte order mark: characters that stand for nothing."""
REWRITTEN = (("’", "'"), ("‘", "'"), *((character, "") for character in INVISIBLE), ("n't", " n't"))
TOKEN = re.compile(
    r"""n't\b | '(?:s|m|d|re|ve|ll)\b                    # do n't, he 's
    | \d+(?:[.,:]\d+)+                                   # 10,000
    | \w+(?:-\w+)*(?:                                    # est-ce, and then
        (?:(?<=\b[cdjlmnst])|(?<=qu))'(?=\s*\w)          # l' homme, qu' il, donne-m' en
        | (?:'(?!(?:s|m|d|re|ve|ll)\b)\w+(?:-\w+)*)*     # aujourd'hui, o'clock
      )
    | \.{2,} | [^\w\s]                                   # ... and any other sign by itself""",
    re.VERBOSE,
)


def tokenize(text: str) -> tuple[str, ...]:
    """Words and punctuation marks of an English or French text, in lower case, split as the book's corpus is.

    A French elision ends its word: l' homme, qu' est-ce. An English contraction is a word, as in the Penn Treebank:
    he 's, do n't, ca n't. Hyphens and other apostrophes stay inside their words (peut-être, aujourd'hui, o'clock),
    points, commas and colons inside their numbers. Spaces of any kind separate; typographic apostrophes become
    straight; soft hyphens and zero-width spaces go; letters are composed (Unicode NFC). Nothing else is lost.
    Sentences that are split already, with spaces between, stay as they are.

    Raises:
        ValueError: if ``text`` is not a string.
    """
    if not isinstance(text, str):
        raise ValueError(f"text: expected a string, got {shown(text)}")
    text = text.lower()
    for old, new in REWRITTEN:  # ten times as fast as str.translate
        text = text.replace(old, new)
    return tuple(TOKEN.findall(unicodedata.normalize("NFC", text)))
