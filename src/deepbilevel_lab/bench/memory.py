"""The most memory an update needs above the parameters, counted in bytes and told in multiples of the model's size.

The optimizer's momentum, gradients and activations are all in it. Only what operations allocate is counted, so the
figures are the same on every machine.
"""

from deepbilevel import Bilevel, CrossValidated, GroupStep
from deepbilevel.rules.exact import ExactBilevel
from deepbilevel_lab.bench.contenders import (
    ACCUMULATION,
    AT_ONCE,
    BILEVEL,
    SGD,
    accumulation,
    ours,
    ours_at_once,
    sgd,
    sgd_on_one,
)
from deepbilevel_lab.bench.counting import LiveBytes
from deepbilevel_lab.bench.work import Setting, Work

ONE_MINI_BATCH = "SGD, one mini-batch"
CONTENDERS = {
    ONE_MINI_BATCH: sgd_on_one,
    SGD: sgd,
    ACCUMULATION: accumulation,
    BILEVEL: ours(Bilevel),
    AT_ONCE: ours_at_once(Bilevel),
    "cross-validated": ours(CrossValidated),
    "bilevel, exact": ours(GroupStep, rule=ExactBilevel()),
}


def peaks_in_models(setting: Setting) -> dict[str, float]:
    """Return the peak of two updates for every contender."""
    work = Work.of(setting)
    size = work.model_bytes
    peaks: dict[str, float] = {}
    for name, prepare in CONTENDERS.items():
        update = prepare(work)
        with LiveBytes() as memory:
            update()  # makes the optimizer's momentum
            update()
        peaks[name] = memory.peak / size
    return peaks
