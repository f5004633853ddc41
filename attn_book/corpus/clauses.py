"""Writes a tree in English and in French at once.

A French word carries the English words that it comes from, as objects, so wherever the two end up in their sentences
the link between them is known: no alignment is ever guessed.
"""

from __future__ import annotations

from typing import NamedTuple

from attn_book.corpus.lexicon import (
    ADVERBS,
    BE,
    BEFORE_VOWEL,
    CONJUNCTIONS,
    DETERMINERS,
    GO,
    HAD,
    HAVE,
    IDIOMS,
    PREPOSITIONS,
    TIMES,
    WAS,
    Adjective,
    Verb,
)
from attn_book.corpus.morphology import PERSONS, agree, elides, french_feminine, takes_an
from attn_book.corpus.trees import (
    PRONOUNS,
    Agreement,
    Clause,
    Joined,
    Nominal,
    NounPhrase,
    Place,
    Pronoun,
    Relative,
    Sentence,
    Several,
    agreement,
)
from attn_book.data.pairs import Pair


class En:
    """One English word; two words of the same text are two objects."""

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
    """Shorten le, la, de, ne, que, je and me before a vowel, in place: l', d', n', qu', j', m'."""
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
    """A subject pronoun: i, he, they … and je, il, ils or elles."""
    word = En(pronoun.english)
    french = PRONOUNS[pronoun.english][4]
    if pronoun.gender == "f" and pronoun.english in ("it", "they"):
        french = "elles" if pronoun.english == "they" else "elle"
    return Both([word], [Fr(french, word)])


def object_pronoun(pronoun: Pronoun, *, indirect: bool = False) -> Both:
    """An object pronoun: him, them … and le, les, which French puts before the verb; with "to": lui, leur."""
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


def determiner_words(phrase: NounPhrase, following: str, before_noun: bool, negated: bool) -> Both:
    """The determiner: agreement, ce and cet, ma and mon, du and de la, "pas de" after a negation.

    ``following`` is the next French word, ``before_noun`` whether that is the noun itself.
    """
    name = phrase.determiner
    masculine, feminine, plural = DETERMINERS[name]
    french = plural if phrase.plural else feminine if phrase.noun.gender == "f" else masculine
    if name == "this" and phrase.plural:
        name = "these"
    if name == "a" and phrase.plural:
        raise ValueError('determiner: "a" goes with a singular; expected "some" for a plural')
    if name in ("a", "some") and (negated or (phrase.plural and not before_noun)):
        french = "de"
    if name == "some" and negated:
        name = "any"
    elif name == "some" and not phrase.plural and elides(following):
        french = "de l'"
    if elides(following):
        french = BEFORE_VOWEL.get(french, french)
    word = En(name)
    return Both([word], [Fr(text, word) for text in french.split()])


def auxiliary_form(verb: Verb, tense: str, who: Agreement) -> str:
    """The form of be, or of do, that agrees with a subject."""
    third = who.person == 3 and not who.plural
    first = who.person == 1 and not who.plural
    if tense == "future" or (verb is BE and tense == "present"):
        return "am" if first else "is" if third else "are"
    if verb is BE:
        return "was" if first or third else "were"
    return "did" if tense == "past" else "does" if third else "do"


