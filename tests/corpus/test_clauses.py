"""What the grammar writes, case by case: the French, and for each French word the English words it comes from."""

import pytest

from attn_book.corpus import NOUNS
from attn_book.corpus.clauses import write
from attn_book.corpus.lexicon import ADJECTIVES, BE, GIVING, INTRANSITIVE, SAYING, TRANSITIVE
from attn_book.corpus.trees import Clause, Joined, NounPhrase, Place, Pronoun, Relative, Sentence, Several

VERB = {verb.english: verb for verb in (*SAYING, *INTRANSITIVE, *GIVING, *TRANSITIVE)}


def np(words, *, plural=False, **rest):
    """A noun phrase from "the small black cat"; the noun in the singular."""
    determiner, *adjectives, noun = words.split()
    described = tuple(ADJECTIVES[word] for word in adjectives)
    return NounPhrase(determiner, NOUNS[noun], plural, described, **rest)


def say(subject, verb, object=None, **rest):
    """A clause; subjects and objects may be given as words."""
    subject, object = (np(x) if isinstance(x, str) else x for x in (subject, object))
    return Clause(subject, VERB[verb] if isinstance(verb, str) else verb, object, **rest)


def ask(*arguments, **rest):
    return Sentence(say(*arguments, **rest), question=True)


HE, SHE, THEY, ME, WE = (Pronoun(word) for word in ("he", "she", "they", "i", "we"))

