"""The scheduler by itself, without a model: 10,000 random operations."""

import random

from attn_core.serving import Completion, PrefixTables, Request, Scheduler


def check(scheduler, tables):
    """Every block belongs to a running request; the running ones are older than those that wait."""
    running, waiting = scheduler.running, scheduler.waiting
    numbers = [completion.number for completion in [*running, *waiting]]
    assert numbers == sorted(numbers)
    assert sorted(completion.sequence for completion in running) == sorted(tables.sequences)
    assert all(completion.sequence == -1 for completion in waiting)
    blocks = [block for sequence in tables.sequences for block in tables.table(sequence)]
    assert tables.free_blocks == tables.num_blocks - len(set(blocks))


def test_ten_thousand_random_operations_lose_no_block_and_no_request():
    draw = random.Random(0)
    tables = PrefixTables(12, 4)
    scheduler = Scheduler(tables, 16)
    arrived = finished = cancelled = steps = 0
    for _ in range(10_000):
        chosen = draw.choices(["add", "cancel", "step", "fail"], [3, 1, 12, 1])[0]
        everyone = [*scheduler.running, *scheduler.waiting]
        if chosen == "add" and len(scheduler.waiting) < 10:
            prompt = [0] * draw.randint(1, 30)
            scheduler.add(Completion(Request(prompt, draw.randint(1, 48 - len(prompt))), arrived))
            arrived += 1
        elif chosen == "cancel" and everyone:
            scheduler.remove(draw.choice(everyone))
            cancelled += 1
        elif chosen in ("step", "fail"):
            plan = scheduler.schedule()
            steps += 1
            assert bool(plan) == bool(everyone) and sum(plan.values()) <= 16
            for completion, tokens in plan.items():
                held = tables.length(completion.sequence)
                assert tokens > 0 and held <= len(completion)
                if chosen == "fail":
                    tables.truncate(completion.sequence, held - tokens)
                elif held == len(completion):
                    completion.ids.append(0)
                    if completion.room == 0:
                        scheduler.remove(completion)
                        finished += 1
        check(scheduler, tables)
    while scheduler.running or scheduler.waiting:
        for completion in scheduler.schedule():
            if tables.length(completion.sequence) == len(completion):
                completion.ids.append(0)
                if completion.room == 0:
                    scheduler.remove(completion)
                    finished += 1
    check(scheduler, tables)
    assert tables.free_blocks == 12 and finished + cancelled == arrived
    assert finished > 200 and scheduler.preemptions > 100
