# ruff: noqa: RET504 - how code is written is the subject here
"""Functions of the catalogue: straight lines, arrays, subscripts."""

import math

import numpy as np

from tests.source.cases import MATRIX, OTHER, SQUARE, VECTOR, case

# -- straight lines --------------------------------------------------------------------------------


@case(1.3, traced=True)
def identity(x):
    return x


@case(1.3, traced=True)
def constant_factor(x):
    return 3 * x


@case(1.3, traced=True)
def cubic(x):
    return x**3 - 2 * x**2 + x / 4 - 1


@case(1.3, 0.4, wrt=(0, 1), traced=True)
def all_operators(x, y):
    return -x + y * x - y / x + (+x) ** y


@case(1.3, traced=True)
def chain_of_names(x):
    a = np.sin(x)
    b = np.cos(a)
    c = np.exp(b)
    return np.log(c + 2) * a


@case(0.7, traced=True)
def same_name_again(x):
    x = np.sin(x)
    x = x * x
    x = np.exp(x)
    return x


@case(1.3, traced=True)
def overwrite_argument(x):
    y = x * 2
    x = 3 * y
    return x * y


@case(1.3, traced=True)
def chained_assignment(x):
    a = b = x * x
    return a + 2 * b


@case(1.3, traced=True)
def swap(x):
    a, b = x, x * x
    a, b = b, a
    return a - 3 * b * b


@case(1.3, 0.2, wrt=(1,), traced=True)
def second_argument(x, y):
    return x * np.sin(y)


@case(1.3, 0.2, wrt=(1, 0), traced=True)
def turned_arguments(x, y):
    return x * np.sin(y)


@case(1.3)
def gradient_names_used(x):
    bx = x * 2
    dx = bx * x
    tape = dx + bx
    return tape * bx


@case(1.3, traced=True)
def augmented(x):
    y = x * 1.0
    y += x * x
    y *= 2.0
    y -= x
    y /= 3.0
    return y


@case(1.3, traced=True)
def annotated(x: float) -> float:
    y: float = x * x
    return y


@case(1.3, traced=True)
def dead_code(x):
    y = np.exp(x)  # noqa: F841
    return x * x


@case(1.3, traced=True)
def unused_argument_part(x):
    return 2.0 + 0 * x


@case(0.6, traced=True)
def trigonometry(x):
    return np.tan(x) + np.arcsin(x) + np.arccos(x) * np.arctan(x)


@case(0.6, traced=True)
def hyperbolic(x):
    return np.sinh(x) + np.cosh(x) * np.tanh(x)


@case(0.6, traced=True)
def logarithms(x):
    return np.log(x) + np.log1p(x) * np.log2(x) + np.log10(x) + np.expm1(x)


@case(0.6)
def math_module(x):
    return math.sin(x) + math.exp(x) * math.sqrt(x) + math.log(x) + math.atan(x)


@case(-0.6, traced=True)
def absolute(x):
    return np.abs(x) + abs(x) * 2


@case(1.3, 0.7, wrt=(0, 1), traced=True)
def extremes(x, y):
    return np.maximum(x, y) * 2 + np.minimum(x, 3 * y)


@case(1.3, 0.7, wrt=(0, 1), traced=True)
def power_of_two(x, y):
    return x**y + np.power(y, x) + np.hypot(x, y)


# -- arrays ----------------------------------------------------------------------------------------


@case(VECTOR, traced=True)
def sum_of_squares(x):
    return np.sum(x * x)


@case(VECTOR, traced=True)
def mean_of_products(x):
    return np.mean(x * np.exp(x))


@case(VECTOR, MATRIX, wrt=(0, 1), traced=True)
def broadcasting(x, y):
    return np.sum(x * y + x / (y + 3.0) - x)


@case(1.3, VECTOR, wrt=(0, 1), traced=True)
def scalar_and_vector(x, y):
    return np.sum(x * y) + np.sum(x**2 + y)


@case(OTHER, MATRIX + 2.0, wrt=(0, 1), traced=True)
def power_broadcasts(x, y):
    return np.sum(x**y)


@case(MATRIX, traced=True)
def sum_over_axis(x):
    return np.sum(np.sum(x, axis=0) ** 2) + np.sum(x.sum(axis=1, keepdims=True) * x)


@case(MATRIX, traced=True)
def means_and_spread(x):
    return np.sum(np.mean(x, axis=1) ** 2) + np.var(x) + np.std(x)


@case(VECTOR, traced=True)
def products(x):
    return np.prod(x) + np.cumsum(x)[1]


@case(VECTOR, traced=True)
def largest_elements(x):
    return np.max(x) * np.min(x) + x.max() ** 2


@case(MATRIX, OTHER, wrt=(0, 1), traced=True)
def matrix_times_vector(a, x):
    return np.sum(np.dot(a, x) ** 2) + np.sum(a @ x)


@case(MATRIX, SQUARE, wrt=(0, 1), traced=True)
def matrix_products(a, b):
    return np.sum((a @ b) ** 2) + np.sum(np.matmul(a, b))


@case(VECTOR, OTHER, wrt=(0, 1), traced=True)
def inner_and_outer(x, y):
    return np.inner(x, y) + np.sum(np.outer(x, y) ** 2) + np.dot(x, y)


