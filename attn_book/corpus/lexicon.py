"""The words of the grammar, as tables, and which of them go together.

A noun's classes say what may be done with it and where it may stand. A verb names the classes of its subject and its
object, and an adjective names those of the nouns that it may describe. Only these classes keep the grammar from
writing that the soup reads the cat.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from attn_book.corpus.morphology import PERSONS, agree, conjugate, english_ed, english_s, french_feminine, french_plural


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun: ``english`` and ``french`` are (singular, plural), ``gender`` is "m" or "f"."""

    english: tuple[str, str]
    french: tuple[str, str]
    gender: str
    classes: frozenset[str]

    @property
    def mass(self) -> bool:
        """Whether it is not counted: some water, de l' eau."""
        return not self.classes.isdisjoint(("drink", "meal"))


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective; ``liaison`` is the masculine before a vowel where it differs (bel, vieil, nouvel)."""

    english: str
    masculine: str
    feminine: str
    before: bool
    classes: frozenset[str]
    liaison: str = ""

    def agreed(self, gender: str, plural: bool) -> str:
        """The form for this gender and number."""
        return agree(self.masculine, self.feminine, gender, plural)


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb: ``present`` in French has the five forms of ``morphology.PERSONS``."""

    english: str
    third: str
    past: str
    particle: str
    infinitive: str
    participle: str
    present: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


# classes: english[/plural] french gender, …
NOUNS_TABLE = {
    "person": """man/men homme m, woman/women femme f, boy garçon m, girl fille f, teacher professeur m,
        doctor médecin m, king roi m, queen reine f, child/children enfant m, student étudiant m,
        nurse infirmière f, princess princesse f, lady dame f, thief/thieves voleur m, hero/heroes héros m,
        sailor marin m, singer chanteuse f""",
    "person kin": "brother frère m, sister sœur f, uncle oncle m, friend ami m, neighbour voisin m",
    "person kin only": "mother mère f, father père m",
    "animal own": "cat chat m, dog chien m, horse cheval m, cow vache f, rabbit lapin m",
    "animal": "bird oiseau m, mouse/mice souris f, wolf/wolves loup m, owl hibou/hiboux m",
    "drink": "water eau f, milk lait m, coffee café m, tea thé m, soup soupe f",
    "meal": "bread pain m, cheese fromage m, meat viande f, jam confiture f",
    "fruit": """apple pomme f, pear poire f, cake gâteau m, egg œuf m, tomato/tomatoes tomate f,
        orange orange f, tart tarte f, melon melon m""",
    "text own": "book livre m, letter lettre f, story histoire f",
    "thing own": """knife/knives couteau m, cup tasse f, plate assiette f, key clé f, lamp lampe f,
        watch montre f, umbrella parapluie m, ball ballon m, clock horloge f,
        mirror miroir m""",
    "furniture own": "table table f, chair chaise f, bed lit m, desk bureau m",
    "container own": "box boîte f, basket panier m, bag sac m, suitcase valise f",
    "clothes own": "hat chapeau m, coat manteau m, shirt chemise f, dress robe f, scarf/scarves écharpe f",
    "vehicle own": "car voiture f, boat bateau m, plane avion m",
    "opening": "door porte f, window fenêtre f",
    "building own": "house maison f, castle château m",
    "building venue": "school école f, hospital hôpital m",
    "building": "shop magasin m",
    "venue": "market marché m, station gare f",
    "area": "park parc m, forest forêt f, town ville f",
    "area own": "garden jardin m",
    "spot": "river rivière f, lake lac m, bridge pont m, tree arbre m",
}

# classes of single nouns, beside those of their group
EXTRA_CLASSES = {
    "kid": {"boy", "girl", "child"},
    "job": {"teacher", "doctor", "nurse", "neighbour", "friend"},
    "bird": {"bird"},
    "pet": {"cat", "dog", "horse", "rabbit"},
    "water": {"river", "lake"},
    "breakable": {"cup", "plate", "lamp", "clock", "mirror", "chair", "watch", "umbrella"},
}

# english french[/feminine[/before a vowel]], …
ADJECTIVES_BEFORE = {
    "animal fruit text thing furniture container vehicle opening building area spot": "big grand",
    "animal fruit text thing furniture container vehicle opening building area spot clothes kid": "small petit",
    "animal text thing furniture container vehicle opening building area spot clothes person": """
        old vieux/vieille/vieil""",
    "animal text thing furniture vehicle building area spot clothes person": "beautiful beau/belle/bel",
    "animal person": "young jeune",
    "drink meal fruit text job": "good bon/bonne",
    "text thing furniture container vehicle building clothes job": "new nouveau/nouvelle/nouvel",
    "text": "long long/longue",
}
ADJECTIVES_AFTER = {
    "animal thing furniture container clothes vehicle": "black noir, white blanc/blanche, grey gris",
    "fruit clothes vehicle thing furniture container opening": "red rouge, green vert",
    "clothes vehicle thing furniture container opening": "blue bleu",
    "drink meal": "hot chaud, cold froid",
    "drink meal fruit": "delicious délicieux",
    "meal fruit": "fresh frais/fraîche",
    "person animal": """tired fatigué, happy heureux, sad triste, brave courageux,
        ill malade, lazy paresseux, curious curieux""",
    "person": "rich riche, shy timide, proud fier",
    "person text": "french français, english anglais",
    "text": "interesting intéressant, boring ennuyeux",
    "thing furniture container": "heavy lourd, light léger",
    "thing furniture container clothes vehicle building": "dirty sale, clean propre",
    "container": "empty vide, full plein",
    "area": "quiet tranquille",
    "water": "deep profond",
}
STATES = ("tired", "happy", "sad", "ill")
"""States of a person that pass, so that they may be the reason for something."""

