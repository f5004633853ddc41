"""Noun phrases, verbs, clauses and sentences, written in English and French at once."""

from __future__ import annotations

from attn_book.corpus.lexicon import CONJUNCTIONS, PREPOSITIONS, TIMES, Adjective
from attn_book.corpus.morphology import takes_an
from attn_book.corpus.phrases import (
    Both,
    En,
    Fr,
    adjective_words,
    contract,
    determiner_words,
    elide,
    object_pronoun,
    subject_pronoun,
)
from attn_book.corpus.tree import (
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
from attn_book.corpus.verb_phrases import verb_words
from attn_book.corpus.verbs import IDIOMS
from attn_core.data.pairs import Pair

ALL_TIMES = {english: french for times in TIMES.values() for english, french in times.items()}


def noun_phrase(phrase: NounPhrase, *, denied: bool = False) -> Both:
    """A noun phrase; `denied` when it is the direct object of a negated verb."""
    noun = En(phrase.noun.english[phrase.plural])
    adjectives, before, after = adjective_words(phrase)
    core = [*before, Fr(phrase.noun.french[phrase.plural], noun), *after]
    determiner = determiner_words(phrase, core[0].text, not before, denied)
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
    """The cat and the dog: le chat et le chien."""
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
    """That sleeps: qui dort; that the cat sees: que le chat voit; who for a person that is the subject."""
    missing = agreement(antecedent)
    if relative.clause.subject is None:
        word = En("who" if "person" in antecedent.noun.classes else "that")
        inner = clause_words(relative.clause, shared=missing)
        return Both([word, *inner.english], [Fr("qui", word), *inner.french])
    word = En("that")
    inner = clause_words(relative.clause, moved=missing)
    return Both([word, *inner.english], [Fr("que", word), *inner.french])


def predicate_words(clause: Clause, who: Agreement) -> Both:
    """What be is followed by: tired, hungry (faim, after avoir) or a place."""
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
    """A clause; `shared` stands for a missing subject, `moved` for an object that has gone before it."""
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
        after.append(noun_phrase(clause.object, denied=bool(clause.negation)))
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
    """Today, tomorrow, soon."""
    word = En(time)
    return Both([word], [Fr(ALL_TIMES[time], word)])


def joined_words(body: Clause | Joined) -> Both:
    """One clause, or clauses with a conjunction between them."""
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
    """The sentence in English and in French with the links between their words."""
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
