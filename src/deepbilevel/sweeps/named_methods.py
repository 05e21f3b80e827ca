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
        "no-l1": NamedMethod("ablations", "bilevel, weights not divided by their sum", _bilevel(normalize=False)),
        "per-layer": NamedMethod("ablations", "bilevel, weights for every layer", _bilevel(per_layer=True)),
        "unmatched": NamedMethod(
            "ablations", "bilevel, mini-batches with other labels each", {**_bilevel(), "group.matched": False}
        ),
        "shared-dropout": NamedMethod(
            "ablations", "bilevel, the same dropout for a whole group", _bilevel(shared_dropout=True)
        ),
        "exact": NamedMethod("ablations", "bilevel, the linear system solved exactly", _bilevel(solver="exact")),
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
        "cross-validated-filter": NamedMethod(
            "ours", "the same, filter by filter", {"method": "cross-validated", "method.block": "filter"}
        ),
        "cross-validated-layer": NamedMethod(
            "ours", "the same, layer by layer", {"method": "cross-validated", "method.block": "layer"}
        ),
        "cross-validated-model": NamedMethod(
            "ours", "the same, for the whole network at once", {"method": "cross-validated", "method.block": "model"}
        ),
        "gce": NamedMethod(
            "others", "generalised cross-entropy, a bounded loss", {"loss": "generalized-cross-entropy"}
        ),
    }
)


def names_of(group: str) -> list[str]:
    """Return the names in a group, or all of them.

    >>> names_of("ours")[0]
    'cross-validated'
    """
    return [name for name, method in METHODS.items() if group in (EVERYTHING, method.group)]
