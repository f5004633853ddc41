import pytest
import torch

from attn_book.alignment import alignment_error, diagonal_guess, true_sources


def test_alignment_error_counts_words_with_a_true_link():
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]])
    # Word 0 right, word 1 wrong, word 2 right by its second link, row 3 (<eos>) has no link.
    links = frozenset({(0, 0), (0, 1), (1, 2), (2, 2)})
    assert alignment_error([weights], [links]) == pytest.approx(1 / 3)
    # Words are counted over the corpus, not averaged over sentences.
    assert alignment_error([weights, weights[:1]], [links, frozenset({(1, 0)})]) == pytest.approx(2 / 4)


def test_alignment_error_is_not_shifted():
    late = torch.eye(4).roll(1, dims=0)
    links = [frozenset((i, i) for i in range(4))]
    assert alignment_error([late], links) == 1.0
    assert alignment_error([torch.eye(4)], links) == 0.0


def test_true_sources_gathers_links_by_target():
    assert true_sources({(0, 0), (2, 1), (1, 1)}) == {0: {0}, 1: {1, 2}}
    assert true_sources(()) == {}


def test_diagonal_guess():
    assert diagonal_guess(3, 5).argmax(1).tolist() == [0, 0, 1, 2, 2]
    assert diagonal_guess(5, 3).argmax(1).tolist() == [0, 2, 4]
    assert diagonal_guess(4, 1).argmax(1).tolist() == [0]
