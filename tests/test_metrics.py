import pytest

from attn_book.metrics import bleu, exact_match


def test_bleu_of_itself_and_of_a_worked_case():
    sentence = "le chat noir dort sur le lit".split()
    assert bleu([sentence], [sentence]) == pytest.approx(100)
    # Precisions 6/7, 4/6, 2/5, 1/4 of n-grams of 1 to 4 words; equal lengths, so no brevity penalty.
    found = "le chat blanc dort sur le lit".split()
    expected = 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25
    assert bleu([found], [sentence]) == pytest.approx(expected)


def test_bleu_is_of_the_corpus_and_keeps_our_tokens():
    assert bleu([["l'", "eau", "est", "là", "."]], [["l'", "eau", "est", "là", "."]]) == pytest.approx(100)
    long, short = ["a", "b", "c", "d", "e", "f"], ["x", "y", "z", "w"]
    mixed = bleu([long, short], [long, ["p", "q", "r", "s"]])
    assert 0 < mixed < 100
    assert mixed != pytest.approx(50)


def test_bleu_takes_our_tokens_as_they_are():
    # One token of five is wrong; a tokeniser that splits at the slash would find more in common.
    found, wanted = "a/b c d e f".split(), "a/z c d e f".split()
    assert bleu([found], [wanted]) == pytest.approx(100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25)


def test_exact_match_counts_whole_sentences():
    assert exact_match([["a", "b"], ["c"]], [("a", "b"), ("d",)]) == 0.5
    assert exact_match([["a"]], [["a", "b"]]) == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bleu([], []), "hypotheses: expected at least one sentence, got none"),
        (lambda: bleu([["a"]], []), "references: expected 1, one for each of hypotheses, got 0"),
        (lambda: exact_match([["a"]], [["a"], ["b"]]), "references: expected 1, .* got 2"),
        (lambda: bleu(["le chat"], [["le", "chat"]]), "hypotheses: expected .* got the string 'le chat'"),
        (lambda: exact_match([["ab"]], ["ab"]), "references: expected .* got the string 'ab'"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
