"""The verbs of the grammar, as a table, and the few that follow no rule."""

from __future__ import annotations

from dataclasses import dataclass

from attn_book.corpus.morphology import PERSONS, conjugate, english_ed, english_s


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb: `present` in French has the five forms of `morphology.PERSONS`."""

    english: str
    third: str
    past: str
    particle: str
    infinitive: str
    participle: str
    present: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


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


TRANSITIVE = _verbs(TRANSITIVE_TABLE)
INTRANSITIVE = _verbs(INTRANSITIVE_TABLE)
GIVING = _verbs(GIVING_TABLE)
SAYING = _verbs(SAYING_TABLE)
BE = Verb("be", "is", "was", "", "être", "été", ("suis", "est", "sommes", "êtes", "sont"))
HAVE = ("ai", "a", "avons", "avez", "ont")
GO = ("vais", "va", "allons", "allez", "vont")
WAS = ("étais", "était", "étions", "étiez", "étaient")
HAD = ("avais", "avait", "avions", "aviez", "avaient")
IDIOMS = {"hungry": "faim", "thirsty": "soif", "sleepy": "sommeil", "afraid": "peur"}
"""What one is in English and has in French: he is hungry, il a faim."""
