"""Drawn calls of convolutions, pools, windows and resampling."""

import math

import numpy as np
from hypothesis import strategies as st

import actorgraph as ag
from tests.ops._drawn import MADE_OF, ROWS, drawn, flags, pulled, row, sizes


def per_axis(draw, strategy, axes):
    """One value for all axes, or one for each."""
    return draw(strategy) if draw(flags) else tuple(draw(strategy) for _ in range(axes))


def spans(value, axes):
    return value if isinstance(value, tuple) else (value,) * axes


def borders(draw, axes):
    return tuple((draw(sizes(0, 2)), draw(sizes(0, 2))) for _ in range(axes))


def image(draw, axes, kernel, dilation, pads):
    """Sizes that hold a window at least once."""
    return tuple(
        max(1, d * (k - 1) + 1 - sum(pad)) + draw(sizes(0, 2))
        for k, d, pad in zip(kernel, spans(dilation, axes), pads, strict=True)
    )


def conv_of(axes):
    def conv(draw, f):
        f = f or getattr(ag.ops, f"conv{axes}d")
        groups, features, channels = draw(sizes(1, 2)), draw(sizes(1, 2)), draw(sizes(1, 2))
        kernel = tuple(draw(sizes(1, 3 if axes < 3 else 2)) for _ in range(axes))
        dilation = per_axis(draw, sizes(1, 2), axes)
        pads = borders(draw, axes)
        x = (draw(sizes(0, 2)), groups * channels, *image(draw, axes, kernel, dilation, pads))
        padding = draw(st.sampled_from((pads, "same")))
        options = {
            "stride": per_axis(draw, sizes(1, 3), axes), "padding": padding,
            "dilation": dilation, "groups": groups,
        }  # fmt: skip
        bias = [(groups * features,)] * draw(flags)
        weight = (groups * features, channels, *kernel)
        return drawn(f, x, weight, *bias, options=options)

    return conv


def transposed_conv_of(axes):
    def conv_transpose(draw, f):
        f = f or getattr(ag.ops, f"conv_transpose{axes}d")
        groups, features, channels = draw(sizes(1, 2)), draw(sizes(1, 2)), draw(sizes(1, 2))
        kernel = tuple(draw(sizes(1)) for _ in range(axes))
        stride = tuple(draw(sizes(1)) for _ in range(axes))
        options = {
            "stride": stride, "dilation": per_axis(draw, sizes(1, 2), axes), "groups": groups,
            "padding": draw(sizes(0, min(kernel) - 1)),
            "output_padding": tuple(draw(sizes(0, step - 1)) for step in stride),
        }  # fmt: skip
        x = (draw(sizes(0, 2)), groups * channels, *(draw(sizes(2, 3)) for _ in range(axes)))
        bias = [(groups * features,)] * draw(flags)
        weight = (groups * channels, features, *kernel)
        return drawn(f, x, weight, *bias, options=options)

    return conv_transpose


