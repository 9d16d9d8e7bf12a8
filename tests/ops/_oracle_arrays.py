"""Comparisons of functions of shapes, places, statistics, matrices and spectra; see `_oracle`."""

import numpy as np

import actorgraph as ag
from tests.ops._oracle import alike, both, row, torch

fft, linalg = torch.fft, torch.linalg

ONES = torch.ones(2, 3, 4)
SPARSE = [np.array([[0.0, 1.5, 0], [-2, 0, 0.5]])]
PLACES = [0, 2, 0]
INDEX = [[0, 2, 0, 1], [1, 1, 1, 1], [2, 0, 2, 0]]
MASK = [[True, False, True, True], [False, True, False, False], [True] * 4]

# -- shapes ---------------------------------------------------------------------------------------

row("broadcast_to", lambda x: ag.ops.broadcast_to(x, (2, 3, 4)), lambda t: t * ONES.to(t.dtype),
    (3, 1))  # fmt: skip
row("broadcast_like", None, lambda t, u: t * ONES.to(t.dtype) + 0 * u, (3, 1), (2, 3, 4))
row("expand_dims", lambda x: ag.ops.expand_dims(x, 1), lambda t: t.unsqueeze(1))
both("squeeze", lambda f, x: f.squeeze(x, 1), (3, 1, 2))
both("reshape", lambda f, x: f.reshape(x, (2, 6)))
both("flatten", lambda f, x: f.flatten(x, 1), (2, 3, 2))
both("swapaxes", lambda f, x: f.swapaxes(x, 0, 1))
both("permute", lambda f, x: f.permute(x, (2, 0, 1)), (2, 3, 2))
both("moveaxis", lambda f, x: f.moveaxis(x, 0, 2), (2, 3, 2))
both("roll", lambda f, x: f.roll(x, 2, 1))
both("tile", lambda f, x: f.tile(x, (2, 1)))
alike("ravel diagflat")
row("transpose", lambda x: ag.ops.transpose(x, (2, 0, 1)), lambda t: t.permute(2, 0, 1), (2, 3, 2))
row("flip", lambda x: ag.ops.flip(x, 1), lambda t: t.flip(1))
row("repeat", lambda x: ag.ops.repeat(x, 2, 1), lambda t: t.repeat_interleave(2, 1))
row("concatenate", lambda x, y: ag.ops.concatenate([x, y], 1), lambda t, u: torch.cat([t, u], 1),
    (3, 2), (3, 1))  # fmt: skip
both("stack", lambda f, x, y: f.stack([x, y], 1), (3, 2), (3, 2))
row("array", lambda x, y: ag.ops.array([[x, y], [y, x]]),
    lambda t, u: torch.stack([torch.stack([t, u]), torch.stack([u, t])]), (2,), (2,))  # fmt: skip
row("split", lambda x: ag.ops.split(x, 2, 1), lambda t: t.split(2, 1))
row("unstack", lambda x: ag.ops.unstack(x, 1), lambda t: t.unbind(1))
both("meshgrid", lambda f, x, y: f.meshgrid(x, y, indexing="ij"), (3,), (2,))
row("pad", lambda x: ag.ops.pad(x, ((1, 2), (0, 1)), constant_values=0.5),
    lambda t: torch.nn.functional.pad(t, (0, 1, 1, 2), value=0.5))  # fmt: skip
row("block_diag", None, torch.block_diag, (2, 3), (3,))
row("cartesian_prod", None, torch.cartesian_prod, (2,), (3,))
both("narrow", lambda f, x: f.narrow(x, 1, 1, 2))

# -- sources --------------------------------------------------------------------------------------

row("arange", lambda x: ag.ops.arange(x.graph, 1, 9, 3), lambda t: torch.arange(1, 9, 3))
row("eye", lambda x: ag.ops.eye(x.graph, 2, 3, 1), lambda t: torch.diag(torch.ones(2), 1)[:2])
row("zeros", lambda x: ag.ops.zeros(x.graph, (2, 3)), lambda t: torch.zeros(2, 3))
row("ones", lambda x: ag.ops.ones(x.graph, (2, 3)), lambda t: torch.ones(2, 3))
row(
    "full", lambda x: ag.ops.full(x.graph, (2, 3), x), lambda t: t * ONES[0, :2, :3].to(t.dtype), ()
)
row("linspace", lambda x, y: ag.ops.linspace(x, x, y, 5),
    lambda t, u: t + torch.linspace(0, 1, 5, dtype=t.dtype) * (u - t), (), ())  # fmt: skip
