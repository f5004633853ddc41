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


class Comparison(NamedTuple):
    """A call of ``assert_same``: its label, and the names that each side was made with."""

    label: str
    ours: set[str]
    theirs: set[str]


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
        if table.head[0] == "d2l" and table.head[1].startswith("`attn_")
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


def taken_instead():
    """What stands in code in the second column of the names without a counterpart."""
    (table,) = [table for table in tables() if table.head == ["d2l", "take instead"]]
    return [name for row in table.rows for name in re.findall(r"`([^`]*)`", row[1])]


def prose_beside(name):
    """The text of the section whose table has this name of d2l's, without tables."""
    sections = re.split(r"^(?=## )", "\n\n".join(MARKDOWN), flags=re.M)
    (section,) = [text for text in sections if re.search(rf"^\| `{name}` \|", text, flags=re.M)]
    return re.sub(r"^\|.*\|$", "", section, flags=re.M)


def named(path):
    """What a dotted path names. A package's name goes before a module: `attn_book.translation` is a function."""
    first, *names = path.split(".")
    value = importlib.import_module(first)
    for name in names:
        value = getattr(value, name) if hasattr(value, name) else importlib.import_module(f"{value.__name__}.{name}")
    return value


def name_of(node):
    """How a name or an attribute is written: ``d2l.name`` for d2l's, the last part alone for others."""
    if isinstance(node, ast.Attribute):
        return f"d2l.{node.attr}" if isinstance(node.value, ast.Name) and node.value.id == "d2l" else node.attr
    return node.id if isinstance(node, ast.Name) else None


def root(node):
    """The variable that ``x``, ``x.y`` and ``x[0]`` begin with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


class Tracer:
    """Follows a notebook's variables, cell by cell: with which functions and classes was each one made?

    A call does not mix its arguments: after ``carry(ours, theirs)`` each was also made with ``carry``, no more.
    """

    def __init__(self):
        self.made = {}

    def origins(self, node):
        """The names that an expression's value was made with."""
        inner = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
        found = set()
        for part in ast.walk(node):
            name = name_of(part)
            if name is not None and not (isinstance(part, ast.Name) and name in inner):
                found |= self.made.get(name, {name}) if isinstance(part, ast.Name) else {name}
        return found - {"d2l"}

    def run(self, source):
        """The comparisons of one cell."""
        return [found for statement in ast.parse(source).body for found in self.step(statement)]

    def assign(self, target, value):
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            found = [self.origins(part) for part in value.elts]
            for part, origins in zip(target.elts, found, strict=True):
                self.bind(part, origins)
        else:
            self.bind(target, self.origins(value))

    def bind(self, target, origins):
        if isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self.bind(part, origins)
        elif isinstance(target, ast.Name):
            self.made[target.id] = origins
        else:  # an attribute or an entry: the rest of the variable stays
            self.made[root(target)] = self.made.get(root(target), set()) | origins

    def step(self, node):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.assign(target, value)
            case ast.Expr(value=ast.Call(func=ast.Name(id="assert_same"), args=[label, ours, theirs, *_])):
                first = label.values[0] if isinstance(label, ast.JoinedStr) else label
                text = first.value if isinstance(first, ast.Constant) else ""
                yield Comparison(text, self.origins(ours), self.origins(theirs))
            case ast.Expr(value=ast.Call(func=function, args=arguments)):
                for argument in arguments:
                    if root(argument) in self.made and name_of(function) is not None:
                        self.made[root(argument)] = self.made[root(argument)] | {name_of(function)}
            case ast.FunctionDef() | ast.ClassDef():
                self.made.pop(node.name, None)
                self.made[node.name] = set().union(*(self.origins(part) for part in node.body), {node.name})
            case ast.For(target=target, iter=value):
                self.assign(target, value)
            case ast.With(items=items):
                for item in items:
                    if item.optional_vars is not None:
                        self.assign(item.optional_vars, item.context_expr)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            for block in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(node, block, []):
                    yield from self.step(inner)


def proofs(row, sources):
    """The comparisons that back a row: in one cell that names both, labelled with d2l's, one side made with each."""
    theirs, ours = f"d2l.{row.theirs}", row.ours.rpartition(".")[2]
    tracer, found = Tracer(), []
    for source in sources:
        both = re.search(rf"\b{theirs}\b", source) and re.search(rf"(?<!\bd2l\.)\b{ours}\b", source)
        for one in tracer.run(source):
            labelled = re.match(rf"{row.theirs}\b", one.label)
            if both and labelled and theirs in one.theirs and ours in one.ours and theirs not in one.ours:
                found.append(one)
    return found


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
    assert callable(named(row.ours if row.ours.startswith("attn_") else f"{row.where}.{row.ours}"))
    assert row.word in ("same", "near", "other")


