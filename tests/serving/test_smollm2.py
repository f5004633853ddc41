"""The engine serves a model that people use."""

import pytest
import torch

from attn_book.corpus.english import SENTENCES
from attn_book.published import smollm2_file
from attn_core.cache import BlockPool, BlockTables, QuantisedBlockPool
from attn_core.decode import generate
from attn_core.pretrained import load_gguf
from attn_core.serving import Engine, PromptLookup, Request
from attn_core.serving.paged_model import PagedModel


@pytest.fixture(scope="module")
def smollm2():
    pytest.importorskip("gguf", reason="gguf is not installed: pip install -r requirements/models.txt")
    pytest.importorskip("tokenizers", reason="tokenizers is not installed: pip install -r requirements/models.txt")
    try:
        return load_gguf(smollm2_file())
    except FileNotFoundError as error:
        pytest.skip(str(error))


TEXTS = ["The capital of France is", "One, two, three, four, five, six, one, two, three, four,"]


def test_greedy_tokens_are_those_of_the_plain_loop(smollm2):
    prompts = [smollm2.tokenizer.encode(text).ids for text in TEXTS]
    engine = Engine(smollm2.model, num_blocks=10, block_size=4, token_budget=12, drafter=PromptLookup())
    completions = [engine.add(Request(prompt, 10)) for prompt in prompts]
    engine.run()
    assert engine.scheduler.preemptions > 0 and engine.accepted > 0
    for prompt, completion in zip(prompts, completions, strict=True):
        gaps = []

        def likeliest(logits, gaps=gaps):
            first, second = logits.topk(2).values.unbind(-1)
            gaps.append(float((first - second).min()))
            return logits.argmax(-1)

        found = generate(smollm2.model, [prompt], max_new_tokens=10, pick=likeliest)[0]
        assert min(gaps) > 1e-3, "no two tokens are so likely that rounding might swap them"
        assert completion.ids == found.ids
    assert " Paris" in smollm2.tokenizer.decode(completions[0].ids)
    assert torch.is_grad_enabled()


def test_keys_and_values_in_8_bits_hardly_change_the_loss(smollm2):
    ids = smollm2.tokenizer.encode(" ".join(SENTENCES)).ids[:200]
    losses, sizes = [], []
    for pool in (BlockPool, QuantisedBlockPool):
        tables = BlockTables(13, 16)
        paged, sequence = PagedModel(smollm2.model, tables, pool=pool), tables.add_sequence()
        logits = []
        for begin in range(0, 200, 50):  # in chunks, so that keys are read from the blocks and some are rounded twice
            tables.append(sequence, 50)
            logits.append(paged.read({sequence: (begin, ids[begin : begin + 50])}, range(50)))
        losses.append(torch.nn.functional.cross_entropy(torch.cat(logits)[:-1], torch.tensor(ids[1:])).item())
        sizes.append(sum(each.nbytes for each in paged.pools))
    assert losses[0] != losses[1] and abs(losses[1] - losses[0]) < 0.02
    assert sizes[1] < 0.26 * sizes[0]
    engine = Engine(smollm2.model, num_blocks=8, pool=QuantisedBlockPool)
    completion = engine.add(Request(smollm2.tokenizer.encode(TEXTS[0]).ids, 2))
    engine.run()
    assert smollm2.tokenizer.decode(completion.ids).startswith(" Paris")
