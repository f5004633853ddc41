"""Coroutines that share an engine: the same tokens, nothing lost when one is cancelled or fails, a free event loop."""

import asyncio
import threading

import pytest

from attn_core.serving import AsyncEngine, Engine, Request
from tests.serving.models import plain, shared_model

PROMPTS = ((3, 4, 5), (6, 7), (8, 9, 10, 11))


def engine(**options):
    return AsyncEngine(Engine(shared_model(), num_blocks=24, block_size=2, **options))


async def collect(shared, prompt, new=6):
    return [token async for token in shared.stream(Request(prompt, new))]


def wanted(prompt, new=6):
    ids, finished = plain(prompt, new)
    return ids[:-1] if finished else ids


def test_coroutines_get_the_tokens_of_the_plain_loop():
    shared = engine(token_budget=3)

    async def main():
        return await asyncio.gather(*(collect(shared, prompt) for prompt in PROMPTS))

    assert asyncio.run(main()) == [list(wanted(prompt)) for prompt in PROMPTS]
    assert shared.engine.tables.used_blocks == 0


def test_the_event_loop_goes_on_during_a_step():
    shared, inside, seen = engine(), threading.Event(), threading.Event()
    step = shared.engine.step

    def slow():
        inside.set()
        assert seen.wait(600)  # the loop has to come by, or this never ends
        return step()

    shared.engine.step = slow

    async def watch():
        while not inside.is_set():
            await asyncio.sleep(0)
        seen.set()

    async def main():
        return (await asyncio.gather(collect(shared, PROMPTS[0]), watch()))[0]

    assert asyncio.run(main()) == list(wanted(PROMPTS[0]))


def test_who_is_cancelled_during_a_step_frees_its_blocks_when_the_step_is_done():
    shared, inside, go = engine(), threading.Event(), threading.Event()
    step = shared.engine.step

    def held():
        inside.set()
        assert go.wait(600)
        return step()

    shared.engine.step = held

    async def main():
        first = asyncio.create_task(collect(shared, PROMPTS[0]))
        second = asyncio.create_task(collect(shared, PROMPTS[1]))
        while not inside.is_set():
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    assert asyncio.run(main()) == list(wanted(PROMPTS[1]))
    assert shared.engine.tables.used_blocks == shared.engine.unfinished == 0


def test_who_stops_iterating_cancels_its_request():
    shared = engine()

    async def main():
        tokens = shared.stream(Request(PROMPTS[0], 6))
        first = await anext(tokens)
        await tokens.aclose()
        return first

    assert asyncio.run(main()) == wanted(PROMPTS[0])[0]
    assert shared.engine.tables.used_blocks == shared.engine.unfinished == 0


def test_an_error_reaches_its_own_coroutine_alone():
    shared = engine()

    async def main():
        return await asyncio.gather(collect(shared, (99,)), collect(shared, PROMPTS[1]), return_exceptions=True)

    refused, tokens = asyncio.run(main())
    assert isinstance(refused, ValueError) and str(refused).startswith("prompt: expected token ids from 0 to 12")
    assert tokens == list(wanted(PROMPTS[1]))


def test_a_step_that_fails_loses_no_other_request():
    shared = engine()
    step, calls = shared.engine.step, []

    def once():
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("interrupted")
        return step()

    shared.engine.step = once

    async def main():
        return await asyncio.gather(*(collect(shared, prompt) for prompt in PROMPTS), return_exceptions=True)

    found = asyncio.run(main())
    failed = [answer for answer in found if isinstance(answer, RuntimeError)]
    assert len(failed) == 1
    for answer, prompt in zip(found, PROMPTS, strict=True):
        assert answer in failed or answer == list(wanted(prompt))
    assert shared.engine.tables.used_blocks == 0


def test_an_engine_is_needed():
    with pytest.raises(ValueError, match="engine: expected an Engine, got "):
        AsyncEngine(shared_model())
