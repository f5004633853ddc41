"""What a request asks for beside its prompt: stop strings, the text before them, biases, and a least length."""

import math

import pytest
import torch

from attn_core.decode import Sampler, generate
from attn_core.serving import Engine, PromptLookup, Request
from tests.serving.models import Guesses, shared_model, small_model

OTHER = small_model(0, num_layers=1)


class Beside(PromptLookup):
    """A chain that has a wrong guess beside its first token, so that its tokens are deeper than they look."""

    def propose(self, tokens, limit):
        return [(0, 5), (0, 4), (2, 4), (3, 4), (4, 4)][:limit]


def served(requests, **options):
    engine = Engine(shared_model(), num_blocks=40, block_size=4, **options)
    completions = [engine.add(request) for request in requests]
    engine.run()
    return completions


def chunks(ids):
    """Three letters for each token, so that strings begin and end within tokens."""
    return "".join(chr(97 + token) + "<>" for token in ids)


@pytest.mark.parametrize("begin", [12, 13, 14])
@pytest.mark.parametrize("length", [1, 2, 5, 7])
@pytest.mark.parametrize("drafter", [None, PromptLookup(3)])
def test_text_and_stream_end_before_the_stop_string(begin, length, drafter):
    free = served([Request([3, 5], 12, stop_ids=())])[0].ids
    text = chunks(free)
    string = text[begin : begin + length]
    request = Request([3, 5], 12, stop_ids=(), stop_strings=["<>!", string])
    engine = Engine(shared_model(), num_blocks=9, decode=chunks, drafter=drafter)
    completion = engine.add(request)
    engine.run()
    first = text.index(string)
    assert completion.text == text[:first] and completion.finish_reason == "stop"
    assert completion.ids == free[: -(-(first + length) // 3)]
    assert list(engine.stream(request)) == free[: first // 3]
    unstopped = Request([3, 5], 12, stop_ids=(), stop_strings=[string + "!"])
    assert list(engine.stream(unstopped)) == free, "what was held back comes when the text is at its end"


@pytest.mark.parametrize("sampler", [None, Sampler()])
@pytest.mark.parametrize(
    "drafter", [None, PromptLookup(3), Guesses(3, model=OTHER), Beside(5)], ids=lambda drafter: type(drafter).__name__
)
def test_biases_and_a_least_number_of_tokens_hold_for_every_way_to_choose(sampler, drafter):
    bias = {token: -math.inf if token % 2 else 30.0 for token in range(5)}
    for seed in range(3):
        own = {"sampler": sampler, "seed": None if sampler is None else seed}
        request = Request([3, 5], 10, **own, stop_ids=(4, 2, 99), min_tokens=4, logit_bias=bias)
        (completion,) = served([request], drafter=drafter)
        assert completion.ids == [0] * 4 + completion.ids[4:], "0, 2 and 4 are the likeliest, and 2 and 4 are ends"
        forced = {**bias, 0: -math.inf, 2: 60.0}
        request = Request([3, 5], 10, **own, min_tokens=4, logit_bias=forced, stop_ids=(2,))
        (completion,) = served([request], drafter=drafter)
        assert completion.ids == [4] * 4 and completion.finish_reason == "stop"


def test_greedy_tokens_with_a_bias_are_those_of_the_biased_logits():
    bias = {3: 2.5, 8: -1.5}

    def biased(logits):
        logits[:, list(bias)] += torch.tensor(list(bias.values()))
        return logits.argmax(-1)

    (found,) = generate(shared_model(), [[3, 5]], max_new_tokens=9, pick=biased, end_ids=())
    for drafter in (None, Guesses(2, model=shared_model())):
        assert served([Request([3, 5], 9, stop_ids=(), logit_bias=bias)], drafter=drafter)[0].ids == found.ids


def test_a_stop_string_counts_from_the_least_number_of_tokens_on():
    free = served([Request([3, 5], 12, stop_ids=())])[0].ids
    engine = Engine(shared_model(), num_blocks=9, decode=chunks)
    early, late = chunks(free)[3:9], chunks(free)[10:17]
    for least, stop, tokens in ((3, early, 3), (4, early, 12), (4, late, 6)):
        completion = engine.add(Request([3, 5], 12, stop_ids=(), stop_strings=[stop], min_tokens=least))
        engine.run()
        assert len(completion.ids) == tokens
