"""Contexts as loops in float64, word by word: slow and plain."""

import math

import torch

from tests import reference


def parameters(module):
    """The module's parameters by name, in float64."""
    return {name: p.detach().double() for name, p in module.named_parameters()}


def softmax(scores):
    """The weights of a list of numbers."""
    raised = [math.exp(score - max(scores)) for score in scores]
    return [one / sum(raised) for one in raised]


def mean(weights, vectors):
    """The weighted mean of vectors."""
    return sum(weight * vector for weight, vector in zip(weights, vectors, strict=True))


def pool(module, vectors):
    """What ``AttentionPooling`` makes of a list of vectors (C,)."""
    own = parameters(module)
    hidden = [torch.tanh(own["hidden.weight"] @ vector + own["hidden.bias"]) for vector in vectors]
    return mean(softmax([float(each @ own["question"]) for each in hidden]), vectors)


def sentence_vectors(module, words, numbers):
    """The vectors of the sentences that have words, by their number; ``words`` a list of (C,)."""
    return {
        number: pool(module, [word for word, own in zip(words, numbers, strict=True) if own == number])
        for number in sorted(set(numbers))
    }


def hierarchical(module, words, numbers):
    """Each word's sentence vector and the paragraph's, side by side: a list of (2C,)."""
    sentences = sentence_vectors(module.words, words, numbers)
    paragraph = pool(module.sentences, list(sentences.values()))
    return [torch.cat((sentences[number], paragraph)) for number in numbers]


def dynamic(module, words, numbers):
    """What each word gets of the sentences that it asks: a list of (C,)."""
    own = parameters(module)
    sentences = list(sentence_vectors(module.words, words, numbers).values())
    keys = [own["key.weight"] @ each + own["key.bias"] for each in sentences]
    asked = [own["query.weight"] @ word + own["query.bias"] for word in words]
    return [mean(softmax([float(q @ k) / math.sqrt(len(q)) for k in keys]), sentences) for q in asked]


def context_attention(layer, x, context, *, mask=None, causal=False):
    """``ContextAttention`` row by row and head by head: the output (B, T, C)."""
    own, heads, size = parameters(layer), layer.num_heads, layer.head_dim
    batch, length, _ = x.shape
    parts = {name: torch.zeros(batch, heads, length, size, dtype=torch.float64) for name in ("query", "key", "value")}
    for b in range(batch):
        for t in range(length):
            word, given = x[b, t].double(), context[b, t if context.shape[1] > 1 else 0].double()
            for name, part in parts.items():
                vector = own[f"{name}.weight"] @ word + own[f"{name}.bias"]
                if name != "value":
                    turned = own[f"{name}_context.weight"] @ given
                    v, u = own[f"{name}_gate.weight"][0].chunk(2)
                    score = float(v @ vector + u @ turned + own[f"{name}_gate.bias"][0])
                    share = 1 / (1 + math.exp(-score)) if score > -700 else 0.0
                    vector = vector - share * vector + share * turned
                for head in range(heads):
                    part[b, head, t] = vector[head * size : (head + 1) * size]
    out, _ = reference.attention(*parts.values(), mask=mask, causal=causal)
    joined = torch.cat([out[:, head] for head in range(heads)], -1)
    return joined @ own["out.weight"].T + own["out.bias"]
