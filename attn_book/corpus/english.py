"""Ordinary English for models that were trained on English: sentences, and pairs that test one thing each.

All of it was written for this book. ``SENTENCES`` are unrelated sentences. ``REFERENTS`` are sentences in which the
last word decides which of two nouns "it" is. ``SUBJECTS`` begin sentences whose verb has to agree with a noun some
words away.
"""

from typing import NamedTuple

SENTENCES = (
    "The black cat does not drink the hot soup.",
    "My neighbour painted her old garden fence last summer, and now it looks almost new.",
    "When the rain stopped, the children ran outside and jumped into every puddle on the street.",
    "Nobody knew why the old clock in the town hall had started to run backwards.",
    "She opened the letter slowly, read it twice, and put it back into the drawer without a word.",
    "Bread rises because yeast turns sugar into gas, which is trapped in the dough.",
    "The last train to the coast leaves at ten, so we should not stay too long.",
    "A small boat with a torn sail was drifting towards the rocks near the lighthouse.",
    "If you water the plant every day, its roots will rot and its leaves will turn yellow.",
    "The teacher drew a large circle on the board and asked the class to find its area.",
    "Our team lost the first match but won the next four, which nobody had expected.",
    "He keeps his tools in a wooden box that his grandfather made many years ago.",
    "The museum is closed on Mondays, but the garden behind it is open all week.",
    "After the storm, several trees lay across the road and the village had no electricity.",
    "The doctor told him to sleep more, to drink less coffee and to walk every morning.",
    "In winter the lake freezes, and people from the whole valley come to skate on it.",
    "The company sold its oldest factory in order to pay for a new research building.",
    "They had forgotten the key, so they climbed through the kitchen window.",
    "The moon is much smaller than the earth, but it looks as large as the sun.",
    "The cook tasted the sauce, added a little salt, tasted it again and smiled.",
    "Most birds build a new nest each spring, although some return to an old one.",
    "The judge asked the witness to speak louder and to answer only the question.",
    "On the way home she bought two apples, a loaf of bread and a newspaper.",
    "The bridge was built in four years, but it took ten years to plan it.",
    "He wrote a short program that sorts the names in a list by their length.",
    "The baby fell asleep in the car and did not wake up until the next morning.",
    "Glass is made of sand that has been melted at a very high temperature.",
    "The audience laughed at the wrong moment, and the actor forgot his next line.",
    "You can borrow my bicycle, but please bring it back before the shops close.",
    "The map showed a path through the forest, but we could not find it.",
    "Her brother works as a nurse in a hospital at the other end of the city.",
    "The price of wheat rose sharply because the harvest had been poor in many countries.",
    "The dog waited at the door until it heard the familiar steps on the stairs.",
    "A triangle with three equal sides also has three equal angles.",
    "The new law says that every house must have a smoke alarm on each floor.",
    "We sat around the fire, told old stories and watched the stars come out.",
    "The printer has no paper left, and the shop that sells it is closed today.",
    "Some of the letters were never sent, because the war began a week later.",
    "The farmer moved his sheep to the upper field, where the grass was still green.",
    "It is easier to learn a song than to remember a poem of the same length.",
)


class Referent(NamedTuple):
    """Two nouns and two reasons; with the first reason "it" is the first noun, with the second it is the second.

    ``start`` goes up to the word "too". Its nouns are ``nouns``, in this order.
    """

    start: str
    nouns: tuple[str, str]
    reasons: tuple[str, str]


def _referent(first: str, verb: str, second: str, *reasons: str) -> Referent:
    return Referent(f"The {first} {verb} the {second} because it was too", (first, second), (reasons[0], reasons[1]))


REFERENTS = (
    _referent("animal", "didn't cross", "street", "tired", "wide"),
    _referent("truck", "didn't cross", "bridge", "heavy", "weak"),
    _referent("ball", "didn't go through", "window", "big", "small"),
    _referent("horse", "didn't jump over", "fence", "tired", "high"),
    _referent("robot", "couldn't lift", "box", "weak", "heavy"),
    _referent("sofa", "didn't fit into", "room", "wide", "narrow"),
    _referent("bird", "didn't eat", "seed", "full", "hard"),
    _referent("car", "couldn't climb", "hill", "slow", "steep"),
    _referent("cat", "didn't catch", "mouse", "slow", "quick"),
    _referent("knife", "couldn't cut", "bread", "blunt", "hard"),
    _referent("ship", "couldn't enter", "harbour", "large", "shallow"),
    _referent("bear", "couldn't enter", "cave", "fat", "narrow"),
    _referent("wolf", "didn't eat", "apple", "proud", "sour"),
    _referent("rope", "didn't reach", "boat", "short", "distant"),
    _referent("cow", "didn't drink", "water", "sick", "dirty"),
    _referent("hammer", "didn't break", "stone", "light", "hard"),
    _referent("letter", "didn't fit into", "envelope", "long", "small"),
    _referent("phone", "didn't fit into", "pocket", "large", "small"),
    _referent("dog", "didn't chew", "bone", "sleepy", "hard"),
    _referent("plane", "couldn't land on", "field", "heavy", "muddy"),
    _referent("goat", "didn't climb", "rock", "tired", "slippery"),
    _referent("frog", "didn't reach", "shore", "weak", "distant"),
    _referent("lion", "didn't chase", "deer", "lazy", "fast"),
    _referent("piano", "didn't fit through", "door", "broad", "narrow"),
    _referent("snake", "didn't climb", "wall", "lazy", "smooth"),
    _referent("bus", "didn't enter", "tunnel", "tall", "low"),
)


class Subject(NamedTuple):
    """A noun in singular and plural, and an attractor in singular and plural, with what comes between the two."""

    head: tuple[str, str]
    between: str
    attractor: tuple[str, str]

    def start(self, number: int, attractor: int) -> str:
        """The beginning of a sentence whose verb comes next; numbers are 0 (singular) and 1 (plural)."""
        return f"The {self.head[number]} {self.between} the {self.attractor[attractor]}"


def _subject(head: str, between: str, attractor: str) -> Subject:
    return Subject((head, f"{head}s"), between, (attractor, f"{attractor}s"))


SUBJECTS = (
    _subject("key", "to", "cabinet"),
    _subject("picture", "of", "teacher"),
    _subject("road", "to", "village"),
    _subject("letter", "from", "friend"),
    _subject("book", "about", "king"),
    _subject("door", "of", "room"),
    _subject("leader", "of", "group"),
    _subject("label", "on", "bottle"),
    _subject("dog", "behind", "gate"),
    _subject("report", "about", "accident"),
    _subject("wheel", "of", "car"),
    _subject("guard", "of", "prisoner"),
    _subject("song", "about", "river"),
    _subject("owner", "of", "shop"),
    _subject("light", "above", "table"),
    _subject("cover", "of", "notebook"),
    _subject("friend", "of", "doctor"),
    _subject("bird", "on", "branch")._replace(attractor=("branch", "branches")),
    _subject("bill", "for", "repair"),
    _subject("map", "of", "island"),
    _subject("boat", "beside", "rock"),
    _subject("answer", "to", "question"),
)