row("logspace", lambda x, y: ag.ops.logspace(x, x, y, 5, base=2.0),
    lambda t, u: 2 ** (t + torch.linspace(0, 1, 5, dtype=t.dtype) * (u - t)), (), ())  # fmt: skip
row("size_of", lambda x: ag.ops.size_of(x, 1), lambda t: torch.tensor(t.shape[1]))

# -- places ---------------------------------------------------------------------------------------

row("getitem", lambda x: ag.ops.getitem(x, (slice(None, None, 2), 1)), lambda t: t[::2, 1])
row("at", lambda x: ag.ops.at(x, 1, -1), lambda t: t[1, -1])
row("take", lambda x, i: ag.ops.take(x, i, 1), lambda t, i: t[:, i], ints=[PLACES])
row("take_along_axis", lambda x, i: ag.ops.take_along_axis(x, i, 0),
    lambda t, i: t.take_along_dim(i, 0), ints=[INDEX])  # fmt: skip
both("gather", lambda f, x, i: f.gather(x, 0, i), ints=[INDEX])
row("gather_nd", lambda x, i: ag.ops.gather_nd(x, i), lambda t, i: t[i[:, 0], i[:, 1]],
    ints=[[[0, 1], [2, 3]]])  # fmt: skip
row("pick", lambda x, i: ag.ops.pick(x, i), lambda t, i: t.gather(1, i[:, None])[:, 0],
    ints=[PLACES])  # fmt: skip
row("one_hot", lambda x, i: ag.ops.one_hot(i, 3, "int64"),
    lambda x, i: torch.nn.functional.one_hot(i, 3), (1,), ints=[PLACES])  # fmt: skip
row("index_add", lambda x, s, i: ag.ops.index_add(x, 1, i, s, 2),
    lambda x, s, i: x.index_add(1, i, s, alpha=2), (3, 4), (3, 3), ints=[PLACES])  # fmt: skip
row("index_copy", lambda x, s, i: ag.ops.index_copy(x, 1, i, s),
    lambda x, s, i: x.index_copy(1, i, s), (3, 4), (3, 2), ints=[[3, 1]])  # fmt: skip
row("index_fill", lambda x, v, i: ag.ops.index_fill(x, 1, i, v),
    lambda x, v, i: x.index_fill(1, i, v), (3, 4), (), ints=[PLACES])  # fmt: skip
both("index_select", lambda f, x, i: f.index_select(x, 1, i), ints=[PLACES])
row("index_put", lambda x, v, i: ag.ops.index_put(x, i, v, accumulate=True),
    lambda x, v, i: x.index_put((i,), v, accumulate=True), (3, 2), (3, 2),
    ints=[PLACES])  # fmt: skip
row("put", lambda x, v, i: ag.ops.put(x, i, v, accumulate=True),
    lambda x, v, i: x.put(i, v, accumulate=True), (3, 4), (3,), ints=[PLACES])  # fmt: skip
for name in ("scatter", "scatter_add"):
    both(name, lambda f, x, s, i, name=name: getattr(f, name)(x, 0, i, s), (3, 4), (2, 4),
         ints=[[[0, 2, 0, 1], [1, 1, 1, 2]]])  # fmt: skip
for reduce in ("prod", "mean", "amax"):
    name = "scatter_reduce" if reduce == "prod" else f"scatter_reduce {reduce}"
    row(name, lambda x, s, i, by=reduce: ag.ops.scatter_reduce(x, 0, i, s, by),
        lambda x, s, i, by=reduce: x.scatter_reduce(0, i, s, by), (3, 4), (3, 4),
        ints=[INDEX])  # fmt: skip
row("index_reduce", lambda x, s, i: ag.ops.index_reduce(x, 1, i, s, "prod", include_self=False),
    lambda x, s, i: x.index_reduce(1, i, s, "prod", include_self=False), (3, 4), (3, 3),
    ints=[PLACES])  # fmt: skip
row("segment_reduce", lambda x, n: ag.ops.segment_reduce(x, "mean", lengths=n),
    lambda t, n: torch.stack([part.mean(0) for part in t.split(n.tolist())]), (6, 2),
    ints=[[2, 1, 3]])  # fmt: skip
row("select_scatter", lambda x, s: ag.ops.select_scatter(x, s, 1, 2),
    lambda x, s: x.select_scatter(s, 1, 2), (3, 4), (3,))  # fmt: skip