def verb_words(
    clause: Clause, who: Agreement, clitics: list[Fr], *, question: bool, preceding: Agreement | None
) -> tuple[En | None, Both]:
    """The English auxiliary, where there is one, and the verb with its other auxiliaries, negation and adverb.

    ``clitics`` are the French object pronouns; ``preceding`` is an object before the participle, which agrees with it.
    "Does" has no counterpart in French, so the French verb is linked to the English verb alone. "Did" is linked to the
    auxiliary avoir and "is going" to aller; the infinitive is linked to the verb without its "to".
    """
    verb, tense, form = clause.verb, clause.tense, PERSONS.index((who.person, who.plural))
    idiom = isinstance(clause.predicate, str)
    negation = [En(clause.negation)] if clause.negation else []
    adverb = [En(clause.adverb)] if clause.adverb else []
    main, particle = En(verb.english), [En(verb.particle)] if verb.particle else []
    auxiliary = None
    if verb is BE or tense == "future" or question or clause.negation == "not":
        auxiliary = En(auxiliary_form(verb, tense, who))
    elif tense == "past":
        main.text = verb.past
    elif who.person == 3 and not who.plural:
        main.text = verb.third
    english = [*negation, *adverb]
    ne = [Fr("ne", *negation)] if negation else []
    pas = [Fr("jamais" if clause.negation == "never" else "pas", *negation)] if negation else []
    pas += [Fr(ADVERBS[word.text], word) for word in adverb]
    if tense == "future":
        going = En("going")
        english += [going, En("to"), main, *particle]
        infinitive = Fr("avoir" if idiom else verb.infinitive, main, *particle)
        assert auxiliary is not None
        return auxiliary, Both(english, [*ne, Fr(GO[form], auxiliary, going), *pas, *clitics, infinitive])
    if verb is BE:
        assert auxiliary is not None
        present, past = (HAVE, HAD) if idiom else (BE.present, WAS)
        return auxiliary, Both(english, [*ne, Fr((past if tense == "past" else present)[form], auxiliary), *pas])
    english += [main, *particle]
    if tense == "present":
        return auxiliary, Both(english, [*ne, *clitics, Fr(verb.present[form], main, *particle), *pas])
    participle = verb.participle
    if preceding is not None:
        participle = agree(participle, french_feminine(participle), preceding.gender, preceding.plural)
    have = Fr(HAVE[form], auxiliary or main)
    return auxiliary, Both(english, [*ne, *clitics, have, *pas, Fr(participle, main, *particle)])


ALL_TIMES = {english: french for times in TIMES.values() for english, french in times.items()}


def noun_phrase(phrase: NounPhrase, *, negated: bool = False) -> Both:
    """A noun phrase; ``negated`` when it is the direct object of a negated verb."""
    noun = En(phrase.noun.english[phrase.plural])
    adjectives, before, after = adjective_words(phrase)
    core = [*before, Fr(phrase.noun.french[phrase.plural], noun), *after]
    determiner = determiner_words(phrase, core[0].text, not before, negated)
    english = [*determiner.english, *adjectives, noun]
    if english[0].text == "a" and takes_an(english[1].text):
        english[0].text = "an"
    french = elide([*determiner.french, *core])
    if phrase.owner is not None:  # the king 's horse: le cheval du roi
        owner, genitive = noun_phrase(phrase.owner), english[0]
        genitive.text = "'s"
        english = [*owner.english, *english]
        french = [*french, *contract([Fr("de", genitive)], owner.french)]
    if phrase.place is not None:
        place = place_words(phrase.place)
        english, french = english + place.english, french + place.french
    if phrase.relative is not None:
        relative = relative_clause(phrase.relative, phrase)
        english, french = english + relative.english, french + relative.french
    return Both(english, french)


def subject_words(nominal: Nominal) -> Both:
    """A subject of any kind."""
    if isinstance(nominal, Pronoun):
        return subject_pronoun(nominal)
    if isinstance(nominal, NounPhrase):
        return noun_phrase(nominal)
    return several(nominal)


def several(phrase: Several) -> Both:
    """Two noun phrases: the cat and the dog, le chat et le chien."""
    first, second, conjunction = noun_phrase(phrase.first), noun_phrase(phrase.second), En("and")
    return Both(
        [*first.english, conjunction, *second.english],
        [*first.french, Fr("et", conjunction), *second.french],
    )


def place_words(place: Place) -> Both:
    """A preposition and its noun phrase, contracted where French does: at the market, au marché."""
    english = [En(word) for word in place.preposition.split()]
    preposition = [Fr(word, *english) for word in PREPOSITIONS[place.preposition].split()]
    inner = noun_phrase(place.noun_phrase)
    return Both([*english, *inner.english], contract(preposition, inner.french))


def relative_clause(relative: Relative, antecedent: NounPhrase) -> Both:
    """A relative clause: that (who) sleeps, qui dort; that the cat sees, que le chat voit."""
    missing = agreement(antecedent)
    if relative.clause.subject is None:
        word = En("who" if "person" in antecedent.noun.classes else "that")
        inner = clause_words(relative.clause, shared=missing)
        return Both([word, *inner.english], [Fr("qui", word), *inner.french])
    word = En("that")
    inner = clause_words(relative.clause, moved=missing)
    return Both([word, *inner.english], [Fr("que", word), *inner.french])