@pytest.mark.parametrize("row", [r for r in compared() if r.word != "other"], ids=lambda row: row.theirs)
def test_what_is_said_to_be_equal_is_run_and_compared_in_one_cell(row):
    assert proofs(row, CODE)


@pytest.mark.parametrize("row", [r for r in compared() if r.word == "other"], ids=lambda row: row.theirs)
def test_what_is_said_to_be_done_in_another_way_is_not_proved_equal(row):
    assert not proofs(row, CODE)


@pytest.mark.parametrize("row", [r for r in compared() if r.word == "same"], ids=lambda row: row.theirs)
def test_what_is_the_same_and_drops_is_compared_in_training_too(row, d2l):
    if "dropout" in inspect.signature(getattr(d2l, row.theirs)).parameters:
        assert any(one.label == f"{row.theirs}, in training" for one in proofs(row, CODE))


@pytest.mark.parametrize("row", [r for r in compared() if r.word == "near"], ids=lambda row: row.theirs)
def test_what_is_near_only_is_told_of_in_its_section(row):
    assert f"`{row.theirs}`" in prose_beside(row.theirs)


BUILT = "theirs, ours = d2l.AddNorm([8], 0.0), AddNorm(8)\ncarry(ours, theirs)\n"


@pytest.mark.parametrize(
    "cells",
    [
        [BUILT + "assert_same('AddNorm', ours(x), theirs(x))"],
        [BUILT + "mine = ours(x)\nout, _ = theirs(x)\nassert_same(f'AddNorm, {x}', mine[0], out[:, 0])"],
        [BUILT + "with torch.no_grad():\n    assert_same('AddNorm', [y + 1 for y in ours(x)], theirs(x))"],
        ["x = nn.Linear(8, 8)", "theirs = x\nd2l.AddNorm(theirs)\nassert_same('AddNorm', AddNorm(8)(x), theirs)"],
    ],
)
def test_a_comparison_of_both_is_a_proof(cells):
    assert proofs(Row("AddNorm", "attn_core.transformer", "AddNorm", "same"), cells)


@pytest.mark.parametrize(
    "cells",
    [
        [BUILT + "assert_same('EncoderBlock', ours(x), theirs(x))"],  # the label is another's
        [BUILT + "assert_same('AddNorms', ours(x), theirs(x))"],
        [BUILT + "assert_same('AddNorm', theirs(x), theirs(x))"],  # one side twice
        [BUILT + "assert_same('AddNorm', ours(x), ours(x))"],
        [BUILT + "assert_same('AddNorm', theirs(x), ours(x))"],
        [BUILT + "theirs = d2l.EncoderBlock(8)\nassert_same('AddNorm', ours(x), theirs(x))"],  # something else
        [BUILT + "ours = EncoderLayer(8)\nassert_same('AddNorm', ours(x), theirs(x))"],
        [BUILT + "assert_same('AddNorm', torch.ones(1), torch.ones(1))"],
        [BUILT + "print('AddNorm', ours(x), theirs(x))"],  # asserts nothing
        [BUILT, "assert_same('AddNorm', ours(x), theirs(x))"],  # not in one cell
        ["theirs = d2l.AddNorm([8], 0.0)\nours = d2l.AddNorm([8], 0.0)\nassert_same('AddNorm', ours(x), theirs(x))"],
    ],
)
def test_any_other_comparison_is_no_proof(cells):
    assert not proofs(Row("AddNorm", "attn_core.transformer", "AddNorm", "same"), cells)


@pytest.mark.parametrize("name", taken_instead())
def test_what_is_to_be_taken_instead_exists(name):
    """In the core, or elsewhere by its full name."""
    full = name.split(".")[0] in ("attn_book", "attn_core", "matplotlib", "pooch", "time", "torch")
    assert callable(named(name if full else f"attn_core.{name}"))


OURS = {name for text in MARKDOWN for name in re.findall(r"`(attn_(?:core|book)\.[\w.]+)", text)}


@pytest.mark.parametrize("name", sorted(OURS))
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
        assert True


def test_the_notebook_that_was_moved_shows_d2ls_before_and_none_after():
    (i,) = [i for i, cell in enumerate(CELLS) if nb.text(cell["source"]).startswith("## Moving a notebook over")]
    (before,) = re.findall(r"^```python\n(.*?)^```", nb.text(CELLS[i]["source"]), flags=re.M | re.S)
    compile(before, "before", "exec")
    after = [nb.text(cell["source"]) for cell in CELLS[i:] if cell["cell_type"] == "code"]
    assert before.startswith("from d2l import torch as d2l\n")
    assert after and not any("d2l" in source for source in after)
