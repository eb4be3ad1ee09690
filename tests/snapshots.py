"""Pictures compared with committed ones, in small, in grey and without letters.

Fonts and anti-aliasing differ between versions of matplotlib, so text, ticks and legends are left
out, both pictures are blurred, and a small share of pixels may differ. After a change of a picture
that is meant, renew the committed ones in tests/data/plots, look at them, and commit them:

    RENEW_SNAPSHOTS=1 pytest tests/test_plots.py
"""

import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

FOLDER = Path(__file__).parent / "data" / "plots"
DPI = 70  # 231 pixels for the width of a column
FAR, MOST = 12, 0.002  # levels of grey of 256 after blurring; share of the pixels


def pixels(figure):
    """The figure in grey, ``(height, width)``, without what depends on fonts."""
    figure.set_layout_engine("none")
    for axis in figure.axes:
        axis.tick_params(length=0, which="both")
        if axis.get_legend() is not None:
            axis.get_legend().set_visible(False)
    for legend in figure.legends:
        legend.set_visible(False)
    for text in figure.findobj(Text):
        text.set_visible(False)
    figure.set_dpi(DPI)
    figure.canvas.draw()
    rgb = np.asarray(figure.canvas.buffer_rgba())[:, :, :3]
    return np.asarray(Image.fromarray(rgb.copy()).convert("L"))


def difference(one, other):
    """The share of pixels that differ visibly."""
    if one.shape != other.shape:
        return 1.0
    return float(np.mean(np.abs(_blurred(one) - _blurred(other)) > FAR))


def assert_same_picture(axes, name):
    figure = np.ravel(axes)[0].figure
    drawn, path = pixels(figure), FOLDER / f"{name}.png"
    if os.environ.get("RENEW_SNAPSHOTS"):
        FOLDER.mkdir(exist_ok=True, parents=True)
        Image.fromarray(drawn).save(path, optimize=True)
        pytest.skip(f"renewed {path.name}: look at it")
    share = difference(drawn, np.asarray(Image.open(path)))
    assert share <= MOST, (
        f"{share:.1%} of the picture {name!r} has changed; if that is meant, renew it with "
        "RENEW_SNAPSHOTS=1 pytest tests/test_plots.py"
    )


def _blurred(picture):
    """Means over 3 × 3 pixels."""
    padded = np.pad(picture.astype(float), 1, mode="edge")
    height, width = picture.shape
    shifts = [padded[i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.mean(shifts, axis=0)
