"""Drafts change how many calls it takes, and nothing else."""

import math
from collections import Counter

import pytest
import torch

from attn_core.cache import BlockPool, BlockTables, QuantisedBlockPool, StreamingWindow
from attn_core.decode import Sampler, argmax
from attn_core.serving import Engine, PromptLookup, Request
from attn_core.serving.paged_model import PagedModel
from attn_core.serving.speculative import reject, verify
from tests.serving.models import Guesses, Trees, plain, shared_model


def distributions(*shape, zeros=0.3):
    p = torch.rand(*shape, dtype=torch.float64) * (torch.rand(*shape) > zeros)
    p[..., 0] += 0.01
    return p / p.sum(-1, keepdim=True)


def test_a_draft_is_what_followed_the_longest_match_where_it_came_last():
    lookup = PromptLookup(num_tokens=3, longest_match=2)

    def drafted(tokens, limit=9):
        return [token for _, token in lookup.propose(tokens, limit)]

    assert lookup.propose([1, 2, 3, 4, 5, 1, 2], 9) == [(0, 3), (1, 4), (2, 5)], "a chain"
    assert drafted([1, 2, 3, 4, 5, 1, 2], 2) == [3, 4]
    assert drafted([1, 2, 3, 9, 2, 4, 1, 2]) == [3, 9, 2], "two tokens that agree before one"
    assert drafted([1, 2, 7, 1, 2, 8, 1, 2]) == [8, 1, 2], "the later of two"
    assert drafted([7, 1, 2, 1]) == [2, 1]
    assert drafted([5, 5]) == [5]
    assert drafted([1, 2, 3]) == [] == drafted([1]) == drafted([5, 5], 0)


def test_branches_that_begin_alike_are_one_and_the_tree_is_cut_from_below():
    text = [1, 5, 6, 7, 1, 5, 8, 9, 1, 3, 1]
    assert PromptLookup(9, branches=3).propose(text, 3) == [(0, 3), (0, 5), (1, 1)]
    chain_and_two = [(0, 3), (0, 5), (1, 1), (2, 8), (2, 6), (4, 9), (5, 7), (6, 1), (7, 1)]
    assert PromptLookup(9, branches=3).propose(text, 9) == chain_and_two


def close_to(counts, p, draws):
    for token, share in enumerate(p.tolist()):
        assert abs(counts[token] - draws * share) <= 5 * math.sqrt(draws * share * (1 - share)) + 1e-9, (counts, p)


def test_draws_have_the_models_distribution_given_what_came_before():
    torch.manual_seed(3)
    target, drafted = distributions(3, 4), distributions(2, 4)
    generator, draws = torch.Generator().manual_seed(0), 8000
    after = [Counter() for _ in range(3)]
    lengths = Counter()
    for _ in range(draws):
        drafts = [int(torch.multinomial(q, 1, generator=generator)) for q in drafted]
        taken = reject(target, drafted, drafts, generator)
        lengths[len(taken)] += 1
        for i, token in enumerate(taken):
            after[i][token] += 1
    for i, counts in enumerate(after):
        close_to(counts, target[i], counts.total())
    stays = torch.minimum(target[:2], drafted).sum(-1)
    assert lengths[3] / draws == pytest.approx(float(stays.prod()), abs=0.03)


def test_equal_distributions_keep_every_draft_and_disjoint_ones_none():
    p, q = torch.tensor([[0.0, 1.0, 0.0]]).expand(2, 3), torch.tensor([[1.0, 0.0, 0.0]])
    assert reject(p, p[:1], [1], None) == [1, 1]
    assert reject(p, q, [0], None) == [1]


def test_what_is_picked_is_what_would_be_picked_without_drafts():
    logits = torch.randn(4, 6)
    alone = [int(pick) for pick in map(Sampler(generator=torch.Generator().manual_seed(2)), logits.split(1))]
    for agree in range(4):
        drafts = [token if i < agree else (token + 1) % 6 for i, token in enumerate(alone[:3])]
        sampler = Sampler(generator=torch.Generator().manual_seed(2))
        assert verify(sampler, logits, list(enumerate(drafts))) == (alone[: agree + 1], list(range(1, agree + 1)))
        following = int(sampler(logits[:1]))
        expected = Sampler(generator=torch.Generator().manual_seed(2))
        for row in logits.split(1)[: agree + 1]:
            expected(row)
        assert following == int(expected(logits[:1])), "as many draws as tokens"


