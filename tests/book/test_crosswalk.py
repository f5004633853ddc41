"""The page for readers who come from d2l: nothing of its chapters on attention is left out, and all of ours exists."""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.book import notebooks as nb

PAGE = nb.ROOT / "chapters" / "d2l.ipynb"
CELLS = nb.read(PAGE)["cells"]
MARKDOWN = [nb.text(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown"]
CODE = [nb.text(cell["source"]) for cell in nb.code_cells({"cells": CELLS})]
CODE_NAME = re.compile(r"`([\w.]+)`")

# The sections of d2l's book that this page covers, as the docstrings of its package name them.
SECTIONS = {
    "sec_machine_translation", "subsec_mt_data_loading", "sec_encoder-decoder", "sec_seq2seq", "sec_seq2seq_decoder",
    "sec_seq2seq_training", "sec_attention-cues", "sec_attention-scoring-functions", "subsec_additive-attention",
    "sec_seq2seq_attention", "sec_multihead-attention", "sec_self-attention-and-positional-encoding", "sec_transformer",
    "sec_bert", "subsec_bert_input_rep", "subsec_mlm", "subsec_nsp", "sec_bert-dataset", "subsec_prepare_mlm_data",
    "sec_bert-pretraining", "sec_natural-language-inference-and-dataset", "sec_natural-language-inference-attention",
}  # fmt: skip

# What is defined there, and what that calls.
ATTENTION = set(
    """
    masked_softmax sequence_mask DotProductAttention AdditiveAttention MultiHeadAttention transpose_qkv transpose_output
    PositionalEncoding PositionWiseFFN AddNorm EncoderBlock TransformerEncoder
    Encoder Decoder EncoderDecoder AttentionDecoder Seq2SeqEncoder
    read_data_nmt preprocess_nmt tokenize_nmt tokenize Vocab count_corpus truncate_pad build_array_nmt load_array
    load_data_nmt show_list_len_pair_hist download download_extract
    MaskedSoftmaxCELoss train_seq2seq grad_clipping Accumulator Animator Timer try_gpu predict_seq2seq bleu
    show_heatmaps use_svg_display set_figsize set_axes numpy reduce_sum astype
    get_tokens_and_segments BERTEncoder MaskLM NextSentencePred BERTModel load_data_wiki get_dataloader_workers
    read_snli SNLIDataset load_data_snli predict_snli
    """.split()
)
HELPERS = set(
    """
    _read_wiki _get_next_sentence _get_nsp_data_from_paragraph _replace_mlm_tokens _get_mlm_data_from_tokens
    _pad_bert_inputs _WikiTextDataset _get_batch_loss_bert
    """.split()
)
NOT_ABOUT_ATTENTION = set(
    """
    plot annotate synthetic_data linreg squared_loss sgd evaluate_loss accuracy evaluate_accuracy evaluate_accuracy_gpu
    get_fashion_mnist_labels show_images load_data_fashion_mnist train_epoch_ch3 train_ch3 predict_ch3 download_all
    try_all_gpus corr2d train_ch6 Residual resnet18 read_time_machine load_corpus_time_machine seq_data_iter_random
    seq_data_iter_sequential SeqDataLoader load_data_time_machine RNNModelScratch RNNModel predict_ch8 train_epoch_ch8
    train_ch8 train_2d show_trace_2d get_data_ch11 train_ch11 train_concise_ch11 Benchmark split_batch train_batch_ch13
    train_ch13 box_corner_to_center box_center_to_corner bbox_to_rect multibox_prior show_bboxes box_iou
    assign_anchor_to_bbox offset_boxes multibox_target offset_inverse nms multibox_detection read_data_bananas
    BananasDataset load_data_bananas read_voc_images voc_colormap2label voc_label_indices voc_rand_crop VOCSegDataset
    load_data_voc read_csv_labels copyfile reorg_train_valid reorg_test read_ptb subsample get_centers_and_contexts
    RandomGenerator get_negatives batchify load_data_ptb TokenEmbedding read_imdb load_data_imdb predict_sentiment
    update_D update_G size reshape to argmax transpose
    """.split()
)


class Table(NamedTuple):
    head: list[str]
    rows: list[list[str]]


class Row(NamedTuple):
    theirs: str
    where: str
    ours: str
    word: str


def tables():
    """The tables of the page, cell by cell of each row."""
    found = []
    for text in MARKDOWN:
        for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.M):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
            assert set("".join(rows[1])) <= set("-:"), block
            found.append(Table(rows[0], rows[2:]))
    return found


def compared():
    """The rows of all tables that set a name of d2l's beside one of ours."""
    return [
        Row(*(CODE_NAME.fullmatch(cell)[1] for cell in (row[0], table.head[1], row[1])), row[2])
        for table in tables()
        if table.head[0] == "d2l" and table.head[1].startswith("`attn_core")
        for row in table.rows
    ]


def without_counterpart():
    return [
        name
        for table in tables()
        if table.head == ["d2l", "take instead"]
        for row in table.rows
        for name in CODE_NAME.findall(row[0])
    ]


def named(path):
    """What a dotted path names. A package's name goes before a module: `attn_core.decode.translate` is a function."""
    first, *names = path.split(".")
    value = importlib.import_module(first)
    for name in names:
        value = getattr(value, name) if hasattr(value, name) else importlib.import_module(f"{value.__name__}.{name}")
    return value


def own(d2l):
    """The functions and classes that d2l defines itself."""
    kinds = (inspect.isfunction, inspect.isclass)
    return {n: x for n, x in vars(d2l).items() if any(is_kind(x) for is_kind in kinds) and x.__module__ == d2l.__name__}


def called(definition, names):
    """Those of d2l's names that a definition uses, as `name` or `d2l.name`."""
    nodes = list(ast.walk(definition))
    bare = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    dotted = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "d2l"
    }
    return (bare | dotted) & names