# english: masculine, feminine, plural
DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", "des"),
    "some": ("du", "de la", "des"),
    "this": ("ce", "cette", "ces"),
    "my": ("mon", "ma", "mes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "your": ("votre", "votre", "vos"),
    "their": ("leur", "leur", "leurs"),
    "every": ("chaque", "chaque", ""),
    "several": ("", "", "plusieurs"),
    "many": ("", "", "beaucoup de"),
    **{
        english: ("", "", french)
        for english, french in zip(
            ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"],
            ["deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"],
            strict=True,
        )
    },
}
NUMBERS = tuple(["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"])
BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son"}
"""Determiners that change, rather than elide, before a vowel."""

PREPOSITIONS = {
    "in": "dans",
    "near": "près de",
    "behind": "derrière",
    "in front of": "devant",
    "on": "sur",
    "under": "sous",
    "at": "à",
    "of": "de",
    "to": "à",
    "with": "avec",
}
PLACES = (
    ("in", ("area", "building", "container")),
    ("near", ("area", "building", "spot", "venue")),
    ("behind", ("building",)),
    ("in front of", ("building",)),
    ("at", ("venue",)),
    ("on", ("furniture",)),
    ("under", ("furniture",)),
)
ADVERBS = {
    "often": "souvent",
    "always": "toujours",
    "sometimes": "parfois",
    "slowly": "lentement",
    "quickly": "rapidement",
}
TIMES = {
    "present": {"today": "aujourd'hui", "now": "maintenant"},
    "past": {"yesterday": "hier"},
    "future": {"tomorrow": "demain", "soon": "bientôt"},
}
CONJUNCTIONS = {"and": "et", "but": "mais", "because": "parce que", "when": "quand", "while": "pendant que"}

HELD_TABLE = """
dog: white young, horse: black old, cow: brave, rabbit: grey, man: young happy, woman: rich, teacher: old,
queen: proud, doctor: good, girl: sad, friend: new, coffee: hot, milk: cold, soup: good, bread: fresh,
apple: red small, cake: delicious, book: old, letter: long, story: boring, knife: big, key: small, table: black,
box: heavy, hat: green, shirt: blue, dress: red, car: new, boat: white, door: green, house: beautiful,
castle: old, garden: quiet, forest: small, tree: big, lake: beautiful
"""
HELD_DESCRIPTIONS = frozenset(
    (adjective, noun)
    for noun, adjectives in (row.split(":") for row in HELD_TABLE.replace("\n", " ").strip().split(", "))
    for adjective in adjectives.split()
)
"""The (adjective, noun) pairs that only the structures split has, as English singulars."""

# english[/past] [particle] | infinitive [participle, five present forms] | subject classes > object classes
TRANSITIVE_TABLE = """
see/saw | voir vu vois voit voyons voyez voient | person animal > person animal thing vehicle building
hear/heard | entendre | person animal > person animal vehicle
look at | regarder | person animal > person animal vehicle building
look for | chercher | person animal > person animal thing clothes
wait for | attendre | person > person
listen to | écouter | person > person
drink/drank | boire bu bois boit buvons buvez boivent | person animal > drink
eat/ate | manger | person animal > meal fruit
taste | goûter | person > drink meal fruit
read/read | lire lu lis lit lisons lisez lisent | person > text
write/wrote | écrire écrit écris écrit écrivons écrivez écrivent | person > text
buy/bought | acheter:achèt | person > meal fruit text thing furniture container clothes vehicle
find/found | trouver | person animal > thing container clothes fruit
lose/lost | perdre | person > thing clothes
wear/wore | porter | person > clothes
open | ouvrir ouvert ouvre ouvre ouvrons ouvrez ouvrent | person > opening container
wash | laver | person > clothes vehicle pet
follow | suivre suivi suis suit suivons suivez suivent | person animal > person animal vehicle
help | aider | person > person
call | appeler:appell | person > person
know/knew | connaître connu connais connaît connaissons connaissez connaissent | person > person
break/broke | casser | person animal > breakable
hide/hid | cacher | person > thing fruit clothes text
steal/stole | voler | person animal > fruit clothes meal
clean | nettoyer:nettoi | person > building furniture
love | aimer | person > person pet
push | pousser | person animal > furniture container
"""
INTRANSITIVE_TABLE = """
sleep/slept | dormir dormi dors dort dormons dormez dorment | person animal
sing/sang | chanter | person bird
dance | danser | person
work | travailler | person
run/ran | courir couru cours court courons courez courent | person animal
laugh | rire ri ris rit rions riez rient | person
cry | pleurer | person
walk | marcher | person animal
play | jouer | person animal
"""
GIVING_TABLE = """
give/gave | donner | person > fruit text thing clothes container
show/showed | montrer | person > text thing clothes animal
send/sent | envoyer:envoi | person > text clothes
"""
SAYING_TABLE = """
think/thought | penser | person
say/said | dire dit dis dit disons dites disent | person
know/knew | savoir su sais sait savons savez savent | person
believe | croire cru crois croit croyons croyez croient | person
see/saw | voir vu vois voit voyons voyez voient | person
"""


