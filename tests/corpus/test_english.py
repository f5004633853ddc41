"""English sentences: what each kind promises."""

from attn_book.corpus.english import REFERENTS, SUBJECTS


def test_the_pronoun_comes_after_both_nouns():
    for one in REFERENTS:
        words = one.start.split()
        places = [words.index(word) for word in (*one.nouns, "it")]
        assert places == sorted(places) and one.start.endswith("it was too") and len(set(one.reasons)) == 2


def test_attractors_come_between_subject_and_verb():
    assert SUBJECTS[0].start(1, 0) == "The keys to the cabinet"
    assert all(len({*one.head, *one.attractor}) == 4 for one in SUBJECTS)
