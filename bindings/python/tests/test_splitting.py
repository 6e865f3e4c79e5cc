"""Lists of tensors whose sizes depend on data, and what is computed from these sizes, as exported and decomposed."""

import random

import pytest
import rushlight
import torch
from torch import nn

torch.manual_seed(0)
FORMS = {"exported": lambda program: program, "decomposed": lambda program: program.run_decompositions()}
BACKENDS = [None, "cpu"]
DTYPES = [torch.float32, torch.int64, torch.int32, torch.bool, torch.float64]


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def check(function, calls, form, **options):
    """Compares programs, exported with the first call's arguments, with eager PyTorch over all calls."""
    with torch.no_grad():
        exported = FORMS[form](torch.export.export(Function(function), calls[0], **options))
    for backend in BACKENDS:
        program = rushlight.compile(exported, backend=backend)
        for args in calls:
            expected, got = function(*args), program(*args)
            expected, got = (leaves if isinstance(leaves, (tuple, list)) else [leaves] for leaves in (expected, got))
            for a, b in zip(got, expected, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype, (args[1:], a, b)
                torch.testing.assert_close(a, b)


def tensor(shape, dtype=torch.float32):
    return (torch.randn(shape) * 9).to(dtype)


def index_lists(count, size):
    """Lists of `count` indices of a dimension: usual, negative, beyond both ends, unsorted, repeated."""
    chosen = random.Random(f"{count} {size}")
    lists = [sorted(chosen.sample(range(size + 1), count)), list(range(-count, 0)), [size + 5] * count, [-size - 3] * count]
    lists += [[0] * count, [size] * count, list(range(count, 0, -1)), [1] * count]
    lists += [[chosen.randint(-size - 2, size + 2) for _ in range(count)] for _ in range(6)]
    return [torch.tensor(indices, dtype=torch.int64) for indices in lists]


def all_uses(parts, dim):
    """Each part, what is computed from it, and from its size."""
    results = [*parts, torch.cat([parts[-1], *parts[:-1]], dim), parts[0].new_zeros(parts[-1].shape[dim] + 2 * parts[0].shape[dim], 3)]
    for part in parts:
        size = part.shape[dim]
        results += [part + part, part.sum(dim), part.new_ones(size, 2), torch.arange(size) * size, part.reshape(-1)]
    return tuple(results)


USES = {
    "all": all_uses,
    "last": lambda parts, dim: parts[-1] * 2,
    "sum": lambda parts, dim: parts[0].sum(dim),
    "sizes": lambda parts, dim: parts[0].new_ones(parts[-1].shape[dim] * 2 + parts[0].shape[dim]),
}
SHAPES = [((7,), 0, 3), ((6, 5), 0, 1), ((2, 3, 4), -2, 2), ((2, 1, 5), 2, 4)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("use", USES)
def test_splits_at_indices_that_are_inputs(use, form):
    for shape, dim, count in SHAPES if use == "all" else SHAPES[2:3]:
        calls = [(tensor(shape), indices) for indices in index_lists(count, shape[dim])]
        check(lambda x, indices, dim=dim: USES[use](torch.tensor_split(x, indices, dim), dim), calls, form)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_splits_at_constants(form):
    constants = [[], [1], [3, 1], [-2], [-9, 9], [2, 2], [0, 5], [-1, 1, -1]]

    def function(*inputs):
        parts = (torch.tensor_split(x, torch.tensor(each, dtype=torch.int64), 1) for x in inputs for each in constants)
        return tuple(part for list in parts for part in list)

    check(function, [tuple(tensor((2, 5), dtype) for dtype in DTYPES)], form)
    check(lambda x, i: torch.tensor_split(x, i), [(tensor((4,)), torch.zeros(0, dtype=torch.int64))], form)


@pytest.mark.parametrize("form", FORMS)
def test_splits_into_a_number_of_sections_that_a_constant_holds(form):
    def function(x):
        parts = (torch.tensor_split(x, torch.tensor(sections), dim) for sections in (1, 2, 3, 5, 7) for dim in (0, 1, -1))
        return tuple(part for list in parts for part in list)

    check(function, [(tensor((5, 6)),)], form)


@pytest.mark.parametrize("form", FORMS)
def test_splits_of_dimensions_that_vary(form):
    def function(x, indices):
        parts = torch.tensor_split(x, indices)
        return *(part * 2 for part in parts), parts[1].sum(0), x.new_ones(parts[1].shape[0] + x.shape[0])

    calls = [(tensor((rows, 3)), indices) for rows in (5, 2, 9) for indices in index_lists(2, rows)]
    check(function, calls, form, dynamic_shapes={"args": ({0: torch.export.Dim("rows", min=2, max=9)}, None)})


def first_of_list(x):
    return torch.where(x > 0)[0] * 2


def size_of_list(x):
    rows, columns = torch.where(x > 0)
    return rows.new_ones(rows.shape[0], 2), torch.arange(columns.shape[0])


def sizes_of_sorts(x):
    values, places, counts = torch.unique(x.round(), return_inverse=True, return_counts=True)
    return values.new_zeros(counts.shape[0]), values + counts, places


def of_branches(x):
    picked = x.flatten()[x.flatten() > 0]
    sums = torch.cond(x.sum() > 0, lambda y: y.sum() * 2, lambda y: y.sum() - 1, (picked,))
    return sums, picked.new_ones(picked.shape[0])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("function", [first_of_list, size_of_list, sizes_of_sorts, of_branches], ids=lambda function: function.__name__)
def test_sizes_of_other_results(function, form):
    check(function, [(tensor((3, 4)),), (torch.ones(3, 4),), (-torch.ones(3, 4),)], form)


@pytest.mark.parametrize("form", FORMS)
def test_slices_to_numbers_of_tensors(form):
    """Bounds that the program reads from a tensor count from the end where they are negative."""

    def function(x, bounds):
        start, end = bounds[0].item(), bounds[1].item()
        sizes = x.new_ones(x[:start].shape[0], 2), torch.arange(x[end:].shape[0] * 2)
        return x[start:end] * 2, x[:, :end], x[start:], *sizes

    calls = [(tensor((5, 6)), torch.tensor(bounds)) for bounds in ([1, 3], [-2, -1], [-9, 9], [3, 1], [0, 0], [-3, 5], [2, -9])]
    check(function, calls, form)
