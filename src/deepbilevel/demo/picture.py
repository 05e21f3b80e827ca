"""The demonstration as a picture: test accuracy per epoch, one line per method, its spread over seeds as a band."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deepbilevel.demo.summary import NAMES
from deepbilevel.demo.training import METHODS, Curve, Method, Setting

# Okabe and Ito's palette stays apart for colour-blind readers; line styles carry the same information.
_LOOKS: dict[Method, tuple[str, str]] = {
    "sgd": ("#D55E00", "--"),
    "uniform": ("#666666", ":"),
    "bilevel": ("#0072B2", "-"),
}


def draw_curves(curves: Sequence[Curve], setting: Setting, path: Path) -> None:
    """Write a PNG of the curves to ``path``."""
    from matplotlib.figure import Figure  # without pyplot: no window system, no global state

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    epochs = np.arange(1, setting.epochs + 1)
    for method in METHODS:
        runs = np.array([curve.test for curve in curves if curve.method == method])
        colour, style = _LOOKS[method]
        axes.plot(epochs, runs.mean(axis=0), style, color=colour, linewidth=2, label=NAMES[method])
        axes.fill_between(epochs, runs.min(axis=0), runs.max(axis=0), color=colour, alpha=0.15, linewidth=0)
    num_seeds = len({curve.seed for curve in curves})
    axes.set_title(
        f"Digits with {setting.noise_rate:.0%} wrong labels: mean and range of {num_seeds} seeds", loc="left"
    )
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy, clean labels (%)")
    axes.set_xlim(1, max(2, setting.epochs))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=160)
