"""The nouns, adjectives and small words of the grammar, as tables.

A noun's classes say what may be done with it and where it may stand; a verb (in `verbs`) names the classes
of its subject and its object, an adjective those of the nouns that it may describe. Nothing else keeps the
soup from reading the cat.
"""

from __future__ import annotations

from dataclasses import dataclass

from attn_core.data.morphology import agree, english_s, french_feminine, french_plural


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
        doctor médecin m, farmer fermier m, baker boulanger m, king roi m, queen reine f,
        child/children enfant m, student étudiant m, waiter serveur m, waitress serveuse f,
        nurse infirmière f, actress actrice f, princess princesse f, lady dame f, painter peintre m,
        judge juge m, lawyer avocat m, cook cuisinier m, thief/thieves voleur m, tourist touriste m,
        gardener jardinier m, soldier soldat m, musician musicien m, driver chauffeur m, witch sorcière f,
        hero/heroes héros m, writer écrivain m, sailor marin m, engineer ingénieur m, dancer danseuse f,
        singer chanteuse f""",
    "person kin": """brother frère m, sister sœur f, mother mère f, father père m, uncle oncle m,
        aunt tante f, friend ami m, neighbour voisin m, cousin cousin m,
        grandmother grand-mère/grands-mères f""",
    "animal": """cat chat m, dog chien m, bird oiseau m, horse cheval m, cow vache f, mouse/mice souris f,
        rabbit lapin m, fox renard m, wolf/wolves loup m, bear ours m, goat chèvre f, hen poule f,
        duck canard m, goose/geese oie f, frog grenouille f, turtle tortue f, squirrel écureuil m,
        donkey âne m, monkey singe m, owl hibou/hiboux m, elephant éléphant m, lioness lionne f""",
    "drink": "water eau f, milk lait m, coffee café m, tea thé m, juice jus m, soup soupe f, beer bière f",
    "meal": "bread pain m, cheese fromage m, meat viande f, rice riz m, butter beurre m, jam confiture f",
    "fruit own": """apple pomme f, pear poire f, cake gâteau m, egg œuf m, carrot carotte f,
        tomato/tomatoes tomate f, orange orange f, cherry cerise f, strawberry fraise f, tart tarte f,
        melon melon m, apricot abricot m""",
    "text own": """book livre m, letter lettre f, newspaper journal m, poem poème m, story histoire f,
        novel roman m, message message m, article article m""",
    "thing own": """knife/knives couteau m, cup tasse f, plate assiette f, key clé f, lamp lampe f, watch montre f,
        umbrella parapluie m, ball ballon m, bicycle vélo m, toy jouet m, clock horloge f, painting tableau m,
        ring bague f, mirror miroir m, guitar guitare f, bottle bouteille f, tool outil m""",
    "thing furniture own": "table table f, chair chaise f, bed lit m, bench banc m, desk bureau m",
    "thing container own": "box boîte f, basket panier m, bag sac m, suitcase valise f, drawer tiroir m",
    "clothes own": """hat chapeau m, coat manteau m, shirt chemise f, dress robe f, scarf/scarves écharpe f,
        skirt jupe f, shoe chaussure f, jacket veste f""",
    "vehicle own": "car voiture f, boat bateau m, truck camion m, plane avion m",
    "opening": "door porte f, window fenêtre f",
    "building sight own": "house maison f, castle château m, farm ferme f",
    "building sight": "church église f, museum musée m",
    "building venue": "school école f, hospital hôpital m, hotel hôtel m, restaurant restaurant m, library bibliothèque f",
    "building": "shop magasin m, bakery boulangerie f, theatre théâtre m",
    "venue": "market marché m, station gare f",
    "area": "park parc m, forest forêt f, street rue f, field champ m, kitchen cuisine f, room chambre f",
    "area own": "garden jardin m",
    "area sight": "village village m, town ville f",
    "spot": "river rivière f, lake lac m, bridge pont m, tree arbre m, wall mur m, fountain fontaine f",
}

# classes of single nouns, beside those of their group
EXTRA_CLASSES = {
    "kid": {"boy", "girl", "child"},
    "job": set("teacher doctor baker waiter waitress nurse cook gardener driver neighbour friend".split()),
    "bird": {"bird"},
    "breakable": set("cup plate lamp toy clock mirror guitar bottle bicycle chair watch umbrella".split()),
    "built": {"house", "castle", "boat", "bridge", "wall", "school", "church"},
}

# english french[/feminine[/before a vowel]], …
ADJECTIVES_BEFORE = {
    "animal fruit text thing clothes vehicle opening building area spot": "big grand",
    "animal kid fruit text thing clothes vehicle opening building area spot": "small petit",
    "person animal text thing clothes vehicle opening building area spot": "old vieux/vieille/vieil",
    "person animal text thing clothes vehicle building area spot": "beautiful beau/belle/bel",
    "person animal": "young jeune",
    "person drink meal fruit text": "good bon/bonne, bad mauvais",
    "job text thing clothes vehicle building": "new nouveau/nouvelle/nouvel",
    "thing clothes building area": "pretty joli",
    "text": "long long/longue",
}
ADJECTIVES_AFTER = {
    "animal thing clothes vehicle": "black noir, white blanc/blanche, grey gris",
    "fruit clothes vehicle thing opening": "red rouge, green vert",
    "clothes vehicle thing opening": "blue bleu, yellow jaune",
    "drink meal": "hot chaud, cold froid",
    "drink meal fruit": "delicious délicieux",
    "drink fruit": "sweet sucré",
    "meal fruit": "fresh frais/fraîche",
    "person animal": """tired fatigué, happy heureux, sad triste, intelligent intelligent, strong fort,
        brave courageux, ill malade, lazy paresseux, curious curieux, dangerous dangereux, calm calme""",
    "person": """rich riche, famous célèbre, honest honnête, shy timide, proud fier, polite poli,
        elegant élégant, jealous jaloux/jalouse""",
    "person text": "french français, english anglais, italian italien, spanish espagnol",
    "text": "interesting intéressant, difficult difficile, boring ennuyeux, useful utile",
    "text person": "funny drôle",
    "thing clothes": "light léger",
    "thing": "heavy lourd, useful utile",
    "thing clothes vehicle building area": "dirty sale, clean propre",
    "thing clothes text": "precious précieux",
    "thing clothes vehicle": "expensive cher",
    "container": "empty vide, full plein",
    "vehicle building": "modern moderne, comfortable confortable",
    "animal area spot building": "strange étrange",
    "area": "quiet tranquille",
    "animal": "wild sauvage",
    "spot": "deep profond",
}

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
            "two three four five six seven eight nine ten".split(),
            "deux trois quatre cinq six sept huit neuf dix".split(),
            strict=True,
        )
    },
}
NUMBERS = tuple("two three four five six seven eight nine ten".split())
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

HELD_PAIRS = frozenset(
    (adjective, noun)
    for noun, adjectives in (
        entry.split(": ")
        for entry in (
            "dog: white young; horse: black old; cow: calm; rabbit: grey; man: young happy; woman: elegant; "
            "teacher: old; queen: rich; doctor: good; girl: sad; friend: new; coffee: hot; milk: cold; soup: good; "
            "bread: fresh; apple: red small; cake: delicious; book: old; letter: long; story: funny; knife: big; "
            "key: small; table: black; box: heavy; hat: yellow; shirt: blue; dress: red; car: new; boat: white; "
            "door: green; house: beautiful; castle: old; garden: quiet; forest: strange; tree: big; river: deep"
        ).split("; ")
    )
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