def pool_of(axes, kind):
    def pool(draw, f):
        f = f or getattr(ag.ops, f"{kind}_pool{axes}d")
        kernel = tuple(draw(sizes(1)) for _ in range(axes))
        padding = tuple(draw(sizes(0, k // 2)) for k in kernel)
        options = {
            "kernel_size": kernel, "stride": per_axis(draw, sizes(1), axes), "padding": padding,
            "ceil_mode": draw(flags),
        }  # fmt: skip
        if kind == "avg":
            options["count_include_pad"] = draw(flags)
            options["divisor_override"] = draw(st.sampled_from((None, 3)))
        elif not any(padding):  # else a window might hold nothing but padding
            options["dilation"] = per_axis(draw, sizes(1, 2), axes)
        pads = [(pad, pad) for pad in padding]
        places = image(draw, axes, kernel, options.get("dilation", 1), pads)
        x = (draw(sizes(0, 2)), draw(sizes(0, 2)), *places)
        return drawn(f, x, options=options)

    return pool


def lp_pool_of(axes):
    def lp_pool(draw, f):
        kernel = tuple(draw(sizes(1)) for _ in range(axes))
        options = {
            "norm_type": draw(st.sampled_from((1.0, 2.0, 3.0))), "kernel_size": kernel,
            "stride": per_axis(draw, sizes(1), axes), "ceil_mode": draw(flags),
        }  # fmt: skip
        places = image(draw, axes, kernel, 1, ((0, 0),) * axes)
        x = (draw(sizes(0, 2)), draw(sizes(0, 2)), *places)
        return drawn(f, x, options=options, low=0.3, rtol32=1e-3)

    return lp_pool


def max_unpool_of(axes):
    def max_unpool(draw, f):
        options = {"kernel_size": draw(sizes(1)), "stride": per_axis(draw, sizes(1), axes)}
        places = tuple(draw(sizes(1, 3 if axes < 3 else 2)) for _ in range(axes))
        x = (*draw(st.sampled_from(((2,), (2, 1), (0, 2)))), *places)
        # Positions below this lie in the image whatever its sizes are.
        return drawn(f, x, x, options=options, ints={1: math.prod(places)})

    return max_unpool


def fractional_pool_of(axes):
    def fractional_pool(draw, f):
        kernel, outs = per_axis(draw, sizes(1), axes), per_axis(draw, sizes(1), axes)
        least = [a + b - 1 for a, b in zip(spans(kernel, axes), spans(outs, axes), strict=True)]
        x = (draw(sizes(0, 2)), draw(sizes(1, 2)), *(one + draw(sizes(0, 2)) for one in least))
        samples = np.linspace(0, 0.9, x[0] * x[1] * axes)
        options = {"kernel_size": kernel, "output_size": outs, "_random_samples": samples}
        return drawn(f, x, options=options)

    return fractional_pool


def adaptive_pool_of(axes):
    def adaptive_pool(draw, f):
        places = (draw(sizes(1, 5 if axes < 3 else 3)) for _ in range(axes))
        x = (draw(sizes(0, 2)), draw(sizes(0, 2)), *places)
        return drawn(f, x, options={"output_size": per_axis(draw, sizes(1, 4), axes)})

    return adaptive_pool


for _axes in (1, 2, 3):
    row(f"conv{_axes}d")(conv_of(_axes))
    row(f"conv_transpose{_axes}d")(transposed_conv_of(_axes))
    row(f"lp_pool{_axes}d")(lp_pool_of(_axes))
    row(f"max_unpool{_axes}d")(max_unpool_of(_axes))
    row(f"adaptive_avg_pool{_axes}d", f"adaptive_max_pool{_axes}d")(adaptive_pool_of(_axes))
    if _axes > 1:
        row(f"fractional_max_pool{_axes}d")(fractional_pool_of(_axes))
    for _kind in ("max", "avg"):
        row(f"{_kind}_pool{_axes}d")(pool_of(_axes, _kind))


@row("global_avg_pool", "global_max_pool")
def global_pool(draw, f):
    places = tuple(draw(sizes(1)) for _ in range(draw(sizes(1))))
    return drawn(f, (draw(sizes(0, 2)), draw(sizes(0, 2)), *places))


@row("upsample")
def upsample(draw, f):
    axes = draw(sizes(1, 3))
    smooth = (("linear",), ("bilinear", "bicubic"), ("trilinear",))[axes - 1]
    mode = draw(st.sampled_from(("nearest", "nearest-exact", "area", *smooth)))
    options = {"mode": mode, "align_corners": mode in smooth and draw(flags)}
    options["antialias"] = axes == 2 and mode in smooth and draw(flags)
    name = draw(st.sampled_from(("size", "scale_factor")))
    scales = st.sampled_from((1, 2, 1.7))
    options[name] = per_axis(draw, sizes(1, 5) if name == "size" else scales, axes)
    x = (draw(sizes(0, 2)), draw(sizes(0, 2)), *(draw(sizes(1)) for _ in range(axes)))
    return drawn(f, x, options=options)


@row("im2col")
def im2col(draw, f):
    axes = draw(sizes(1, 2))
    kernel, pads = tuple(draw(sizes(1)) for _ in range(axes)), borders(draw, axes)
    options = {
        "kernel_size": kernel, "stride": per_axis(draw, sizes(1), axes), "padding": pads,
        "dilation": per_axis(draw, sizes(1, 2), axes),
    }  # fmt: skip
    places = image(draw, axes, kernel, options["dilation"], pads)
    return drawn(f, (draw(sizes(0, 2)), draw(sizes(0, 2)), *places), options=options)


@row("unfold")
def unfold(draw, f):
    kernel, pad = (draw(sizes(1)), draw(sizes(1))), draw(sizes(0, 1))
    options = {
        "kernel_size": kernel, "dilation": draw(sizes(1, 2)), "padding": pad,
        "stride": per_axis(draw, sizes(1), 2),
    }  # fmt: skip
    places = image(draw, 2, kernel, options["dilation"], ((pad, pad),) * 2)
    return drawn(
        f, (*[draw(sizes(0, 2))] * draw(flags), draw(sizes(0, 2)), *places), options=options
    )


@row("fold")
def fold(draw, f):
    kernel, windows = (draw(sizes(1)), draw(sizes(1))), (draw(sizes(1)), draw(sizes(1)))
    stride, dilation = draw(sizes(1)), draw(sizes(1, 2))
    output = tuple(
        (n - 1) * stride + dilation * (k - 1) + 1 for n, k in zip(windows, kernel, strict=True)
    )
    options = {
        "output_size": output, "kernel_size": kernel, "dilation": dilation, "stride": stride,
    }  # fmt: skip
    channels = draw(sizes(0, 2)) * math.prod(kernel)
    lead = [draw(sizes(0, 2))] * draw(flags)
    return drawn(f, (*lead, channels, math.prod(windows)), options=options)


@row("affine_grid")
def affine_grid(draw, f):
    axes, batch = draw(sizes(2, 3)), draw(sizes(0, 2))
    size = (batch, 1, *(draw(sizes(1)) for _ in range(axes)))
    options = {"size": size, "align_corners": draw(flags)}
    return drawn(f, (batch, axes, axes + 1), options=options)


@row("grid_sample")
def grid_sample(draw, f):
    axes, batch = draw(sizes(2, 3)), draw(sizes(0, 2))
    modes = ("bilinear", "nearest", "bicubic")[: 3 if axes == 2 else 2]
    options = {
        "mode": draw(st.sampled_from(modes)), "align_corners": draw(flags),
        "padding_mode": draw(st.sampled_from(("zeros", "border", "reflection"))),
    }  # fmt: skip
    x = (batch, draw(sizes(1, 2)), *(draw(sizes(1)) for _ in range(axes)))
    grid = (batch, *(draw(sizes(1, 2)) for _ in range(axes)), axes)
    return drawn(f, x, grid, options=options, rtol32=1e-3)


@row("channel_shuffle")
def channel_shuffle(draw, f):
    groups = draw(sizes(1))
    x = (draw(sizes(0, 2)), groups * draw(sizes(0, 2)), draw(sizes(1)))
    return drawn(f, x, options={"groups": groups})


ROWS.update({
    "conv_weight": pulled("conv1d", wrt=1),
    "max_pool_places": pulled("max_pool1d"),
    "pool_put": pulled("max_pool2d"),
    "avg_pool_adjoint": pulled("avg_pool2d"),
    "adaptive_max_places": pulled("adaptive_max_pool1d"),
    "resample_adjoint": pulled("upsample"),
    "col2im": pulled("im2col"),
})  # fmt: skip
ROWS["pool_take"] = pulled("max_pool_places")
MADE_OF.update({
    "conv": "conv2d",
    "conv_transpose": "conv_transpose1d",
    "max_pool": "max_pool2d",
    "avg_pool": "avg_pool1d",
    "adaptive_max_pool": "adaptive_max_pool2d",
    "resample": "upsample",
})  # fmt: skip