row("slice_scatter", lambda x, s: ag.ops.slice_scatter(x, s, 1, 1, None, 2),
    lambda x, s: x.slice_scatter(s, 1, 1, None, 2), (3, 4), (3, 2))  # fmt: skip
row("masked_fill", lambda x, v, m: ag.ops.masked_fill(x, m, v),
    lambda x, v, m: x.masked_fill(m, v), (3, 4), (), ints=[MASK])  # fmt: skip
row("masked_scatter", lambda x, s, m: ag.ops.masked_scatter(x, m, s),
    lambda x, s, m: x.masked_scatter(m, s), (3, 4), (12,), ints=[MASK])  # fmt: skip
both("masked_select", lambda f, x, m: f.masked_select(x, m), ints=[MASK])
row("nonzero", None, lambda t: torch.nonzero(t, as_tuple=True), given=SPARSE)
row("argwhere", None, torch.argwhere, given=SPARSE)
row("flatnonzero", None, lambda t: t.ravel().nonzero()[:, 0], given=SPARSE)

# -- statistics and samples -----------------------------------------------------------------------

row("average", lambda x, w: ag.ops.average(x, 1, w), lambda x, w: (x * w).sum(1) / w.sum(),
    (3, 4), (4,), low=0.3)  # fmt: skip
alike("cov", tolerance=10)
row("cov of all", lambda x: ag.ops.cov(x, ddof=0), lambda t: torch.cov(t, correction=0),
    tolerance=10)  # fmt: skip
row("cov weighted", lambda x: ag.ops.cov(x, fweights=[1, 2, 1, 3], aweights=[0.5, 1, 2, 1.0]),
    lambda t: torch.cov(t, fweights=torch.tensor([1, 2, 1, 3]),
                        aweights=torch.tensor([0.5, 1, 2, 1.0], dtype=t.real.dtype)),
    tolerance=10)  # fmt: skip
row("corrcoef", lambda x: ag.ops.corrcoef(x)[0, 1:], lambda t: torch.corrcoef(t)[0, 1:],
    tolerance=10)  # fmt: skip
row("bincount", lambda w, i: ag.ops.bincount(i, w, 4),
    lambda w, i: torch.zeros(4, dtype=w.dtype).index_add(0, i, w), (3,), ints=[PLACES])  # fmt: skip
row("digitize", lambda x: ag.ops.digitize(x, [-1.0, 0.5]),
    lambda t: torch.bucketize(t, torch.tensor([-1, 0.5], dtype=t.dtype), right=True))  # fmt: skip
row("bucketize", lambda x: ag.ops.bucketize(x, [-1.0, 0.5]),
    lambda t: torch.bucketize(t, torch.tensor([-1, 0.5], dtype=t.dtype)))  # fmt: skip
row("histogram", lambda x: ag.ops.histogram(x, 4, (-2, 2)),
    lambda t: (torch.histogram(t.detach(), 4, range=(-2, 2))[0].long(), torch.linspace(-2, 2, 5)
               .to(t.dtype)))  # fmt: skip
row("histc", lambda x: ag.ops.histc(x, 4, -2, 2), lambda t: torch.histc(t.detach(), 4, -2, 2))
row("histc of all", lambda x: ag.ops.histc(x, 3), lambda t: torch.histc(t.detach(), 3))
row("convolve", None, lambda a, v: torch.nn.functional.conv1d(
    a[None, None], v.flip(0)[None, None], padding=2)[0, 0], (5,), (3,))  # fmt: skip
row("interp", lambda y: ag.ops.interp(
        *np.array([[-2.5, 0.5, 3], [-3.0, 0.5, 3]]).astype(y.real.dtype), y),
    lambda t: torch.stack([t[0] + (t[1] - t[0]) / 7, t[1], t[2]]), (3,))  # fmt: skip
alike("trapezoid cumulative_trapezoid", (3, 4), (4,))

# -- products and matrices ------------------------------------------------------------------------

SHIFT = 3 * np.eye(3)


def regular(x):
    """Return matrices far from singular ones, of nodes or tensors."""
    eye = SHIFT.astype(str(x.dtype).removeprefix("torch."))
    return x + (torch.tensor(eye) if isinstance(x, torch.Tensor) else eye)


