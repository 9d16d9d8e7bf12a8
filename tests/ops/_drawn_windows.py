"""Drawn calls of convolutions, pools, windows and resampling."""

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
        elif not any(padding):  # else a window might hold nothing but padding
            options["dilation"] = per_axis(draw, sizes(1, 2), axes)
        pads = [(pad, pad) for pad in padding]
        places = image(draw, axes, kernel, options.get("dilation", 1), pads)
        x = (draw(sizes(0, 2)), draw(sizes(0, 2)), *places)
        return drawn(f, x, options=options)

    return pool


for _axes in (1, 2, 3):
    row(f"conv{_axes}d")(conv_of(_axes))
for _axes in (1, 2):
    row(f"conv_transpose{_axes}d")(transposed_conv_of(_axes))
    for _kind in ("max", "avg"):
        row(f"{_kind}_pool{_axes}d")(pool_of(_axes, _kind))


@row("adaptive_avg_pool1d", "adaptive_max_pool1d")
def adaptive_pool1d(draw, f):
    x = (draw(sizes(0, 2)), draw(sizes(0, 2)), draw(sizes(1, 6)))
    return drawn(f, x, options={"output_size": draw(sizes(1, 4))})


@row("adaptive_avg_pool2d", "adaptive_max_pool2d")
def adaptive_pool2d(draw, f):
    x = (draw(sizes(0, 2)), draw(sizes(0, 2)), draw(sizes(1, 5)), draw(sizes(1, 5)))
    return drawn(f, x, options={"output_size": per_axis(draw, sizes(1, 4), 2)})


@row("global_avg_pool", "global_max_pool")
def global_pool(draw, f):
    places = tuple(draw(sizes(1)) for _ in range(draw(sizes(1))))
    return drawn(f, (draw(sizes(0, 2)), draw(sizes(0, 2)), *places))


@row("upsample")
def upsample(draw, f):
    axes = draw(sizes(1, 3))
    names = ("linear", "bilinear", "trilinear")
    mode = draw(st.sampled_from(("nearest", names[axes - 1])))
    options = {"mode": mode, "align_corners": mode != "nearest" and draw(flags)}
    name = draw(st.sampled_from(("size", "scale_factor")))
    options[name] = per_axis(draw, sizes(1, 5 if name == "size" else 2), axes)
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
