"""The methods that are tried before one is recommended, and how each is used in one's own loop.

All of them average weights, which costs nothing and harms none; see docs/results.md for why these and no others. The
order is that of the results there, the best first: it decides where somebody's own data cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.sweeps.comparison import plan
from deepbilevel_lab.sweeps.expressions import read_methods
from deepbilevel_lab.training.spec import RunSpec

_AVERAGE = """\
def blend(average, weight, count):                       # at first a larger share of the new weights
    share = max(0.01, 9 / (10 + int(count)))
    return average.lerp(weight, share) if average.is_floating_point() else weight
averaged = torch.optim.swa_utils.AveragedModel(model, avg_fn=blend, use_buffers=True)
averaged.update_parameters(model)                        # after every optimizer.step()
averaged(images)                                         # evaluate and keep this one"""
_GROUPS = """\
step = CrossValidated(model, num_batches=8, strength=1 / 8, momentum=0.9)
# with Adam or AdamW add: shrink="update", optimizer=optimizer
step.backward(criterion(model(images), labels))          # instead of loss.backward()
if step.full:                                            # after 8 mini-batches
    step.fill(); optimizer.step()                        # instead of optimizer.step()"""
_LOSS = """\
p = model(images).softmax(1).gather(1, labels[:, None])  # probability of the given label
loss = ((1 - p.clamp(min=1e-4) ** 0.7) / 0.7).mean()     # instead of cross-entropy
loss.backward()
optimizer.step()"""
_MIXUP = """\
order, share = torch.randperm(len(images)), torch.distributions.Beta(1.0, 1.0).sample()
scores = model(share * images + (1 - share) * images[order])
loss = share * criterion(scores, labels) + (1 - share) * criterion(scores, labels[order])
loss.backward(); optimizer.step()"""

_EARLY = """\
p = scores.softmax(1).clamp(1e-4, 1 - 1e-4)              # scores = model(images)
beliefs[indices] = 0.7 * beliefs[indices] + 0.3 * p.detach() / p.detach().sum(1, keepdim=True)   # zeros at first
loss = criterion(scores, labels) + 3 * torch.log1p(-(beliefs[indices] * p).sum(1)).mean()
loss.backward(); optimizer.step()"""


@dataclass(frozen=True)
class Candidate:
    """A method that may be recommended.

    Attributes:
        words: what it is, for people; ``{optimizer}`` stands for the name of the optimizer.
        lines: its use in one's own loop.
    """

    words: str
    lines: str


BASELINE = "weight-averaging"
CANDIDATES: Mapping[str, Candidate] = MappingProxyType(
    {
        "elr+weight-averaging": Candidate("early-learning regularisation with weight averaging", _EARLY),
        "gce+weight-averaging": Candidate("generalised cross-entropy with weight averaging", _LOSS),
        "mixup+weight-averaging": Candidate("mixup with weight averaging", _MIXUP),
        "cross-validated-averaged+weight-averaging": Candidate(
            "the cross-validated gradient with weight averaging", _GROUPS
        ),
        BASELINE: Candidate("plain {optimizer} with weight averaging", _AVERAGE),
    }
)


def fitting(base: RunSpec) -> tuple[list[str], dict[str, str]]:
    """Return the candidates that the data admits, and why the others are left out."""
    names: list[str] = []
    refused: dict[str, str] = {}
    for name in CANDIDATES:
        try:
            plan(base, read_methods(name), [base.seed])
        except SpecError as error:
            refused[name] = str(error)
        else:
            names.append(name)
    return names, refused
