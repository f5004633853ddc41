"""What is a word, and that nothing is lost."""

import random
import unicodedata

import pytest

from attn_book.data import tokenize


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Go.", "go ."),
        ("L'homme n'a pas d'eau, qu'il dit.", "l' homme n' a pas d' eau , qu' il dit ."),
        ("Qu’est-ce que c’est\u202f?", "qu' est-ce que c' est ?"),
        ("«\u00a0Jusqu'à aujourd'hui\u00a0!\u2009»", "« jusqu' à aujourd'hui ! »"),
        ("D'aujourd'hui, donne-m'en 10,5\u202f%...", "d' aujourd'hui , donne-m' en 10,5 % ..."),
        ("l' homme, j‘aime", "l' homme , j' aime"),
        (
            "He's here, I don't know; they'll be at my sister's.",
            "he 's here , i do n't know ; they 'll be at my sister 's .",
        ),
        ("I'd've won't can't O'Clock", "i 'd 've wo n't ca n't o'clock"),
        ("Un e\u0301te\u0301 a\u0300 l'\u00ade\u0301vier", "un été à l' évier"),
        ("'Spot' (a dog) has 2.000.000 T-shirts!", "' spot ' ( a dog ) has 2.000.000 t-shirts !"),
        ("\ufeff \u200b\t", ""),
    ],
)
def test_tokens(text, tokens):
    assert tokenize(text) == tuple(tokens.split())


def test_no_character_is_lost_and_no_space_is_kept():
    generator = random.Random(0)
    pieces = "l' n't 's ' ’ - . ... , ? é e\u0301 Œ 7 10,5 a DON'T qu \u200b \u00ad « » $ _".split(" ")
    pieces += [" ", " ", "\u00a0", "\u202f", "\u2009", "\t"]
    for _ in range(3_000):
        text = "".join(generator.choices(pieces, k=generator.randrange(1, 12)))
        tokens = tokenize(text)
        plain = text.lower().replace("’", "'").replace("\u200b", "").replace("\u00ad", "")
        assert "".join(tokens) == "".join(unicodedata.normalize("NFC", plain).split()), ascii(text)
        assert all(tokens) and not any(character.isspace() for token in tokens for character in token)
