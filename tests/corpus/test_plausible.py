from attn_book.corpus import paragraph_corpus, plausible_sentences

CORPUS = paragraph_corpus(train=600, valid=0, test=600)
EXAMPLES = plausible_sentences(CORPUS.test, without=CORPUS.train)
TWINS = list(zip(EXAMPLES[::2], EXAMPLES[1::2], strict=True))


def sentences(paragraphs):
    return {pair.source for paragraph in paragraphs for pair in paragraph.sentences}


def test_twins_have_the_same_words_and_opposite_answers():
    assert len(TWINS) > 100
    for one, other in TWINS:
        assert sorted(one.words) == sorted(other.words)
        assert one.plausible is not other.plausible
    first = sum(one.plausible for one, _ in TWINS)
    assert 0.35 < first / len(TWINS) < 0.65


def test_the_true_ones_are_the_paragraphs_and_the_false_ones_nobodys():
    told, kept = sentences(CORPUS.test), sentences(CORPUS.train)
    true = [e.words for e in EXAMPLES if e.plausible]
    assert len(set(true)) == len(true)
    assert set(true) <= told - kept
    assert not {e.words for e in EXAMPLES if not e.plausible} & (told | kept)
    assert plausible_sentences(CORPUS.test, without=CORPUS.test) == ()
    assert plausible_sentences(CORPUS.test * 2, without=CORPUS.train) == EXAMPLES
