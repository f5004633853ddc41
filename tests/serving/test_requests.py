"""What a request asks for beside its prompt: stop strings, the text before them, biases, and a least length."""

import pytest

from attn_core.serving import Engine, PromptLookup, Request
from tests.serving.models import shared_model, small_model

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
