"""The methods that can be compared, by name: each is settings for a run, and nothing but data.

A name that says nothing about ``method`` stands on plain SGD. To add one, add an entry; the battery of the tests, the
list of the command and the groups of names find it here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class NamedMethod:
    """What a name stands for.

    Attributes:
        group: the shorthand under which it is asked for together with others.
        description: in one line.
        settings: dotted keys of a run and their values.
    """

    group: str
    description: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


GROUPS: Mapping[str, str] = MappingProxyType(
    {
        "paper": "the paper's method, and those it is compared with",
        "ablations": "the paper's method with one thing changed",
        "controls": "what the method's parts do without its rule",
        "ours": "the cross-validated gradient, and its coarser forms",
        "others": "methods the paper does not compare with",
    }
)
EVERYTHING = "all"


def _noise_layer(**settings: Any) -> dict[str, Any]:
    return {"loss": "noise-layer", **{f"loss.{key}": value for key, value in settings.items()}}


def _bilevel(**settings: Any) -> dict[str, Any]:
    return {"method": "bilevel", **{f"method.{key}": value for key, value in settings.items()}}


# Each mini-batch is one forward and backward pass of its own, so BatchNorm normalises and back-propagates within it, as
# ghost BatchNorm does (Hoffer et al. 2017); the mean of the gradients is that of the whole batch in everything else.
# The mini-batches must be drawn as SGD draws its batch, without regard to labels, or two things would differ.
_GHOST = {"method": "uniform", "method.use_validation": True, "group.matched": False}

METHODS: Mapping[str, NamedMethod] = MappingProxyType(
    {
        "sgd": NamedMethod("paper", "plain training, the group as one batch", {"method": "sgd"}),
        "bilevel": NamedMethod("paper", "the paper's rule: weights by agreement with validation", _bilevel()),
        "dropout": NamedMethod("paper", "dropout that keeps 0.3", {"network.dropout": 0.7}),
        "label-smoothing": NamedMethod(
            "paper", "a tenth of every label is spread over all classes", {"loss": "label-smoothing"}
        ),
        "mixup": NamedMethod("paper", "images and labels are blended in pairs", {"mixing": "mixup"}),
        "bootstrap-soft": NamedMethod(
            "paper", "a share of every label is what the network predicts", {"loss": "bootstrap-soft"}
        ),
        "bootstrap-hard": NamedMethod(
            "paper", "a share of every label is the class the network predicts", {"loss": "bootstrap-hard"}
        ),
        "noise-layer": NamedMethod("paper", "Goldberger: a layer learns how labels go wrong", _noise_layer()),
        "noise-layer-complex": NamedMethod(
            "paper", "the same, depending on the image's features", _noise_layer(depends_on="features")
        ),
        "noise-layer-linear": NamedMethod(
            "paper", "Sukhbaatar: a matrix of probabilities is trained itself", _noise_layer(linear=True)
        ),
        "noise-layer-dropout": NamedMethod(
            "paper", "Jindal & Chen: the layer behind dropout", _noise_layer(dropout=0.1)
        ),
        "forward": NamedMethod("paper", "Patrini: predictions corrected for noise", {"loss": "forward-correction"}),
        "backward": NamedMethod("paper", "Patrini: losses corrected for noise", {"loss": "backward-correction"}),
        "mentornet": NamedMethod("paper", "without clean data: hard images count less", {"loss": "self-paced"}),
        "air": NamedMethod("paper", "Azadi: a last layer with few answers per image", {"loss": "auxiliary-images"}),
        "no-l1": NamedMethod("ablations", "bilevel, weights not divided by their sum", _bilevel(normalize=False)),
        "per-layer": NamedMethod("ablations", "bilevel, weights for every layer", _bilevel(per_layer=True)),
        "unmatched": NamedMethod(
            "ablations", "bilevel, mini-batches with other labels each", {**_bilevel(), "group.matched": False}
        ),
        "shared-dropout": NamedMethod(
            "ablations", "bilevel, the same dropout for a whole group", {**_bilevel(), "shared_dropout": True}
        ),
        "exact": NamedMethod("ablations", "bilevel, the linear system solved exactly", {"method": "exact"}),
        "k-fold": NamedMethod("ablations", "bilevel, all others validate each mini-batch", {"method": "k-fold"}),
        "momentum": NamedMethod("ablations", "bilevel, validated by an average over steps", {"method": "momentum"}),
        "cosine": NamedMethod("ablations", "bilevel, weights are cosines", _bilevel(weighting="cosine")),
        "ghost-sgd": NamedMethod("controls", "SGD with ghost BatchNorm, over mini-batches of the group", _GHOST),
        "accumulation": NamedMethod(
            "controls", "the mean over bilevel's mini-batches", {"method": "uniform", "method.use_validation": True}
        ),
        "uniform": NamedMethod(
            "controls", "the mean over bilevel's mini-batches, validation left out", {"method": "uniform"}
        ),
        "random": NamedMethod("controls", "bilevel, random weights", _bilevel(weighting="random")),
        "absolute": NamedMethod("controls", "bilevel, |w| for w", _bilevel(weighting="absolute")),
        "clipped": NamedMethod("controls", "bilevel, w without its negative part", _bilevel(weighting="clipped")),
        "cross-validated": NamedMethod(
            "ours", "what mini-batches agree on, parameter by parameter", {"method": "cross-validated"}
        ),
        "cross-validated-averaged": NamedMethod(
            "ours",
            "the same, signal and noise averaged over steps, shrunk as the mean of 8",
            {"method": "cross-validated", "method.strength": 0.125, "method.momentum": 0.9},
        ),
        "cross-validated-filter": NamedMethod(
            "ours", "the same, filter by filter", {"method": "cross-validated", "method.block": "filter"}
        ),
        "cross-validated-layer": NamedMethod(
            "ours", "the same, layer by layer", {"method": "cross-validated", "method.block": "layer"}
        ),
        "cross-validated-model": NamedMethod(
            "ours", "the same, for the whole network at once", {"method": "cross-validated", "method.block": "model"}
        ),
        "and-mask": NamedMethod("others", "only parameters on whose sign mini-batches agree", {"method": "and-mask"}),
        "median-of-three": NamedMethod("others", "the median of three means", {"method": "median-of-three"}),
        "gsnr": NamedMethod("others", "parameters weighted by signal to noise", {"method": "gsnr"}),
        "gaf": NamedMethod(
            "others", "gradient agreement filtering: what points elsewhere is left out", {"method": "agreement-filter"}
        ),
        "elr": NamedMethod("others", "held to what was believed early", {"loss": "early-learning"}),
        "co-teaching": NamedMethod("others", "two networks choose images for each other", {"loss": "co-teaching"}),
        "weight-averaging": NamedMethod(
            "others", "the network is an average of weights over about 100 steps", {"weight_averaging": 0.99}
        ),
        "gce": NamedMethod(
            "others", "generalised cross-entropy, a bounded loss", {"loss": "generalized-cross-entropy"}
        ),
    }
)


COMBINED: Mapping[str, str] = MappingProxyType({"bilevel+mixup": "paper", "cross-validated+mixup": "ours"})
"""Combinations that belong to a group: the paper's best row, and ours."""


def names_of(group: str) -> list[str]:
    """Return the names in a group, or all of them.

    >>> names_of("ours")[0]
    'cross-validated'
    """
    groups = {**{name: method.group for name, method in METHODS.items()}, **COMBINED}
    return [name for name, own in groups.items() if group in (EVERYTHING, own)]
