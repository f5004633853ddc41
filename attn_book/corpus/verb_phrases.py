"""The verb with its auxiliaries, negation, adverb and French object pronouns."""

from __future__ import annotations

from attn_book.corpus.lexicon import ADVERBS
from attn_book.corpus.morphology import PERSONS, agree, french_feminine
from attn_book.corpus.phrases import Both, En, Fr
from attn_book.corpus.tree import Agreement, Clause
from attn_book.corpus.verbs import BE, GO, HAD, HAVE, WAS, Verb


def auxiliary_form(verb: Verb, tense: str, who: Agreement) -> str:
    """The form of be, or of do, that a subject asks for."""
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
    """The verb with all that gathers around it, and, apart, the English auxiliary where there is one.

    `clitics` are the French object pronouns; `preceding` is the object before a participle, which agrees.
    A plain "does" renders nothing in French, so the verb is linked to the English verb alone; "did" is the
    auxiliary avoir, "is going" is aller, and the infinitive is linked to the verb without its "to".
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
