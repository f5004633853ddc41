"""Words that know their translation, and the small phrases: pronouns, determiners, adjectives, contractions.

A French word carries the English words that it comes from, as objects, so wherever the two end up in their
sentences the link between them is known: no alignment is ever guessed.
"""

from __future__ import annotations

from typing import NamedTuple

from attn_book.corpus.lexicon import BEFORE_VOWEL, DETERMINERS
from attn_book.corpus.morphology import elides
from attn_book.corpus.tree import PRONOUNS, NounPhrase, Pronoun


class En:
    """One English word; being this very object is its identity."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Fr:
    """One French word and the English words it comes from."""

    __slots__ = ("sources", "text")

    def __init__(self, text: str, *sources: En) -> None:
        self.text = text
        self.sources = sources


class Both(NamedTuple):
    """A phrase in both languages."""

    english: list[En]
    french: list[Fr]


def elide(words: list[Fr]) -> list[Fr]:
    """Shorten le, la, de, ne, que, je, me, ce before a vowel: l', d', n', qu', j', m'."""
    for word, after in zip(words, words[1:], strict=False):
        if word.text in ELIDED and elides(after.text):
            word.text = ELIDED[word.text]
    return words


ELIDED = {"le": "l'", "la": "l'", "de": "d'", "ne": "n'", "que": "qu'", "je": "j'", "me": "m'"}
CONTRACTED = {("de", "le"): "du", ("de", "les"): "des", ("à", "le"): "au", ("à", "les"): "aux"}


def contract(preposition: list[Fr], phrase: list[Fr]) -> list[Fr]:
    """Put a preposition before a noun phrase: de + le is du, à + les is aux, de + l' stays."""
    last, first = preposition[-1], phrase[0]
    joined = CONTRACTED.get((last.text, first.text))
    if joined is None:
        return [*preposition, *phrase]
    return [*preposition[:-1], Fr(joined, *last.sources, *first.sources), *phrase[1:]]


def subject_pronoun(pronoun: Pronoun) -> Both:
    """i, he, they … as subjects: je, il, ils or elles."""
    word = En(pronoun.english)
    french = PRONOUNS[pronoun.english][4]
    if pronoun.gender == "f" and pronoun.english in ("it", "they"):
        french = "elles" if pronoun.english == "they" else "elle"
    return Both([word], [Fr(french, word)])


def object_pronoun(pronoun: Pronoun, *, indirect: bool = False) -> Both:
    """him, them … and the French pronoun that goes before the verb: le, les; with "to": lui, leur."""
    english, *_, direct, dative = PRONOUNS[pronoun.english]
    word = En(english)
    if indirect:
        to = En("to")
        return Both([to, word], [Fr(dative, to, word)])
    if pronoun.english == "it" and pronoun.gender == "f":
        direct = "la"
    return Both([word], [Fr(direct, word)])


def adjective_words(phrase: NounPhrase) -> tuple[list[En], list[Fr], list[Fr]]:
    """The adjectives in English order, and the French ones before and after the noun."""
    english: list[En] = []
    before: list[Fr] = []
    after: list[Fr] = []
    for adjective in phrase.adjectives:
        word = En(adjective.english)
        english.append(word)
        (before if adjective.before else after).append(Fr(adjective.agreed(phrase.noun.gender, phrase.plural), word))
    if before and phrase.noun.gender == "m" and not phrase.plural and elides(phrase.noun.french[0]):
        last = [adjective for adjective in phrase.adjectives if adjective.before][-1]
        before[-1].text = last.liaison or before[-1].text  # un bel oiseau, un vieil homme
    return english, before, after[::-1]


def determiner_words(phrase: NounPhrase, following: str, before_noun: bool, denied: bool) -> Both:
    """The determiner: agreement, ce and cet, ma and mon, du and de la, "pas de" after a negation.

    `following` is the next French word, `before_noun` whether that is the noun itself.
    """
    name = phrase.determiner
    masculine, feminine, plural = DETERMINERS[name]
    french = plural if phrase.plural else feminine if phrase.noun.gender == "f" else masculine
    if name == "this" and phrase.plural:
        name = "these"
    if name == "a" and phrase.plural:
        raise ValueError('determiner: "a" goes with a singular; expected "some" for a plural')
    if name in ("a", "some") and (denied or (phrase.plural and not before_noun)):
        french = "de"
    if name == "some" and denied:
        name = "any"
    elif name == "some" and not phrase.plural and elides(following):
        french = "de l'"
    if elides(following):
        french = BEFORE_VOWEL.get(french, french)
    word = En(name)
    return Both([word], [Fr(text, word) for text in french.split()])
