"""The bound on the entropy of the stories, for the recorded run of scaling."""

import math

from attn_book.corpus import paragraph_corpus
from attn_book.corpus.grammar import stream
from attn_book.corpus.paragraphs import _tell
from recorded import scaling_law


def test_choices_draw_what_the_corpus_drew():
    plain, watched = stream("paragraphs test", 0), scaling_law.Choices(stream("paragraphs test", 0))
    for _ in range(30):
        watched.begin()
        assert _tell(watched) == _tell(plain)


def test_the_bound_lies_between_a_coin_and_single_words():
    stories = paragraph_corpus(train=0, valid=0, test=200).test
    bound = scaling_law.entropy_bound(stories)
    words = [word for story in stories for word in (*story.source, "<eos>")]
    counts = {word: words.count(word) for word in set(words)}
    single = -sum(n / len(words) * math.log(n / len(words)) for n in counts.values())
    assert math.log(2) < bound < single / 2
