"""A published tokenizer in the place of a vocabulary, so that published encoders read the batches of ``attn_core``."""

import copy
from collections.abc import Iterable
from typing import Any, ClassVar

from attn_book.data.vocab import PretrainingVocab


class WordPieces(PretrainingVocab):
    """A BERT tokenizer as a ``PretrainingVocab``: ``encode`` gives a text's word pieces, as many as it takes.

    For ``LabelledBatches`` and ``pack``. The special tokens have BERT's numbers; [PAD] is 0 in both.

    Raises:
        ValueError: if the tokenizer does not have BERT's special tokens.
    """

    CLS: ClassVar[int] = 101
    SEP: ClassVar[int] = 102
    MASK: ClassVar[int] = 103

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = copy.deepcopy(tokenizer)
        self.tokenizer.encode_special_tokens = True  # "[SEP]" in a text is a text
        found = [tokenizer.token_to_id(token) for token in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")]
        if found != [self.PAD, self.CLS, self.SEP, self.MASK]:
            raise ValueError(f"tokenizer: expected BERT's special tokens, got the numbers {found}")
        self.tokens = tuple(tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size()))

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """The numbers of the pieces of these words, nothing added."""
        ids: list[int] = self.tokenizer.encode(" ".join(tokens), add_special_tokens=False).ids
        return ids