# Tree; English; French, each word with the positions of the English words it comes from
# fmt: off
CASES = [
    (say("the black cat", "drink", "the hot soup", negation="not"),
     "the black cat does not drink the hot soup .", "le/0 chat/2 noir/1 ne/4 boit/5 pas/4 la/6 soupe/8 chaude/7 ./9"),
    (say("the small black cat", "sleep"),
     "the small black cat sleeps .", "le/0 petit/1 chat/3 noir/2 dort/4 ./5"),
    (say("a beautiful bird", "sing"),
     "a beautiful bird sings .", "un/0 bel/1 oiseau/2 chante/3 ./4"),
    (say("this old man", "see", "a new umbrella"),
     "this old man sees a new umbrella .", "ce/0 vieil/1 homme/2 voit/3 un/4 nouveau/5 parapluie/6 ./7"),
    (say("this child", "eat", "this egg"),
     "this child eats this egg .", "cet/0 enfant/1 mange/2 cet/3 œuf/4 ./5"),
    (say("my sister", "love", np("my friend")),
     "my sister loves my friend .", "ma/0 sœur/1 aime/2 mon/3 ami/4 ./5"),
    (say(HE, "see", SHE),
     "he sees her .", "il/0 la/2 voit/1 ./3"),
    (say(HE, "see", HE, negation="not"),
     "he does not see him .", "il/0 ne/2 le/4 voit/3 pas/2 ./5"),
    (say(WE, "eat", np("some bread")),
     "we eat some bread .", "nous/0 mangeons/1 du/2 pain/3 ./4"),
    (say(SHE, "drink", np("some water"), negation="not"),
     "she does not drink any water .", "elle/0 ne/2 boit/3 pas/2 d'/4 eau/5 ./6"),
    (say(THEY, "find", np("some big key", plural=True)),
     "they find some big keys .", "ils/0 trouvent/1 de/2 grandes/3 clés/4 ./5"),
    (say(HE, "find", np("a orange"), negation="never"),
     "he never finds an orange .", "il/0 ne/1 trouve/2 jamais/1 d'/3 orange/4 ./5"),
    (say("the boy", "look", HE),
     "the boy looks for him .", "le/0 garçon/1 le/4 cherche/2,3 ./5"),
    (say("the boy", "listen", "the singer", tense="past"),
     "the boy listened to the singer .", "le/0 garçon/1 a/2 écouté/2,3 la/4 chanteuse/5 ./6"),
    (say("the lady", "buy", np("many orange", plural=True)),
     "the lady buys many oranges .", "la/0 dame/1 achète/2 beaucoup/3 d'/3 oranges/4 ./5"),
    (say("the cat", "drink", "the milk", tense="future"),
     "the cat is going to drink the milk .", "le/0 chat/1 va/2,3 boire/5 le/6 lait/7 ./8"),
    (say("the cat", "drink", "the soup", tense="past", negation="not"),
     "the cat did not drink the soup .", "le/0 chat/1 n'/3 a/2 pas/3 bu/4 la/5 soupe/6 ./7"),
    (say(HE, "see", Pronoun("they", "f"), tense="past", negation="never"),
     "he never saw them .", "il/0 ne/1 les/3 a/2 jamais/1 vues/2 ./4"),
    (say("the hero", "love", "the princess", adverb="often"),
     "the hero often loves the princess .", "le/0 héros/1 aime/3 souvent/2 la/4 princesse/5 ./6"),
    (ask("the cat", "see", "the dog"),
     "does the cat see the dog ?", "est-ce/0 que/0 le/1 chat/2 voit/3 le/4 chien/5 ?/6"),
    (ask(HE, "see", THEY, tense="past"),
     "did he see them ?", "est-ce/0 qu'/0 il/1 les/3 a/0 vus/2 ?/4"),
    (say("the window", BE, predicate=ADJECTIVES["clean"], negation="not"),
     "the window is not clean .", "la/0 fenêtre/1 n'/3 est/2 pas/3 propre/4 ./5"),
    (say("the woman", BE, predicate="hungry", tense="past"),
     "the woman was hungry .", "la/0 femme/1 avait/2 faim/3 ./4"),
    (say("the man", "sleep", place=Place("near", np("the bridge"))),
     "the man sleeps near the bridge .", "l'/0 homme/1 dort/2 près/3 du/3,4 pont/5 ./6"),
    (say("the man", "work", place=Place("at", np("the market"))),
     "the man works at the market .", "l'/0 homme/1 travaille/2 au/3,4 marché/5 ./6"),
    (say("the man", "wait", "the child", place=Place("in front of", np("the school"))),
     "the man waits for the child in front of the school .",
     "l'/0 homme/1 attend/2,3 l'/4 enfant/5 devant/6,7,8 l'/9 école/10 ./11"),
    (say("the girl", "give", "the letter", recipient=np("the king")),
     "the girl gives the letter to the king .", "la/0 fille/1 donne/2 la/3 lettre/4 au/5,6 roi/7 ./8"),
    (say("the girl", "give", "the letter", recipient=SHE, negation="not"),
     "the girl does not give the letter to her .", "la/0 fille/1 ne/3 lui/7,8 donne/4 pas/3 la/5 lettre/6 ./9"),
    (say("the girl", "send", "the letter", recipient=THEY, tense="past"),
     "the girl sent the letter to them .", "la/0 fille/1 leur/5,6 a/2 envoyé/2 la/3 lettre/4 ./7"),
    (say(np("the dog", relative=Relative(say(None, "see", "the cat"))), "sleep"),
     "the dog that sees the cat sleeps .", "le/0 chien/1 qui/2 voit/3 le/4 chat/5 dort/6 ./7"),
    (say(np("the man", relative=Relative(say(None, "eat", "a apple", negation="not"))), "laugh"),
     "the man who does not eat an apple laughs .", "l'/0 homme/1 qui/2 ne/4 mange/5 pas/4 de/6 pomme/7 rit/8 ./9"),
    (say(HE, "drink", np("the soup", relative=Relative(say(ME, "taste", tense="past"))), tense="past"),
     "he drank the soup that i tasted .", "il/0 a/1 bu/1 la/2 soupe/3 que/4 j'/5 ai/6 goûtée/6 ./7"),
    (say(np("the red car", owner=np("my uncle")), BE, predicate=ADJECTIVES["dirty"]),
     "my uncle 's red car is dirty .", "la/2 voiture/4 rouge/3 de/2 mon/0 oncle/1 est/5 sale/6 ./7"),
    (say(Several(np("the queen"), np("the princess")), BE, predicate=ADJECTIVES["happy"]),
     "the queen and the princess are happy .", "la/0 reine/1 et/2 la/3 princesse/4 sont/5 heureuses/6 ./7"),
    (Joined(say("the man", "buy", "the pear", tense="past"), "but",
            say(HE, "eat", Pronoun("it", "f"), tense="past", negation="not")),
     "the man bought the pear but he did not eat it .",
     "l'/0 homme/1 a/2 acheté/2 la/3 poire/4 mais/5 il/6 ne/8 l'/10 a/7 pas/8 mangée/9 ./11"),
    (Joined(say("the cat", "drink", "the soup", tense="past"), "because",
            say(Pronoun("it", "f"), BE, predicate=ADJECTIVES["hot"], tense="past")),
     "the cat drank the soup because it was hot .",
     "le/0 chat/1 a/2 bu/2 la/3 soupe/4 parce/5 qu'/5 elle/6 était/7 chaude/8 ./9"),
    (Sentence(say("the sailor", "sleep"), opening="today"),
     "today , the sailor sleeps .", "aujourd'hui/0 ,/1 le/2 marin/3 dort/4 ./5"),
]
# fmt: on


def spelled(pair):
    """The French words with their sources: "chat/2"."""
    return " ".join(
        word + "/" + ",".join(str(s) for s, t in sorted(pair.links) if t == j) for j, word in enumerate(pair.target)
    )


@pytest.mark.parametrize(("tree", "english", "french"), CASES, ids=[case[1] for case in CASES])
def test_sentence(tree, english, french):
    pair = write(tree if isinstance(tree, Sentence) else Sentence(tree))
    assert " ".join(pair.source) == english
    assert spelled(pair) == french


def test_a_question_of_two_clauses_is_refused():
    two = Joined(say("the cat", "sleep"), "and", say("the dog", "sleep"))
    with pytest.raises(ValueError, match="single clause"):
        write(Sentence(two, question=True))


def test_a_with_a_plural_is_refused():
    with pytest.raises(ValueError, match="determiner"):
        write(Sentence(say(np("a cat", plural=True), "sleep")))
