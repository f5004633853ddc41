"""The nouns, adjectives and small words of the grammar, as tables.

A noun's classes say what may be done with it and where it may stand; a verb (in `verbs`) names the classes
of its subject and its object, an adjective those of the nouns that it may describe. Nothing else keeps the
soup from reading the cat.
"""

from __future__ import annotations

from dataclasses import dataclass

from attn_book.corpus.morphology import agree, english_s, french_feminine, french_plural


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun: `english` and `french` are (singular, plural), `gender` is "m" or "f"."""

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
    """An adjective; `liaison` is the masculine before a vowel where it differs (bel, vieil, nouvel)."""

    english: str
    masculine: str
    feminine: str
    before: bool
    classes: frozenset[str]
    liaison: str = ""

    def agreed(self, gender: str, plural: bool) -> str:
        """The form for this gender and number."""
        return agree(self.masculine, self.feminine, gender, plural)


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
"""What a person is for a while, and so may be a reason."""

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
HELD_PAIRS = frozenset(
    (adjective, noun)
    for noun, adjectives in (row.split(":") for row in HELD_TABLE.replace("\n", " ").strip().split(", "))
    for adjective in adjectives.split()
)
"""(adjective, noun) pairs kept for the structures split, as English singulars."""


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
                known = table[english].classes if english in table else frozenset()
                table[english] = Adjective(
                    english,
                    masculine,
                    feminine or french_feminine(masculine),
                    before,
                    known | frozenset(classes.split()),
                    liaison,
                )
    return table


NOUNS = _nouns()
ADJECTIVES = _adjectives()