def _nouns() -> dict[str, Noun]:
    table = {}
    for classes, rows in NOUNS_TABLE.items():
        for row in rows.split(","):
            english, french, gender = row.split()
            one, _, many = english.partition("/")
            un, _, plusieurs = french.partition("/")
            table[one] = Noun(
                (one, many or english_s(one)),
                (un, plusieurs or french_plural(un)),
                gender,
                frozenset(classes.split()) | {extra for extra, ones in EXTRA_CLASSES.items() if one in ones},
            )
    return table


def _adjectives() -> dict[str, Adjective]:
    table: dict[str, Adjective] = {}
    for before, half in ((True, ADJECTIVES_BEFORE), (False, ADJECTIVES_AFTER)):
        for classes, rows in half.items():
            for row in rows.split(","):
                english, french = row.split()
                masculine, feminine, liaison = (french.split("/") + ["", ""])[:3]
                earlier = table[english].classes if english in table else frozenset()
                table[english] = Adjective(
                    english,
                    masculine,
                    feminine or french_feminine(masculine),
                    before,
                    earlier | frozenset(classes.split()),
                    liaison,
                )
    return table


def _verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for row in table.strip().splitlines():
        english, french, classes = row.split(" | ")
        base, _, particle = english.partition(" ")
        base, _, past = base.partition("/")
        infinitive, *forms = french.split()
        participle, present = (forms[0], tuple(forms[1:])) if forms else conjugate(infinitive)
        assert len(present) == len(PERSONS), row
        subjects, _, objects = classes.partition(" > ")
        verbs.append(
            Verb(
                base,
                english_s(base),
                past or english_ed(base),
                particle,
                infinitive.partition(":")[0],
                participle,
                present,
                tuple(subjects.split()),
                tuple(objects.split()),
            )
        )
    return tuple(verbs)


NOUNS = _nouns()
ADJECTIVES = _adjectives()
TRANSITIVE = _verbs(TRANSITIVE_TABLE)
INTRANSITIVE = _verbs(INTRANSITIVE_TABLE)
GIVING = _verbs(GIVING_TABLE)
SAYING = _verbs(SAYING_TABLE)
BE = Verb("be", "is", "was", "", "être", "été", ("suis", "est", "sommes", "êtes", "sont"))
HAVE = ("ai", "a", "avons", "avez", "ont")
GO = ("vais", "va", "allons", "allez", "vont")
WAS = ("étais", "était", "étions", "étiez", "étaient")
HAD = ("avais", "avait", "avions", "aviez", "avaient")
POSSESS = Verb("have", "has", "had", "", "avoir", "eu", HAVE)
"""To have, as a verb of its own; in the present only."""
VERBS = {f"{verb.english}-{verb.particle}".strip("-"): verb for verb in (*TRANSITIVE, *INTRANSITIVE, *GIVING)}
VERBS |= {"have": POSSESS, "be": BE}
IDIOMS = {"hungry": "faim", "thirsty": "soif", "sleepy": "sommeil", "afraid": "peur"}
"""What one "is" in English and "has" in French: he is hungry, il a faim."""

SMALL_PLACES = tuple(place for place in PLACES if place[0] in ("on", "under")) + (("in", ("container",)),)
LARGE_PLACES = tuple(
    (preposition, tuple(c for c in classes if c != "container"))
    for preposition, classes in PLACES
    if preposition not in ("on", "under")
)


@cache
def nouns_of(classes: tuple[str, ...]) -> tuple[Noun, ...]:
    """All nouns with one of these classes."""
    return tuple(noun for noun in NOUNS.values() if not noun.classes.isdisjoint(classes))


@cache
def adjectives_of(noun: Noun, held: bool) -> tuple[Adjective, ...]:
    """The adjectives that may describe a noun; ``held``: those that only the structures split has with it."""
    return tuple(
        adjective
        for adjective in ADJECTIVES.values()
        if not adjective.classes.isdisjoint(noun.classes)
        and ((adjective.english, noun.english[0]) in HELD_DESCRIPTIONS) == held
    )


@cache
def verbs_with(verbs: tuple[Verb, ...], noun: Noun, role: str) -> tuple[Verb, ...]:
    """The verbs that take this noun as "subject" or "object"."""
    return tuple(
        verb for verb in verbs if not noun.classes.isdisjoint(verb.subjects if role == "subject" else verb.objects)
    )