def positive(x):
    if isinstance(x, torch.Tensor):
        return x @ x.mH + torch.eye(3, dtype=x.dtype)
    return x @ ag.ops.conj(ag.ops.swapaxes(x, -1, -2)) + np.eye(3, dtype=x.dtype)


def square_of(x):
    return (x * x.conj()).real if isinstance(x, torch.Tensor) else ag.ops.real(x * ag.ops.conj(x))


def on_regular(name, theirs, *shapes, by=regular, **options):
    ours = getattr(ag.ops, name)
    row(name, lambda x, *rest: ours(by(x), *rest), lambda t, *rest: theirs(by(t), *rest),
        *(shapes or [(2, 3, 3)]), tolerance=10, **options)  # fmt: skip


alike("matmul bmm", (2, 3, 4), (2, 4, 2))
alike("dot", (4,), (4,))
alike("outer", (3,), (4,))
alike("kron", (2, 3), (3, 2))
alike("vecdot", (2, 3), (3,), space=linalg)
alike("cross", (2, 3), (2, 3), space=linalg)
both("tensordot", lambda f, x, y: f.tensordot(x, y, 1), (2, 3), (3, 4))
both("einsum", lambda f, x, y: f.einsum("ij,jk,ik->k", x, y, y), (3, 3), (3, 3))
row("matvec", None, lambda t, u: (t @ u[..., None])[..., 0], (2, 3, 4), (2, 4))
row("vecmat", None, lambda t, u: (t.conj()[..., None, :] @ u)[..., 0, :], (2, 3), (2, 3, 4))
row("multi_dot", lambda x, y, z: ag.ops.multi_dot([x, y, z]),
    lambda *ts: linalg.multi_dot(ts), (2, 3), (3, 4), (4, 2))  # fmt: skip
row("vander", lambda x: ag.ops.vander(x, 3, increasing=True), lambda t: linalg.vander(t, N=3),
    (4,))  # fmt: skip
alike("trace", (3, 3))
both("diagonal", lambda f, x: f.diagonal(x, 1), (3, 4))
both("diag", lambda f, x: f.diag(x, 1), (3,))
both("diag_embed", lambda f, x: f.diag_embed(x, 1), (2, 3))
both("tril", lambda f, x: f.tril(x, 1), (3, 4))
both("triu", lambda f, x: f.triu(x, 1), (3, 4))
on_regular("inv", linalg.inv)
on_regular("det", linalg.det)
on_regular("slogdet", lambda t: tuple(linalg.slogdet(t)))
on_regular("solve", linalg.solve, (2, 3, 3), (2, 3, 2))
on_regular("pinv", linalg.pinv)
on_regular("matrix_exp", torch.matrix_exp, by=lambda x: x)
on_regular("matrix_rank", linalg.matrix_rank)
on_regular("cond", linalg.cond)
on_regular("svdvals", lambda t: linalg.svdvals(t))
on_regular("matrix_norm", linalg.matrix_norm)
row("tensorinv", lambda x: ag.ops.tensorinv(regular(x), 1),
    lambda t: linalg.tensorinv(regular(t), 1),
    (3, 3), tolerance=10)  # fmt: skip
on_regular("tensorsolve", linalg.tensorsolve, (3, 3), (3,))
row("matrix_power", lambda x: ag.ops.matrix_power(regular(x), -2),
    lambda t: linalg.matrix_power(regular(t), -2), (3, 3), tolerance=10)  # fmt: skip
on_regular("cholesky", linalg.cholesky, by=positive)
row("cholesky_solve", lambda b, x: ag.ops.cholesky_solve(b, ag.ops.cholesky(positive(x))),
    lambda b, t: torch.cholesky_solve(b, linalg.cholesky(positive(t))), (3, 2), (3, 3),
    tolerance=10)  # fmt: skip
row("solve_triangular", lambda a, b: ag.ops.solve_triangular(regular(a), b, upper=True),
    lambda a, b: linalg.solve_triangular(regular(a).triu(), b, upper=True), (3, 3), (3, 2),
    tolerance=10)  # fmt: skip
row("householder_product", lambda x, t: ag.ops.householder_product(x, t),
    lambda x, t: linalg.householder_product(x, t), (4, 2), (2,), second=False)  # fmt: skip
row("qr", lambda x: tuple(ag.ops.qr(x)), lambda t: tuple(linalg.qr(t)), (4, 3), tolerance=10)
row("qr complete", lambda x: [square_of(ag.ops.qr(x, mode="complete")[0][:, 2:]).sum(1)],
    lambda t: [1 - square_of(linalg.qr(t)[0]).sum(1)], (3, 2), tolerance=10)  # fmt: skip