def predicate_words(clause: Clause, who: Agreement) -> Both:
    """What follows be: an adjective, an idiom (hungry is faim, after avoir) or a place."""
    predicate = clause.predicate
    if isinstance(predicate, Adjective):
        word = En(predicate.english)
        return Both([word], [Fr(predicate.agreed(who.gender, who.plural), word)])
    if isinstance(predicate, str):
        word = En(predicate)
        return Both([word], [Fr(IDIOMS[predicate], word)])
    return place_words(predicate) if predicate is not None else Both([], [])


def clause_words(
    clause: Clause,
    *,
    question: bool = False,
    shared: Agreement | None = None,
    moved: Agreement | None = None,
) -> Both:
    """A clause; ``shared`` stands for a missing subject, ``moved`` for an object that precedes the clause."""
    subject, who = Both([], []), shared
    if clause.subject is not None:
        subject, who = subject_words(clause.subject), agreement(clause.subject)
    assert who is not None
    after: list[Both] = [predicate_words(clause, who)]
    clitics: list[Fr] = []
    preceding = moved
    if isinstance(clause.object, Pronoun):
        pronoun = object_pronoun(clause.object)
        clitics, preceding = pronoun.french, agreement(clause.object)
        after.append(Both(pronoun.english, []))
    elif isinstance(clause.object, NounPhrase):
        after.append(noun_phrase(clause.object, negated=bool(clause.negation)))
    elif clause.object is not None:
        after.append(several(clause.object))
    if isinstance(clause.recipient, Pronoun):
        pronoun = object_pronoun(clause.recipient, indirect=True)
        clitics = [*clitics, *pronoun.french]
        after.append(Both(pronoun.english, []))
    elif clause.recipient is not None:
        after.append(place_words(Place("to", clause.recipient)))
    if clause.place is not None:
        after.append(place_words(clause.place))
    if clause.time:
        after.append(time_words(clause.time))
    if clause.content is not None:
        that, content = En("that"), clause_words(clause.content)
        after.append(Both([that, *content.english], [Fr("que", that), *content.french]))
    auxiliary, verb = verb_words(clause, who, clitics, question=question, preceding=preceding)
    front: Both = Both([], [])
    if auxiliary is not None and question:
        front = Both([auxiliary], [Fr("est-ce", auxiliary), Fr("que", auxiliary)])
    elif auxiliary is not None:
        verb = Both([auxiliary, *verb.english], verb.french)
    english, french = [*front.english, *subject.english], [*front.french, *subject.french]
    for part in (verb, *after):
        english += part.english
        french += part.french
    return Both(english, french)


def time_words(time: str) -> Both:
    """A time: today, tomorrow, soon."""
    word = En(time)
    return Both([word], [Fr(ALL_TIMES[time], word)])


def joined_words(body: Clause | Joined) -> Both:
    """One clause, or several with conjunctions between them."""
    if isinstance(body, Clause):
        return clause_words(body)
    first = joined_words(body.first)
    shared = None
    if body.second.subject is None:
        assert isinstance(body.first, Clause) and body.first.subject is not None
        shared = agreement(body.first.subject)
    conjunction, second = En(body.conjunction), clause_words(body.second, shared=shared)
    link = [Fr(word, conjunction) for word in CONJUNCTIONS[body.conjunction].split()]
    return Both(
        [*first.english, conjunction, *second.english],
        [*first.french, *link, *second.french],
    )


def write(sentence: Sentence, *, structure: str = "") -> Pair:
    """The sentence in English and in French, with the links between their words.

    Raises:
        ValueError: if a question has more than one clause, or "a" goes with a plural.
    """
    if sentence.question:
        if not isinstance(sentence.body, Clause):
            raise ValueError(f"sentence: expected a single clause in a question, got {sentence.body!r}")
        both = clause_words(sentence.body, question=True)
    else:
        both = joined_words(sentence.body)
    opening = Both([], [])
    if sentence.opening:
        opening = time_words(sentence.opening) if isinstance(sentence.opening, str) else place_words(sentence.opening)
        comma = En(",")
        opening = Both([*opening.english, comma], [*opening.french, Fr(",", comma)])
    stop = En("?" if sentence.question else ".")
    english = [*opening.english, *both.english, stop]
    french = elide([*opening.french, *both.french, Fr(stop.text, stop)])
    index = {word: i for i, word in enumerate(english)}
    return Pair(
        tuple(word.text for word in english),
        tuple(word.text for word in french),
        frozenset((index[source], j) for j, word in enumerate(french) for source in word.sources),
        structure,
    )
