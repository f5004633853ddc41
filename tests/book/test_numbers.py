"""Every number that a page's prose quotes is one that the page printed or set, or has a named source.

The net has holes. A page prints many numbers, and a wrong one may equal one of them by chance; formulas and numbers
in words are not read. What it catches is what happens most: a run recorded anew, and the sentence about it forgotten.
"""

import re

import pytest

from tests.book import notebooks as nb

each = pytest.mark.parametrize("path", nb.NOTEBOOKS, ids=lambda path: path.stem)
NUMBER = re.compile(r"(?<![\w])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?")
SMALL = 12  # up to here a number counts things that a reader sees: heads, words, steps
NOT_QUOTED = [
    r"```\{(?:math|code-cell)[^`]*```",  # formulas
    r"```(?:python|bash|text|)\n.*?```",  # code
    r"\$\$.*?\$\$",
    r"\$[^$]*\$",
    r"\{[a-z:]+\}`[^`]*`",  # citations, references, terms
    r"``.*?``|`[^`]*`",
    r"\[\d+\]\([^)]*\)",  # a chapter, named by its number alone
    r"(?<=\])\([^)]*\)",  # where a link leads
    r"^:[\w-]+:.*$|^```.*$|^:::.*$",  # options of a figure or an exercise
    r"<!--.*?-->",
    r"\*\*It takes\*\*[^\n]*?\)\.",  # generated, with a test of its own
    # Places in books, papers and programs.
    r"\b(?:chapter|section|erratum|errata|table|figure|equation|exercise|page|appendix|algorithm|version|theorem|row|"
    r"Python|Ubuntu|eq\.)s?\s+(?:from\s+)?[A-Z]?[\d.]+(?:(?:,| and| to|–)\s*\d[\d.]*)*",
    r"\b[A-Z]\.\d[\d.]*",
    r"\b(?:19|20)\d\d\b(?!\s+(?:words|steps|tokens|sentences|pairs|slots|features|weights|examples))",  # years
]
ABOUT = re.compile(r"(?:about|around|nearly|almost|roughly)\s+$", re.IGNORECASE)
PERCENT = re.compile(r"(?:\s|\u00a0)*(?:%|per cent)|(?:,| and| to| or|–)[^.;]{0,24}%")
# Numbers that no cell of the page prints, and where each comes from.
SOURCES = {
    "03_luong": {"24,000": "the training set of corpus(), on which recorded/luong.py trains"},
    "04_multi_head": {
        "15": "the sets of four heads but the empty one, 2^4 - 1",
        "24,000": "the training set of corpus(), on which recorded/heads.py trains",
    },
    "06_positions": {"27": "Buckets of recorded/positions.py: 8 * 4**(7/8), rounded up"},
    "07_transformer": {
        "213": "Vaswani et al. 2017, table 3",
        "65": "Vaswani et al. 2017, table 3",
        "24,000": "the training set of corpus(), on which recorded/architectures.py trains",
        "32,000": "Touvron et al. 2023, Llama 2",
        "128,000": "Llama Team 2024, Llama 3",
    },
    "09_block": {
        "259": "the vocabulary of the stories, which chapter 19 prints",
        "248": "the rows of unseen stories in recorded/block.py",
        "1,000,000": "Qwen Team 2025, and the configuration of Qwen2.5",
        "4.5": "a name: GLM-4.5",
        "0.15": "no biases and rotary at the lower rate: results/block.json",
        "0.08": "the same at the higher rate",
        "22": "Dehghani et al. 2023, a model with 22 billion parameters",
        "4.57": "the version of transformers whose code the table was checked against",
        "28": "the configuration of Qwen2.5 7B",
    },
    "10_flash": {
        "100,000": "a length that the opening chooses",
        "2.7": "Zadouri et al. 2026, abstract",
        "227": "NVIDIA's programming guide, compute capability 9.0",
    },
    "11_kv_cache": {"0.625": "the mean of 1 and 0.25", "671": "DeepSeek-AI 2025, section 4.2"},
    "12_serving": {
        "1.6": "seconds by steps, with drafts and without: results/serving.json",
        "19": "Kwon et al. 2023, section 6.1: the mean of the Alpaca data's prompts",
        "1960": "a decade",
        "26": "Kwon et al. 2023, section 7.1",
        "59": "eq-serving-speculation: the mean of 0.8^i, i up to 4",
        "72": "the same, i up to 2",
    },
    "13_sparse": {
        "150,000": "Kitaev et al. 2020, section 5",
        "270": "Yuan et al. 2025, section 4.1: tokens of pretraining, in billions",
        "9.0": "Yuan et al. 2025, section 5.1, at 64k tokens",
        "6.0": "Yuan et al. 2025, section 5.1, at 64k tokens",
        "11.6": "Yuan et al. 2025, section 5.2, at 64k tokens",
        "6.5": "Lu et al. 2025, section 3.4, at 1M tokens",
    },
    "14_linear": {"800": "in millions: (e^16 - 1) / 0.01, the formula beside it"},
    "16_long_context": {
        "1.65": "Brandon et al. 2023, abstract",
        "13": "Modarressi et al. 2025, abstract",
        "17": "Hsieh et al. 2024, abstract",
        "32,000": "Hsieh et al. 2024 and Modarressi et al. 2025, abstracts: 32K",
        "63": "Yang et al. 2024, abstract",
        "64,000": "Bakouch et al. 2025: 64k",
        "200,000": "rounded from the table beside it",
        "500,000": "Llama Team 2024, section 3.2",
    },
    "20_pictures": {
        "1.3": "Dosovitskiy et al. 2021, section 4.1: ImageNet, in millions",
        "1.5": "LLaVA-1.5",
        "32,768": "Radford et al. 2021, section 2.5",
        "336": "Liu et al. 2024, Improved Baselines with Visual Instruction Tuning, section 3.3",
    },
    "19_next_word": {"0.95": "Holtzman et al. 2020, table 1"},
    "errata": {"600": "what d2l's load_data_nmt reads unless told otherwise"},
}