def test_what_is_picked_leads_down_the_tree():
    drafts = [(0, 4), (0, 2), (1, 2), (2, 3), (2, 5), (5, 1)]
    logits = torch.nn.functional.one_hot(torch.tensor([2, 0, 5, 0, 0, 1, 4]), 6)
    assert verify(argmax, logits, drafts) == ([2, 5, 1, 4], [2, 5, 6])
    assert verify(argmax, logits.roll(1, 0), drafts) == ([4, 2, 5], [1, 3])


def held(pool, table, places):
    """Keys and values of a text's tokens at these places, in blocks of four."""
    blocks, offsets = torch.tensor([(table[i // 4], i % 4) for i in places]).unbind(1)
    keys, values, numbers = pool.read(blocks)
    return torch.cat([keys[numbers, :, offsets], values[numbers, :, offsets]])


@pytest.mark.parametrize("window", [None, StreamingWindow(6, 2)])
@pytest.mark.parametrize(("pool", "close"), [(BlockPool, 1e-12), (QuantisedBlockPool, 0.05)])
def test_after_trees_the_cache_holds_what_it_would_hold_without_drafts(pool, close, window):
    model, settings = shared_model(), {"pool": pool, "window": window}
    trees = Trees(5, model=shared_model(0, window))
    for prompt in ([3, 5, 3], [4], [7, 7, 2, 5]):
        engine = Engine(model, num_blocks=12, block_size=4, token_budget=16, drafter=trees, **settings)
        completion = engine.add(Request(prompt, 20, stop_ids=()))
        for _ in range(5):
            engine.step()
        assert 0 < engine.accepted < engine.drafted
        tables, text = BlockTables(12, 4), completion.tokens[:-1]
        paged, alone = PagedModel(model, tables, **settings), tables.add_sequence()
        tables.append(alone, len(text))
        paged.read({alone: (0, text)}, [0])
        table = engine.tables.table(completion.sequence)
        places = [i for i in range(len(text)) if table[i // 4] >= 0]
        for ours, expected in zip(engine._paged.pools, paged.pools, strict=True):
            wanted = held(expected, tables.table(alone), places)
            assert (held(ours, table, places) - wanted).abs().max() < close * wanted.abs().max()


def run(requests, model=None, **options):
    engine = Engine(model or shared_model(), **{"num_blocks": 60, "block_size": 4, **options})
    completions = [engine.add(request) for request in requests]
    steps = 0
    while engine.unfinished:
        engine.step()
        steps += 1
    assert engine.tables.free_blocks == engine.tables.num_blocks
    return [completion.ids for completion in completions], steps, engine


def test_drafts_that_are_always_right_save_steps():
    request = Request([3, 4], 13, stop_ids=())
    (ids,), steps, engine = run([request], drafter=Guesses(3, model=shared_model()))
    assert ids[:5] == plain(request.prompt, 5)[0] and len(ids) == 13
    assert ids == run([request])[0][0]
    assert steps == 1 + 12 / 4 and engine.drafted == engine.accepted == 9


@pytest.mark.parametrize("drafter", [PromptLookup(), PromptLookup(6, branches=3), Trees(6, model=shared_model())])
def test_with_drafts_a_seed_gives_the_same_tokens_as_without(drafter):
    sampler = Sampler(0.3, top_k=5)
    requests = [Request([i, 4, 5] * 4, 14, sampler, seed=i, stop_ids=()) for i in range(6)]
    expected = run(requests)[0]
    found, _, engine = run(requests, drafter=drafter)
    assert found == expected and engine.accepted > 3
    assert run(requests, drafter=drafter, num_blocks=8, token_budget=9)[0] == expected


def test_when_the_budget_is_short_those_who_decode_take_turns():
    engine = Engine(
        shared_model(), num_blocks=40, block_size=4, token_budget=4, drafter=Guesses(3, model=shared_model())
    )
    completions = [engine.add(Request([token], 21, stop_ids=())) for token in (3, 4, 5)]
    engine.step()
    while engine.unfinished:
        assert len(engine.step()) == 1
        counts = [len(completion.ids) for completion in completions]
        assert max(counts) - min(counts) <= 4, "nobody is left behind"


def test_a_stop_token_among_the_drafts_ends_the_request_there():
    free = run([Request([3, 5], 12, stop_ids=())])[0][0]
    stop = free[6]
    request = Request([3, 5], 12, stop_ids=[stop])
    assert run([request], drafter=Guesses(5, model=shared_model()))[0][0] == free[: free.index(stop)]


@pytest.mark.parametrize("name", ["num_tokens", "longest_match", "branches"])
def test_drafters_that_do_not_fit_are_refused(name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        PromptLookup(**{name: 0})
    with pytest.raises(ValueError, match="^token_budget: expected an integer of at least 5, got 4"):
        Engine(shared_model(), num_blocks=4, token_budget=4, drafter=PromptLookup(4))
