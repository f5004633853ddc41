"""A step either happens or does not: an interrupt at every line of the engine, and errors of one request alone."""

import itertools
import sys
from dataclasses import dataclass

import pytest
import torch

from attn_core.cache import StreamingWindow
from attn_core.decode import Sampler
from attn_core.serving import Engine, PromptLookup, Request
from tests.serving.models import Guesses, Trees, plain, shared_model, small_model

OTHER = small_model(0, num_layers=1)
PARTS = ("/attn_core/serving/", "/attn_core/cache/block_tables", "/attn_core/evaluation")
GOOD = Request([3, 5, 7], 9)
SETTINGS = {
    "plain": {"num_blocks": 6},
    "trees": {"num_blocks": 6, "drafter": Trees(2, model=shared_model())},
    "guesses, window": {"num_blocks": 9, "drafter": Guesses(2, model=OTHER), "window": StreamingWindow(4, 1)},
}


def letters(ids):
    return "".join(chr(97 + token) for token in ids)


def tracer(during):
    """For ``sys.settrace``: ``during`` sees every line of the engine that is run, and may raise."""

    def trace(frame, event, _):
        if not any(part in frame.f_code.co_filename for part in PARTS):
            return None
        if event == "line":
            during((frame.f_code.co_filename, frame.f_lineno))
        return trace

    return trace


def served(settings, during):
    """Requests of each kind, served to the end, with each line given to ``during``."""
    torch.manual_seed(7)
    engine = Engine(shared_model(), **{"block_size": 2, "token_budget": 7, "decode": letters} | settings)
    requests = [
        Request([3, 4, 5, 6], 5, stop_ids=()),
        Request([3, 4, 7], 4, Sampler(), seed=1, stop_ids=()),
        Request([3, 4, 5, 6, 8], 3, stop_ids=(), stop_strings=["zz"]),
        Request([9], 3, Sampler(), stop_ids=()),  # draws from the global generator
    ]
    completions = [engine.add(request) for request in requests]
    before, interrupts = sys.gettrace(), 0
    while True:
        sys.settrace(tracer(during))
        try:
            engine.run()
            break
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(before)
    assert engine.tables.free_blocks == settings["num_blocks"] and not engine.tables.sequences
    found = [(one.ids, one.text, one.finish_reason) for one in completions], engine.drafted, engine.accepted
    return found, engine, interrupts


@pytest.mark.parametrize("name", SETTINGS)
def test_whatever_line_is_interrupted_the_same_tokens_come(name):
    lines, where = [], {}
    expected, engine, _ = served(SETTINGS[name], lines.append)
    assert name != "plain" or (engine.scheduler.preemptions and engine.scheduler.reused)
    for place, line in enumerate(lines):
        where.setdefault(line, []).append(place)
    turn = list(SETTINGS).index(name)
    for index, places in enumerate(list(where.values())[2 * turn :: 6]):  # one of the times that the line is run
        place, count = places[index * 7 % len(places)], itertools.count()

        def interrupt(_, place=place, count=count):
            if next(count) in (place, place + 5 + place % 40):  # and again, perhaps while the first is taken back
                raise KeyboardInterrupt

        found, _, interrupts = served(SETTINGS[name], interrupt)
        assert interrupts and found == expected, lines[place]


CALLS = {
    "add": lambda engine, running, stream: engine.add(Request([8], 2)),
    "cancel": lambda engine, running, stream: engine.cancel(running),
    "stream": lambda engine, running, stream: engine.stream(Request([8], 2)),
    "close": lambda engine, running, stream: stream.close(),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_interrupted_call_leaves_no_block_and_the_others_as_they_were(call):
    for place in itertools.count():
        engine, count = Engine(shared_model(), num_blocks=12, block_size=2), itertools.count()
        good, running = engine.add(Request([3, 5, 7], 3)), engine.add(Request([4, 4], 3, stop_ids=()))
        stream = engine.stream(Request([6], 3, stop_ids=()))
        engine.step()

        def interrupt(_, place=place, count=count):
            if next(count) == place:
                raise KeyboardInterrupt

        before, kept = sys.gettrace(), None
        sys.settrace(tracer(interrupt))
        try:
            kept = CALLS[call](engine, running, stream)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        engine.run()
        assert good.ids == plain((3, 5, 7), 3)[0]
        assert len(running.ids) == (1 if running.finish_reason == "cancelled" else 3)
        assert engine.tables.free_blocks == 12
        if next(count) <= place:  # the call came to its end
            break
    assert place > 10 and (call != "stream" or kept is not None)


def test_a_stream_that_is_closed_before_its_first_token_cancels_the_request():
    engine = Engine(shared_model(), num_blocks=9)
    engine.stream(GOOD).close()
    assert engine.unfinished == 0
    engine.stream(GOOD)  # and one that nobody keeps
    assert engine.unfinished == 0
    assert list(engine.stream(GOOD)) == list(plain(GOOD.prompt, 9)[0])


class Failing(PromptLookup):
    def propose(self, tokens, limit):
        if tokens[0] == 4:
            raise KeyError("no draft")
        return super().propose(tokens, limit)


@dataclass(frozen=True)
class Senseless(PromptLookup):
    drafts: tuple = ((0, 99),)

    def propose(self, tokens, limit):
        return self.drafts if tokens[0] == 4 else super().propose(tokens, limit)


class FailingSampler(Sampler):
    def __call__(self, logits):
        raise KeyError("no draw")


@pytest.mark.parametrize(
    ("options", "bad", "message"),
    [
        ({"decode": lambda ids: None}, Request([4], 9, stop_strings=["a"]), "decode: expected .* text, got NoneType"),
        ({"decode": lambda ids: {}[0]}, Request([4], 9, stop_strings=["a"]), "0"),
        ({"drafter": Failing()}, Request([4], 9, stop_ids=()), "no draft"),
        ({"drafter": Senseless()}, Request([4], 9, stop_ids=()), "drafts: expected token ids from 0 to 12, got 99"),
        ({"drafter": Senseless(drafts=(5,))}, Request([4], 9, stop_ids=()), "drafts: expected pairs"),
        ({"drafter": Senseless(drafts=((1, 5),))}, Request([4], 9, stop_ids=()), "drafts"),
        ({}, Request([4], 9, FailingSampler()), "no draw"),
    ],
)
def test_the_error_of_one_request_is_its_own(options, bad, message):
    engine = Engine(shared_model(), num_blocks=9, **options)
    good, failed = engine.add(GOOD), engine.add(bad)
    engine.run()
    assert good.ids == plain(GOOD.prompt, 9)[0]
    assert failed.finish_reason == "error" and engine.tables.free_blocks == 9
    with pytest.raises(type(failed.error), match=message):
        list(engine.stream(bad))
