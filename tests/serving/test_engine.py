"""The engine against the plain loop, over random schedules, and what may go wrong beside a healthy request."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_core.cache import PackedKVCache, StreamingWindow, cascade_attention, packed
from attn_core.decode import Sampler
from attn_core.mechanisms.dense import Dense
from attn_core.mechanisms.window import SlidingWindow
from attn_core.positions import ALiBi, Learned
from attn_core.serving import Engine, PromptLookup, Request
from attn_core.transformer import LanguageModel, TransformerConfig
from tests.serving.models import VOCAB, Guesses, Trees, plain, shared_model, small_model


def served(requests, **options):
    engine = Engine(shared_model(), **{"num_blocks": 40, "block_size": 4, **options})
    completions = [engine.add(request) for request in requests]
    engine.run()
    assert engine.tables.free_blocks == engine.tables.num_blocks
    return completions


def expect_plain(completion, window=None):
    ids, stopped = plain(completion.request.prompt, completion.request.max_new_tokens, window=window)
    assert completion.ids == ids
    assert completion.finish_reason == ("stop" if stopped else "length")


@st.composite
def schedules(draw):
    """Sizes of an engine, and of each request its prompt, its tokens to come, its arrival and when it is cancelled."""
    block_size = draw(st.sampled_from([1, 2, 3, 4]))
    start = draw(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=6))  # several prompts may begin with it
    requests = []
    for _ in range(draw(st.integers(3, 6))):
        own = draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=4))
        prompt = tuple(start + own if draw(st.booleans()) else own)
        cancelled = draw(st.sampled_from([None] * 6 + [1, 4, 9]))
        requests.append((Request(prompt, draw(st.integers(6, 14))), draw(st.integers(0, 4)), cancelled))
    largest = max(len(request.prompt) + request.max_new_tokens - 1 for request, _, _ in requests)
    fewest = -(-largest // block_size)
    options = {
        "block_size": block_size,
        "num_blocks": fewest + draw(st.integers(0, 2)),  # the largest fits alone, several together often do not
        "token_budget": draw(st.sampled_from([12, 6, 4, 4])),
        "drafter": draw(st.sampled_from([None, PromptLookup(3, branches=2), RIGHT, NEAR, TREES])),
        "prefix_caching": draw(st.sampled_from([True, True, False])),
    }
    if draw(st.sampled_from([False, False, True])):
        window = StreamingWindow(draw(st.integers(1, 6)), draw(st.integers(0, 3)))
        most = window.most_blocks(options["token_budget"], block_size)
        options |= {"window": window, "num_blocks": most + draw(st.integers(0, 2))}
    return options, requests


RIGHT = Guesses(2, model=shared_model())
NEAR = Guesses(3, model=small_model(0, num_layers=1))  # with the first one's embedding: right now and then
TREES = Trees(3, model=shared_model())
preempted, chunked, reused, accepted, rejected, dropped = 0, 0, 0, 0, 0, 0


@given(schedules())
@settings(max_examples=70, deadline=None, derandomize=True, database=None)
def _random_schedules(schedule):
    global preempted, chunked, reused, accepted, rejected, dropped
    options, requests = schedule
    window = options.get("window")
    engine = Engine(shared_model(), **options)
    completions = {}
    for step in range(10_000):
        for i, (request, arrives, cancelled) in enumerate(requests):
            if arrives == step:
                completions[i] = engine.add(request)
            if cancelled == step and i in completions:
                engine.cancel(completions[i])
        if len(completions) == len(requests) and not engine.unfinished:
            break
        before = {i: list(completion.ids) for i, completion in completions.items()}
        new = engine.step()
        for i, completion in completions.items():
            assert completion.ids == before[i] + new.get(completion, [])
            if window is not None and completion.sequence >= 0:
                table = engine.tables.table(completion.sequence)
                dropped += table.count(-1)
                assert len(table) - table.count(-1) <= engine.scheduler.most_blocks
    for i, completion in completions.items():
        if completion.finish_reason == "cancelled":
            assert requests[i][2] is not None
            ids = plain(completion.request.prompt, completion.request.max_new_tokens, window=window)[0]
            assert completion.ids == ids[: len(completion.ids)]
        else:
            expect_plain(completion, window)
    assert engine.tables.free_blocks == options["num_blocks"] and not engine.tables.sequences
    preempted += engine.scheduler.preemptions
    reused += engine.scheduler.reused
    accepted += engine.accepted
    rejected += engine.drafted - engine.accepted
    chunked += any(len(request.prompt) > options["token_budget"] for request, _, _ in requests)


def test_greedy_tokens_are_those_of_the_plain_loop_under_every_schedule(monkeypatch):
    together = []
    monkeypatch.setattr(packed, "LEAST_SHARED", 1)
    monkeypatch.setattr(packed, "LEAST_SAVED", 1)
    monkeypatch.setattr(packed, "cascade_attention", lambda *a, **b: together.append(a) or cascade_attention(*a, **b))
    _random_schedules()
    assert len(together) > 8 and preempted > 8 and chunked > 3 and reused > 80, "schedules that force each of them"
    assert accepted > 80 and rejected > 80 and dropped > 80


def test_one_step_reads_prompts_and_decodes_within_its_budget(monkeypatch):
    engine = Engine(shared_model(), num_blocks=40, block_size=4, token_budget=6)
    batches = []
    for_layers = PackedKVCache.for_layers

    def counted(tables, pools, tokens, **options):
        batches.append([len(new) for new in tokens.values()])
        return for_layers(tables, pools, tokens, **options)

    monkeypatch.setattr(PackedKVCache, "for_layers", counted)
    engine.add(Request([3, 4], 9, stop_ids=()))
    engine.step()
    engine.add(Request([5] * 13, 2, stop_ids=()))
    engine.run()
    assert batches == [[2], [1, 5], [1, 5], [1, 3], [1, 1], *[[1]] * 4]


def test_the_request_that_came_last_is_preempted_and_loses_nothing():
    engine = Engine(shared_model(), num_blocks=6, block_size=2, token_budget=8)
    first, second = (engine.add(Request([token, 7], 11, stop_ids=())) for token in (3, 4))
    while not engine.scheduler.preemptions:
        engine.step()
    assert engine.scheduler.running == [first] and engine.scheduler.waiting == [second]
    assert second.ids, "it keeps its tokens"
    engine.run()
    for completion in (first, second):
        request = completion.request
        alone = served([request])[0]
        assert completion.ids == alone.ids and len(completion.ids) == 11


GOOD = Request([3, 5, 7], 9)


WRONG = {
    "prompt": [{"prompt": []}, {"prompt": "text"}, {"prompt": [1, -1]}, {"prompt": [1, 2.0]}, {"prompt": [1, VOCAB]}],
    "max_new_tokens": [{"max_new_tokens": 0}],
    "sampler": [{"sampler": torch.argmax}],
    "seed": [{"seed": 1}, {"sampler": Sampler(), "seed": -1}],
    "stop_ids": [{"stop_ids": [None]}],
    "stop_strings": [{"stop_strings": s} for s in ("end", [""], iter(["a"]), ["a"])],
}


@pytest.mark.parametrize(("name", "changes"), [(name, one) for name, all_ in WRONG.items() for one in all_])
def test_a_bad_request_gets_an_error_and_costs_the_others_nothing(name, changes):
    engine = Engine(shared_model(), num_blocks=8, block_size=4)
    good = engine.add(GOOD)
    engine.step()
    for call in (engine.add, engine.stream):
        with pytest.raises(ValueError, match=f"^{name}: expected "):
            call(Request(**{"prompt": [1], "max_new_tokens": 3} | changes))
        with pytest.raises(ValueError, match="^request: expected a Request, got list"):
            call([1, 2])
        with pytest.raises(ValueError, match="^prompt: expected at most 32 tokens .*, got 33"):
            call(Request([1] * 20, 14))
    engine.run()
    expect_plain(good)


def test_a_request_that_fills_the_cache_to_the_last_slot_is_served():
    expect_plain(served([Request([4] * 20, 13)], num_blocks=8)[0])


def test_with_a_window_a_text_longer_than_the_cache_is_served():
    window = StreamingWindow(8, sinks=3)
    most = window.most_blocks(6, 4)
    long, beside = Request([4] * 30, 60, stop_ids=()), Request([5, 6], 9)
    found = served([long, beside], num_blocks=most, token_budget=6, window=window)
    assert most * 4 < 90
    model, text = shared_model(0, window), list(long.prompt)
    with torch.no_grad():
        for token in found[0].ids:  # each is the likeliest after all before it
            logits = model(torch.tensor([text]))[0, -1]
            assert int(logits.argmax()) == token
            text.append(token)
    assert len(found[0].ids) == 60
    expect_plain(found[1], window)
    with pytest.raises(ValueError, match=rf"^num_blocks: expected an integer of at least {most}, got {most - 1}"):
        Engine(shared_model(), num_blocks=most - 1, block_size=4, token_budget=6, window=window)


def test_with_a_window_a_beginning_that_fills_the_whole_cache_is_found_and_mostly_given_back():
    window = StreamingWindow(5, sinks=1)
    engine = Engine(shared_model(), num_blocks=9, block_size=4, window=window, token_budget=16)
    prompt = tuple(token % VOCAB for token in range(36))
    for later in ((), (5, 6, 7)):
        completion = engine.add(Request(prompt + later, 1))
        engine.run()
        expect_plain(completion, window)
    assert engine.scheduler.reused == 36


def test_a_cancelled_request_frees_its_blocks_while_it_waits_and_while_it_runs():
    engine = Engine(shared_model(), num_blocks=8, block_size=4)
    good, bad, waits = (engine.add(Request([3, 5, token], 9, stop_ids=())) for token in (7, 8, 9))
    engine.step()
    used = engine.tables.used_blocks
    engine.cancel(bad)
    assert engine.tables.used_blocks < used and bad.finish_reason == "cancelled" and len(bad.ids) == 1
    engine.cancel(waits)
    engine.cancel(waits)  # a second time changes nothing
    engine.run()
    engine.cancel(good)
    assert good.finish_reason == "length" and engine.tables.free_blocks == 8


def test_tokens_come_one_by_one_and_whoever_stops_listening_cancels():
    engine = Engine(shared_model(), num_blocks=20, block_size=4)
    beside = engine.add(GOOD)
    stream = engine.stream(Request([4, 4], 9, stop_ids=()))
    ids = [next(stream), next(stream)]
    assert ids == served([Request([4, 4], 9, stop_ids=())])[0].ids[:2]
    stream.close()
    assert engine.unfinished == 1
    engine.run()
    expect_plain(beside)
    assert list(engine.stream(GOOD)) == beside.ids


SAMPLERS = [Sampler(), Sampler(0.7, top_k=6), Sampler(1.3, top_p=0.8)]


def test_the_same_seed_gives_the_same_tokens_whatever_is_served_beside_it():
    requests = [
        Request([3 + i, 5], 12, sampler, seed=seed, stop_ids=())
        for i, sampler in enumerate(SAMPLERS)
        for seed in range(2)
    ]
    alone = [served([request])[0].ids for request in requests]
    assert alone[0] != alone[1]
    noise = [Request([i] * (3 + i), 7 + i, Sampler() if i % 2 else None) for i in range(6)]
    tight = {"num_blocks": 8, "block_size": 3, "token_budget": 7}
    for options in ({}, tight):
        torch.manual_seed(5)
        mixed = served([request for pair in zip(noise, requests, strict=True) for request in pair], **options)
        assert [completion.ids for completion in mixed[1::2]] == alone


def test_it_ends_at_a_stop_token():
    free = served([Request([3, 5], 12, stop_ids=())])[0].ids
    stop = free[4]
    at_token = served([Request([3, 5], 12, stop_ids=[stop])])[0]
    assert at_token.ids == free[: free.index(stop)] and at_token.finish_reason == "stop"


@pytest.mark.parametrize("positions", [None, lambda: Learned(12, 16)], ids=["sinusoidal", "learned"])
def test_positions_that_are_added_count_from_each_sequences_start(positions):
    model = small_model(2, positions=positions)
    engine = Engine(model, num_blocks=9, block_size=4, token_budget=3)
    completions = [engine.add(Request(prompt, 6, stop_ids=())) for prompt in ([1, 2, 3, 4, 5], [6], [7, 8])]
    engine.run()
    for completion in completions:
        tokens = list(completion.request.prompt)
        for token in completion.ids:
            assert token == int(model(torch.tensor([tokens]))[0, -1].argmax())
            tokens.append(token)


def test_more_tokens_than_the_model_has_positions_are_refused():
    engine = Engine(small_model(2, positions=lambda: Learned(12, 16)), num_blocks=9)
    with pytest.raises(ValueError, match="prompt: expected at most 12 tokens with those to come, got 13"):
        engine.add(Request([1] * 7, 7))
    engine.add(Request([1] * 7, 6))


def test_the_engine_refuses_what_it_cannot_serve():
    config = TransformerConfig(9, model_dim=8, num_heads=2, num_layers=1, feed_forward_dim=8)
    for mechanism in (lambda: SlidingWindow(4), lambda: Dense(soft_cap=5.0)):
        with pytest.raises(ValueError, match=r"model: expected MultiHeadAttention with Dense\(\) in each layer, got"):
            Engine(LanguageModel(config, mechanism=mechanism), num_blocks=4)
    with pytest.raises(ValueError, match="model: expected a LanguageModel, got Linear"):
        Engine(torch.nn.Linear(2, 2), num_blocks=4)
    for name in ("num_blocks", "block_size", "token_budget"):
        with pytest.raises(ValueError, match=f"{name}: expected an integer of at least 1, got 0"):
            Engine(shared_model(), **{"num_blocks": 4, name: 0})
    with pytest.raises(ValueError, match="positions: expected added ones, or Rotary, got ALiBi"):
        Engine(small_model(2, positions=lambda: ALiBi(4)), num_blocks=4)


def test_a_model_in_training_is_served_in_evaluation_mode_and_left_as_it_was():
    model = small_model(3, dropout=0.5)
    ids = [list(Engine(model, num_blocks=4).stream(Request([1, 2], 9, stop_ids=())))]
    model.train()
    ids += [list(Engine(model, num_blocks=4).stream(Request([1, 2], 9, stop_ids=())))]
    assert model.training and ids[0] == ids[1]


def test_a_cached_prefix_does_not_keep_a_request_from_running_alone():
    prompt = [3 + i % 8 for i in range(160)]
    engine = Engine(shared_model(), num_blocks=10, block_size=16, token_budget=64, window=StreamingWindow(64, sinks=4))
    for tokens in (prompt, [*prompt, *[7] * 160]):
        done = engine.add(Request(tokens, 4, stop_ids=()))
        engine.run()
        assert done.finish_reason == "length"