row("lu", lambda x: tuple(ag.ops.lu(regular(x)))[1:], lambda t: tuple(linalg.lu(regular(t)))[1:],
    (3, 3), tolerance=10)  # fmt: skip
row("lu_factor", lambda x: ag.ops.lu_factor(regular(x))[0],
    lambda t: linalg.lu_factor(regular(t))[0], (3, 3), tolerance=10)  # fmt: skip
row("lu_solve", lambda a, b: ag.ops.lu_solve(ag.ops.lu_factor(regular(a)), b),
    lambda a, b: linalg.solve(regular(a), b), (3, 3), (3, 2), tolerance=10)  # fmt: skip
row("lstsq", lambda a, b: ag.ops.lstsq(a, b)[0], lambda a, b: linalg.pinv(a) @ b, (4, 3), (4, 2),
    tolerance=100)  # fmt: skip
row("eigh", lambda x: [(e := ag.ops.eigh(positive(x)))[0], square_of(e[1])],
    lambda t: [(e := linalg.eigh(positive(t)))[0], square_of(e[1])], (3, 3),
    tolerance=100)  # fmt: skip
on_regular("eigvalsh", linalg.eigvalsh, by=positive)
row("svd", lambda x: [(u := ag.ops.svd(x))[1], square_of(u[0]), square_of(u[2])],
    lambda t: [(u := linalg.svd(t, full_matrices=False))[1], square_of(u[0]), square_of(u[2])],
    (4, 3), tolerance=100)  # fmt: skip
row("eig", lambda x: [(e := ag.ops.eig(regular(x)))[0], square_of(e[1])],
    lambda t: [(e := linalg.eig(regular(t)))[0], square_of(e[1])], (3, 3),
    tolerance=100)  # fmt: skip
row("eigvals", lambda x: ag.ops.eigvals(regular(x)), lambda t: linalg.eigvals(regular(t)), (3, 3),
    tolerance=100)  # fmt: skip

# -- distances ------------------------------------------------------------------------------------

both("dist", lambda f, x, y: f.dist(x, y, 3), (3, 4), (4,))
both("renorm", lambda f, x: f.renorm(x, 2, 0, 1.5), second=False)
row("cdist", lambda x, y: ag.ops.cdist(x, y, 3.0),
    lambda t, u: linalg.vector_norm(t[:, None] - u, 3, 2), (2, 3), (4, 3))  # fmt: skip
row("pdist", lambda x: ag.ops.pdist(x, 3.0), lambda t: linalg.vector_norm(
    t[[0, 0, 1]] - t[[1, 2, 2]], 3, 1), (3, 4))  # fmt: skip

# -- spectra --------------------------------------------------------------------------------------

alike("fft fft2 fftn ifft ifft2 ifftn", (2, 3, 4), space=fft)
alike("rfft rfft2 rfftn ihfft ihfft2 ihfftn", (2, 3, 4), space=fft)
alike("irfft irfft2 irfftn hfft hfft2 hfftn", (2, 3, 4), space=fft)
alike("fftshift ifftshift", (3, 4), space=fft)
for n in (3, 8):
    row(f"rfft {n}", lambda x, n=n: ag.ops.rfft(x, n, norm="ortho"),
        lambda t, n=n: fft.rfft(t, n, norm="ortho"), (2, 5))  # fmt: skip
both("fftn of sizes", lambda f, x: f.fftn(x, (2, 6), (0, 1), "forward"), (3, 4), space=fft)
WINDOW = np.hanning(6)[1:5]
row("stft", lambda x: ag.ops.stft(x, 4, 2, window=x.graph.constant(WINDOW, x.dtype)),
    lambda t: torch.stft(t, 4, 2, window=torch.tensor(WINDOW).to(t.dtype), return_complex=True),
    (2, 10))  # fmt: skip
row("istft", lambda x: ag.ops.istft(as_complex(x), 4, 2), lambda t: torch.istft(
    as_complex(t), 4, 2, window=torch.ones(4, dtype=t.real.dtype)), (2, 3, 5))  # fmt: skip


def as_complex(x):
    if isinstance(x, torch.Tensor):
        return x + torch.zeros((), dtype=x.dtype.to_complex())
    return ag.ops.astype(x, np.result_type(x.dtype, "complex64"))
