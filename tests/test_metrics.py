import math

import pytest

from attn_book.metrics import bleu, exact_match


def test_bleu_of_itself_and_of_a_worked_case():
    sentence = "le chat noir dort sur le lit".split()
    assert bleu([sentence], [sentence]) == pytest.approx(100)
    # Precisions 6/7, 4/6, 2/5, 1/4 of n-grams of 1 to 4 words; equal lengths, so no brevity penalty.
    found = "le chat blanc dort sur le lit".split()
    expected = 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25
    assert bleu([found], [sentence]) == pytest.approx(expected)


def test_bleu_counts_over_the_corpus_and_punishes_what_is_short():
    long, other = "a b c d e f g h".split(), "p q r s".split()
    # Every n-gram of the first sentence is right, none of the second: 8 of 12 words, 7 of 10 pairs, …
    precisions = 8 / 12 * 7 / 10 * 6 / 8 * 5 / 6
    assert bleu([long, "w x y z".split()], [long, other]) == pytest.approx(100 * precisions**0.25)
    # All that is said is right, but 6 words stand for 8: the penalty is exp(1 - 8 / 6), and none for what is long.
    assert bleu([long[:6]], [long]) == pytest.approx(100 * math.exp(1 - 8 / 6))
    assert bleu([long], [long[:6]]) == pytest.approx(100 * (6 / 8 * 5 / 7 * 4 / 6 * 3 / 5) ** 0.25)


def test_bleu_takes_our_tokens_as_they_are():
    # One token of five is wrong; a tokeniser that splits at the slash would find more in common.
    found, wanted = "a/b c d e f".split(), "a/z c d e f".split()
    assert bleu([found], [wanted]) == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_exact_match_counts_whole_sentences():
    assert exact_match([["a", "b"], ["c"]], [("a", "b"), ("d",)]) == 0.5
    assert exact_match([["a"]], [["a", "b"]]) == 0.0