def of_the_sections(d2l):
    """What d2l defines in the sections that this page covers, and, however indirectly, what that calls."""
    names = set(own(d2l))
    tree = ast.parse(Path(d2l.__file__).read_text(encoding="utf-8"))
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found = set()
    for name, definition in definitions.items():
        documented = [node for node in ast.walk(definition) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        labels = re.findall(r":numref:`([^`]+)`", "\n".join(ast.get_docstring(node) or "" for node in documented))
        if SECTIONS.intersection(labels):
            found.add(name)
    while more := set().union(*(called(definitions[n], names) for n in found if n in definitions)) - found:
        found |= more
    return found


def test_nothing_of_d2l_is_unclassified(d2l):
    """A name that d2l has and no list holds is unclassified; one that a list holds and d2l has not is misspelt."""
    lists = (ATTENTION, HELPERS, NOT_ABOUT_ATTENTION)
    assert sum(map(len, lists)) == len(set().union(*lists))
    assert set().union(*lists) == set(own(d2l))


def test_the_list_is_what_d2l_defines_in_its_chapters_on_attention(d2l):
    assert of_the_sections(d2l) == ATTENTION | HELPERS


def test_the_tables_hold_every_name_once():
    names = [row.theirs for row in compared()] + without_counterpart()
    assert sorted(names) == sorted(ATTENTION)


def test_helpers_are_told_of():
    told = {name for text in MARKDOWN for name in CODE_NAME.findall(text)}
    assert not HELPERS - told


@pytest.mark.parametrize("row", compared(), ids=lambda row: row.theirs)
def test_a_row_names_something_of_ours_and_how_near_it_is(row):
    assert callable(named(f"{row.where}.{row.ours}"))
    assert row.word in ("same", "near", "other")


@pytest.mark.parametrize("row", [r for r in compared() if r.word != "other"], ids=lambda row: row.theirs)
def test_what_is_said_to_be_equal_is_run_and_asserted(row):
    uses = re.compile(rf"\bd2l\.{row.theirs}\b")
    cells = [source for source in CODE if uses.search(source)]
    assert any("assert_same(" in source or nb.ends_in_assertion(source) for source in cells)
    assert any(re.search(rf"\b{row.ours.rpartition('.')[2]}\b", source) for source in CODE)


@pytest.mark.parametrize("name", sorted({n for text in MARKDOWN for n in re.findall(r"`(attn_core\.[\w.]+)", text)}))
def test_every_path_of_ours_exists(name):
    assert named(name) is not None


def test_every_name_is_told_of_beside_its_row():
    """A row alone explains nothing: each name stands in the text or in a cell too."""
    prose = "\n".join(re.sub(r"^\|.*\|$", "", text, flags=re.M) for text in MARKDOWN)
    rows = {row.theirs for row in compared()}
    assert not {name for name in rows if not re.search(rf"\b{name}\b", prose + "\n".join(CODE))}


def test_what_is_said_to_be_in_the_book_only_is_not_in_the_package(d2l):
    (table,) = [table for table in tables() if table.head[0] == "d2l's book"]
    for theirs, ours in table.rows:
        assert not hasattr(d2l, CODE_NAME.fullmatch(theirs)[1])
        assert callable(named(f"{table.head[1].strip('`')}.{CODE_NAME.fullmatch(ours)[1]}"))


def test_the_notebook_that_was_moved_shows_d2ls_before_and_none_after():
    (i,) = [i for i, cell in enumerate(CELLS) if nb.text(cell["source"]).startswith("## Moving a notebook over")]
    (before,) = re.findall(r"^```python\n(.*?)^```", nb.text(CELLS[i]["source"]), flags=re.M | re.S)
    compile(before, "before", "exec")
    after = [nb.text(cell["source"]) for cell in CELLS[i:] if cell["cell_type"] == "code"]
    assert before.startswith("from d2l import torch as d2l\n")
    assert after and not any("d2l" in source for source in after)