def prose(text):
    """Markdown without what is no prose, blanked so that places stay."""
    for pattern in NOT_QUOTED:
        flags = re.S | re.M | re.I if pattern.startswith(r"\b(?:chapter") else re.S | re.M
        text = re.sub(pattern, lambda found: " " * len(found[0]), text, flags=flags)
    return text


def numbers(text):
    """The numbers of a text: how each is written, and where."""
    return [(found[0], found.start()) for found in NUMBER.finditer(text) if re.search(r"\d", found[0])]


def value(number):
    return float(number.replace(",", ""))


def decimals(number):
    return len(number.partition(".")[2])


def known(notebook):
    """The numbers that a notebook's code has or prints."""
    texts = []
    for cell in nb.code_cells(notebook):
        texts.append(re.sub(r"(?<=\d)_(?=\d)", "", nb.text(cell["source"])))
        for out in cell["outputs"]:
            shown = [out.get("text", "")] + [
                out.get("data", {}).get(f"text/{kind}", "") for kind in ("plain", "markdown")
            ]
            page = nb.text(out.get("data", {}).get("text/html", ""))
            shown.append(re.sub(r"<(script|style)[^>]*>.*?</\1>|<[^>]*>", " ", page, flags=re.S))
            texts += [nb.text(part) for part in shown]
    return {(value(number), decimals(number)) for text in texts for number, _ in numbers(text)}


def shows(seen, number, *, percent, about):
    """Whether a number as written is one of those seen, rounded; a share may be written in per cent."""
    wanted, places = value(number), decimals(number)
    for had, exact in seen:
        for factor, digits in ((1, exact), (100, max(0, exact - 2))) if percent else ((1, exact),):
            slack = max(0.5001 * 10**-places, 0.1 * wanted if about else 0)
            if (digits >= places or about) and abs(had * factor - wanted) <= slack:
                return True
    return False


def unsupported(notebook):
    """The numbers of the prose that nothing on the page supports, each with its surroundings."""
    seen = known(notebook)
    found = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        text = prose(nb.text(cell["source"]))
        for number, at in numbers(text):
            small = "." not in number and value(number) <= SMALL
            percent = PERCENT.match(text[at + len(number) :])
            if not small and not shows(seen, number, percent=percent, about=ABOUT.search(text[:at])):
                found.append((number, " ".join(text[max(0, at - 60) : at + 40].split())))
    return found


@each
def test_every_number_in_prose_is_printed_or_has_a_source(path):
    sources = SOURCES.get(path.stem, {})
    found = unsupported(nb.read(path))
    assert [one for one in found if one[0] not in sources] == []
    assert set(sources) <= {number for number, _ in found}, "a source for a number that needs none"


def page(prose, code="x = 5_000", printed="0.953\n12.4 BLEU"):
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}]
    code = {"cell_type": "code", "source": code, "outputs": outputs}
    return {"cells": [{"cell_type": "markdown", "source": prose}, code]}


@pytest.mark.parametrize(
    "prose",
    [
        "It errs in 95 % of cases, or 95.3 %, or .95.",
        "After 5,000 steps, 12.4 points; about 13 of them",
        "In chapter 17, section 3.25, of 2017, on 12 words; [18](18_pretraining.ipynb) has more.",
        "Let $n = 4711$ and `n = 4712`, see [this](https://example.org/4713) and {cite:p}`some4714`.",
        "```{math}\n4711\n```\nThen.",
    ],
)
def test_what_is_printed_set_or_no_quotation_needs_no_source(prose):
    assert unsupported(page(prose)) == []


@pytest.mark.parametrize(
    "prose, wrong",
    [
        ("It errs in 96 % of cases.", "96"),
        ("It errs in .9531 of cases.", ".9531"),
        ("After 5,100 steps.", "5,100"),
        ("It has 95 points.", "95"),
        ("It wins by 13.", "13"),
        ("About 16 of them.", "16"),
    ],
)
def test_what_the_page_never_showed_is_found(prose, wrong):
    assert [number for number, _ in unsupported(page(prose))] == [wrong]
