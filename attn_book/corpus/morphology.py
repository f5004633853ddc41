"""Spelling rules of the two languages: plurals, feminines, verb endings, elision."""

from __future__ import annotations

VOWELS = frozenset("aàâeéèêëiîïoôœuùûh")
ASPIRATE = frozenset(["héros", "hibou", "hiboux", "huit", "haut", "haute", "hauts", "hautes", "onze"])
"""French words that seem to begin with a vowel, but before which nothing is elided."""
ENGLISH_AN = frozenset(["honest"])  # the h is silent
ENGLISH_A = frozenset(["useful"])  # the u is a consonant

PERSONS = ((1, False), (3, False), (1, True), (2, True), (3, True))
"""(person, plural) of the five forms that a verb has in this grammar: je, il/elle, nous, vous, ils/elles."""


def elides(word: str) -> bool:
    """Whether le, la, ne, que, je, de … lose their vowel before this French word."""
    return word[0] in VOWELS and word not in ASPIRATE


def takes_an(word: str) -> bool:
    """Whether the English article before this word is "an"."""
    return word in ENGLISH_AN or (word[0] in "aeiou" and word not in ENGLISH_A)


def english_s(word: str) -> str:
    """The -s form: the plural of a noun, the third person singular of a verb."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def english_ed(word: str) -> str:
    """The regular past tense."""
    if word.endswith("e"):
        return word + "d"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + "ed"


def french_plural(word: str) -> str:
    """The regular plural of a noun or a masculine adjective."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("eau"):
        return word + "x"
    if word.endswith("al"):
        return word[:-1] + "ux"
    return word + "s"


def french_feminine(word: str) -> str:
    """The regular feminine of an adjective or a participle."""
    if word.endswith("e"):
        return word
    if word.endswith("eux"):
        return word[:-1] + "se"
    if word.endswith("er"):
        return word[:-2] + "ère"
    if word.endswith("ien"):
        return word + "ne"
    return word + "e"


def agree(masculine: str, feminine: str, gender: str, plural: bool) -> str:
    """The form, out of four, that agrees with a gender ("m" or "f") and a number."""
    word = feminine if gender == "f" else masculine
    return french_plural(word) if plural else word


def conjugate(infinitive: str) -> tuple[str, tuple[str, ...]]:
    """The participle and the five present forms of a regular verb.

    A verb whose stem changes before a mute ending names that stem: "acheter:achèt".
    """
    infinitive, _, strong = infinitive.partition(":")
    stem = infinitive[:-2]
    if infinitive.endswith("er"):
        strong = strong or stem
        soft = stem + "e" if stem.endswith("g") else stem[:-1] + "ç" if stem.endswith("c") else stem
        return stem + "é", (strong + "e", strong + "e", soft + "ons", stem + "ez", strong + "ent")
    if infinitive.endswith("ir"):
        return stem + "i", tuple(stem + e for e in ("is", "it", "issons", "issez", "issent"))
    assert infinitive.endswith("re"), infinitive
    return stem + "u", tuple(stem + e for e in ("s", "", "ons", "ez", "ent"))
