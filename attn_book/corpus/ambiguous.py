"""English homographs with two French translations, in paragraphs where another sentence decides between the senses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from attn_book.corpus.clauses import write
from attn_book.corpus.grammar import check_even, stream
from attn_book.corpus.lexicon import BE, NOUNS, VERBS, Noun, Verb, nouns_of
from attn_book.corpus.morphology import conjugate, english_ed, english_s, french_plural
from attn_book.corpus.paragraphs import Paragraph
from attn_book.corpus.trees import Clause, NounPhrase, Place, Pronoun, Sentence
from attn_core.contract import check_integer

# surrounding | its places: preposition noun, where a noun that is not in the lexicon is english/french/gender
SURROUNDINGS_TABLE = """
water | near river, near lake, near bridge, near waterfall/cascade/f
sea | at beach/plage/f, at harbour/port/m, near ocean/océan/m, near lighthouse/phare/m
forest | in forest, near tree, near cave/grotte/f, in wood/bois/m
garden | in garden, in park, near lawn/pelouse/f, in orchard/verger/m
farm | at farm/ferme/f, near stable/étable/f, in field/champ/m, near barn/grange/f
town | in town, at market, in shop, at bakery/boulangerie/f
travel | at station, at airport/aéroport/m, at hotel/hôtel/m, at border/frontière/f
home | in house, in kitchen/cuisine/f, in bedroom/chambre/f, in attic/grenier/m
workshop | in workshop/atelier/m, in garage/garage/m, in warehouse/entrepôt/m, at sawmill/scierie/f
school | at school, at library/bibliothèque/f, at university/université/f, in classroom/classe/f
hospital | at hospital, at clinic/clinique/f, at pharmacy/pharmacie/f, in ambulance/ambulance/f
castle | in castle, at palace/palais/m, in tower/tour/f, near dungeon/donjon/m
stadium | at stadium/stade/m, at gymnasium/gymnase/m, in arena/arène/f, at tournament/tournoi/m
theatre | at theatre/théâtre/m, at opera/opéra/m, at concert/concert/m, at ballet/ballet/m
"""
# word | French of one sense, gender, its surroundings | the other sense
SENSES_TABLE = """
bank | banque f town | rive f water
lock | écluse f water | serrure f home
seal | phoque m sea | sceau m castle
palm | paume f hospital | palmier m sea
scale | balance f town | écaille f sea
bat | chauve-souris f forest | batte f stadium
match | allumette f home | match m stadium
coach | entraîneur m stadium | autocar m travel
pitcher | cruche f home | lanceur m stadium
ring | bague f town | ring m stadium
bar | barre f stadium | bar m town
plant | usine f town | plante f garden
pen | stylo m school | enclos m farm
ruler | souverain m castle | règle f school
pupil | pupille f hospital | élève m school
board | tableau m school | planche f workshop
sheet | drap m home | feuille f school
bow | archet m theatre | arc m forest
horn | corne f farm | cor m theatre
calf | mollet m hospital | veau m farm
bill | facture f town | bec m farm
trunk | malle f travel | tronc m forest
spring | ressort m workshop | source f forest
file | dossier m hospital | lime f workshop
nail | clou m workshop | ongle m hospital
counter | comptoir m town | compteur m workshop
fan | admirateur m theatre | ventilateur m home
organ | orgue m theatre | organe m hospital
"""
NOTICING = (
    "draw/drew dessiner",
    "notice remarquer",
    "mention mentionner",
    "photograph photographier",
    "admire admirer",
)
"""What one may do to anything, beside seeing it and looking at it: these verbs fit both senses of a word."""
FILLERS = ("sleep", "work", "sing", "laugh", "play", "walk", "eat", "drink", "read", "wear", "wash")
HE, SHE = ("man", "boy", "king"), ("woman", "girl", "queen", "princess", "lady")
"""The people, by the pronoun that may stand for them."""
KINDS = ("plain", "negated", "bound")


@dataclass(frozen=True)
class Sense:
    """One meaning of a word: its noun, and the places (preposition, noun) that indicate this meaning."""

    noun: Noun
    places: tuple[tuple[str, Noun], ...]


@dataclass(frozen=True)
class AmbiguousWord:
    """A paragraph with a word that has two senses, and the sense that it has in this paragraph.

    ``word`` is English, ``position`` its index in ``paragraph.source``, and ``sentence`` the number of its sentence.
    ``sense`` is 0 or 1, as in ``SENSES[word]``, and ``translation`` is its French noun. ``deciding`` is the number of
    the sentence that decides the sense. ``kind`` is one of three:

    - "plain": the paragraph names a place of the right sense, and otherwise only places that indicate neither.
    - "negated": it also names a place of the other sense, in a negation.
    - "bound": it also names a place of the other sense, but somebody else is there.
    """

    paragraph: Paragraph
    word: str
    sense: int
    translation: str
    sentence: int
    position: int
    deciding: int
    kind: str


@dataclass(frozen=True)
class AmbiguousCorpus:
    """Examples in twins, which have the two senses of a word and differ only in the sentences that decide the sense."""

    train: tuple[AmbiguousWord, ...]
    valid: tuple[AmbiguousWord, ...]
    test: tuple[AmbiguousWord, ...]


def ambiguous_words(
    *, train: int = 12_000, valid: int = 1_200, test: int = 1_200, words: Sequence[str] = (), seed: int = 0
) -> AmbiguousCorpus:
    """Generate the given number of examples of 3 to 6 sentences for each part, the same for the same seed.

    Examples 2i and 2i + 1 are twins with the same sentence around the word and opposite senses, so a model that reads
    only that sentence is right half the time. The twins of the kinds "negated" and "bound" have the same words in all,
    so for them a bag of words of the whole paragraph is right half the time too. The kinds alternate. The deciding
    sentence comes one to five sentences before or after the word. No paragraph occurs twice. A part's size changes no
    part before it, and a smaller part is the beginning of a larger one. ``words`` are those to choose from, all of
    ``SENSES`` unless given.

    Raises:
        ValueError: if a size is not an even integer of at least 0, a word is not in ``SENSES``, or the seed is not an
            integer of at least 0.
    """
    sizes = {"train": train, "valid": valid, "test": test}
    check_even(sizes)
    for word in words:
        if word not in SENSES:
            raise ValueError(f"words: expected keys of SENSES, got {word!r}")
    check_integer("seed", seed, at_least=0)
    seen: set[tuple[str, ...]] = set()
    parts = {}
    for part, size in sizes.items():
        random = stream(f"ambiguous {part}", seed)
        chosen: list[AmbiguousWord] = []
        while len(chosen) < size:
            twins = _twins(random, KINDS[len(chosen) // 2 % len(KINDS)], tuple(words or SENSES))
            if not any(one.paragraph.source in seen for one in twins):
                seen.update(one.paragraph.source for one in twins)
                chosen.extend(twins)
        parts[part] = tuple(chosen)
    return AmbiguousCorpus(**parts)


def _noun(english: str, french: str, gender: str) -> Noun:
    return Noun((english, english_s(english)), (french, french_plural(french)), gender, frozenset())


def _place(text: str) -> tuple[str, Noun]:
    preposition, word = text.split()
    english, *french = word.split("/")
    return preposition, _noun(english, *french) if french else NOUNS[english]


def _verb(text: str) -> Verb:
    english, infinitive = text.split()
    base, _, past = english.partition("/")
    return Verb(base, english_s(base), past or english_ed(base), "", infinitive, *conjugate(infinitive))


SURROUNDINGS = {
    name.strip(): tuple(_place(text) for text in places.split(","))
    for name, places in (row.split("|") for row in SURROUNDINGS_TABLE.strip().splitlines())
}


def _senses() -> dict[str, tuple[Sense, Sense]]:
    senses = {}
    for row in SENSES_TABLE.strip().splitlines():
        word, *columns = (column.split() for column in row.split("|"))
        one, two = (Sense(_noun(word[0], french, gender), SURROUNDINGS[name]) for french, gender, name in columns)
        senses[word[0]] = (one, two)
    return senses


SENSES = _senses()
ACTS = (VERBS["see"], VERBS["look-at"], *(_verb(text) for text in NOTICING))


def _twins(random: Random, kind: str, words: Sequence[str]) -> tuple[AmbiguousWord, AmbiguousWord]:
    """Two paragraphs that differ only in the places; everything else is drawn once for both.

    ``who`` and ``other`` are drawn alike and mentioned alike, and only the subject of the word's sentence says which is
    which: without this subject the paragraph tells nothing about the sense of a bound word.
    """
    word, tense = random.choice(words), random.choice(("present", "past"))
    places = [_at(random, sense) for sense in SENSES[word]]
    who, other = random.sample((NOUNS[random.choice(HE)], NOUNS[random.choice(SHE)]), 2)
    count = random.randint(3, 6)
    distance = random.randrange(1, count)
    first = random.randrange(count - distance)
    sentence, deciding = random.sample((first, first + distance), 2)
    third = random.choice([number for number in range(count) if number not in (sentence, deciding)])
    if kind != "plain" and random.random() < 0.5:  # so that the nearer place is the wrong one half the time
        deciding, third = third, deciding
    lines: list[tuple[Clause, ...]] = []
    named: set[Noun] = set()

    def subject(noun: Noun) -> NounPhrase:
        named.add(noun)
        return NounPhrase("the", noun)

    for number in range(count):
        if number == sentence:
            both = {who, other} <= named  # so that a pronoun does not tell which of them was named
            pronoun = Pronoun("he" if who.english[0] in HE else "she")
            actor = pronoun if both and random.random() < 0.5 else subject(who)
            act, determiner = random.choice(ACTS), random.choice(("the", "the", "this"))
            things = [NounPhrase(determiner, sense.noun) for sense in SENSES[word]]
            lines.append(tuple(Clause(actor, act, thing, tense=tense) for thing in things))
        elif number == deciding:
            lines.append(tuple(Clause(subject(who), BE, predicate=place, tense=tense) for place in places))
        elif number == third and kind != "plain":
            denied, negation = (who, "not") if kind == "negated" else (other, "")
            swapped = places[::-1]
            lines.append(
                tuple(Clause(subject(denied), BE, predicate=p, tense=tense, negation=negation) for p in swapped)
            )
        elif number == third or random.random() < 0.4:
            place = _at(random, random.choice(_elsewhere(word)))
            animal = NounPhrase("the", random.choice(nouns_of(("animal",))))
            lines.append((Clause(animal, BE, predicate=place, tense=tense),) * 2)
        else:
            lines.append((_filler(random, subject(random.choice((who, other))), tense),) * 2)
    cast = who.english[0], other.english[0]
    return _told(lines, cast, word, 0, sentence, deciding, kind), _told(lines, cast, word, 1, sentence, deciding, kind)


def _told(
    lines: list[tuple[Clause, ...]],
    cast: tuple[str, str],
    word: str,
    sense: int,
    sentence: int,
    deciding: int,
    kind: str,
) -> AmbiguousWord:
    pairs = tuple(write(Sentence(twins[sense])) for twins in lines)
    position = sum(len(pair.source) for pair in pairs[:sentence]) + pairs[sentence].source.index(word)
    french = SENSES[word][sense].noun.french[0]
    return AmbiguousWord(Paragraph(pairs, cast), word, sense, french, sentence, position, deciding, kind)


def _at(random: Random, sense: Sense) -> Place:
    preposition, noun = random.choice(sense.places)
    return Place(preposition, NounPhrase("the", noun))


def _elsewhere(word: str) -> list[Sense]:
    """The senses of other words whose places indicate neither sense of this one."""
    own = [sense.places for sense in SENSES[word]]
    return [sense for pair in SENSES.values() for sense in pair if sense.places not in own]


def _filler(random: Random, subject: NounPhrase, tense: str) -> Clause:
    """A clause about something that one can do anywhere."""
    fitting = [name for name in FILLERS if not subject.noun.classes.isdisjoint(VERBS[name].subjects)]
    verb = VERBS[random.choice(fitting)]
    thing = NounPhrase("the", random.choice(nouns_of(verb.objects))) if verb.objects else None
    return Clause(subject, verb, thing, tense=tense)