@case(MATRIX, traced=True)
def transposes(x):
    return np.sum((x.T @ x) ** 2) + np.sum(np.transpose(x)[0] ** 3)


@case(MATRIX, traced=True)
def transpose_with_axes(x):
    y = np.reshape(x, (1, 2, 3))
    return np.sum(np.transpose(y, (2, 0, 1))[0] ** 2)


@case(MATRIX, traced=True)
def reshapes(x):
    y = x.reshape(3, 2)
    z = np.ravel(y)
    return np.sum(y[0] * y[1]) + z[2] * z[3]


@case(MATRIX)
def shape_unpacked(x):
    rows, cols = x.shape
    return np.sum(x) / (rows * cols) + len(x) * x[0, 0]


@case(SQUARE, traced=True)
def determinant_and_inverse(x):
    return np.linalg.det(x) + np.sum(np.linalg.inv(x) ** 2) + np.trace(x)


@case(SQUARE, VECTOR, wrt=(0, 1), traced=True)
def solve(a, b):
    return np.sum(np.linalg.solve(a, b) ** 2)


@case(VECTOR, traced=True)
def where_and_clip(x):
    return np.sum(np.where(x > 0, x * x, -x)) + np.sum(np.clip(x, -0.5, 1.0))


@case(VECTOR, OTHER, wrt=(0, 1), traced=True)
def joined(x, y):
    return np.sum(np.concatenate([x, y * y]) ** 2) + np.sum(np.stack([x, y], axis=1)[:, 0])


@case(VECTOR)
def array_of_parts(x):
    y = np.array([x[0], x[1] * x[2], 3.0 * x[1]])
    return np.sum(y * y)


@case(VECTOR, traced=True)
def sorted_values(x):
    return np.sum(np.sort(x) * np.array([1.0, 2.0, 3.0])) + np.sum(np.flip(x)[0])


@case(MATRIX, traced=True)
def einsum_of_two(x):
    return np.einsum("ij,ij->", x, x) + np.sum(np.einsum("ij->j", x) ** 2)


@case(VECTOR, traced=True)
def logsumexp(x):
    top = np.max(x)
    return top + np.log(np.sum(np.exp(x - top)))


@case(MATRIX, traced=True)
def softmax_loss(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return -np.sum(np.log(p[:, 0]))


@case(MATRIX, VECTOR, OTHER, wrt=(0, 1, 2), traced=True)
def two_layers(w, b, x):
    h = np.tanh(w @ x)
    return np.sum(h**2) + np.sum(np.tanh(b * x))


@case(VECTOR, traced=True)
def norms(x):
    return np.linalg.norm(x) + np.sqrt(np.sum(x * x)) * np.sum(np.square(x))


@case(VECTOR)
def dtype_and_copies(x):
    return np.sum(x.copy() * np.array(x) + np.asarray(x) + x.astype(np.float64) + np.copy(x))


@case(VECTOR)
def zeros_and_ones(x):
    return np.sum(np.zeros_like(x) + np.ones_like(x) * x + np.ones(x.shape) * x)


@case(VECTOR, traced=True)
def expanded_dims(x):
    return np.sum(x[:, None] * x[None, :] ** 2) + np.sum(np.expand_dims(x, 0) ** 3)


# -- subscripts ------------------------------------------------------------------------------------


@case(VECTOR, traced=True)
def elements(x):
    return x[0] * x[1] + x[-1] ** 2


@case(MATRIX, traced=True)
def slices(x):
    return np.sum(x[0, :] * x[1, ::-1]) + np.sum(x[:, 1:] ** 2) + np.sum(x[..., -1])


@case(MATRIX, traced=True)
def rows_of_rows(x):
    return x[0][1] * x[1][2] + np.sum(x[0] * x[1])


@case(VECTOR, traced=True)
def index_arrays(x):
    return np.sum(x[[0, 0, 2]] ** 2) + np.sum(x[np.array([1, 1])] * 3)


@case(VECTOR)
def masks(x):
    return np.sum(x[x > 0] ** 2)


@case(VECTOR)
def computed_indices(x):
    i = int(np.argmax(x))
    return x[i] ** 2 + x[i - 1]


@case(VECTOR)
def writes_elements(x):
    y = np.zeros(3)
    y[0] = x[1] * 2
    y[1] = x[0] * y[0]
    y[0] = y[1] * x[2]
    return np.sum(y * y)


@case(VECTOR)
def writes_slices(x):
    y = np.ones((2, 3)) * x
    y[0, 1:] = x[:2] ** 2
    y[1] = y[0] * x
    return np.sum(y**2)


@case(VECTOR)
def writes_over_and_over(x):
    y = x * 1.0
    for i in range(3):
        y[i] = y[i - 1] * np.sin(y[i]) + x[i]
    return np.sum(y * x)


@case(VECTOR)
def augmented_elements(x):
    y = np.zeros(3)
    for i in range(3):
        y[i] += x[i] * x[0]
        y[i] *= 2.0
    return np.sum(y * y)


@case(VECTOR)
def written_value_is_used_before(x):
    y = x * 2
    a = np.sum(y * y)
    y[0] = 5.0
    return a * np.sum(y)


@case(1.3)
def fills_a_table(x):
    table = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            if i == 0:
                table[i, j] = x**j
            else:
                table[i, j] = table[i - 1, j] * x + i
    return np.sum(np.sin(table))
