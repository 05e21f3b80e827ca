"""Which runs can be spread over processes, and why others cannot.

What a rule must see in one place is known by the rule, what a loss remembers by the loss; here it is said with the
names of a spec, before anything is built.
"""

from deepbilevel.methods import AgreementFilterSpec, BilevelSpec, SgdSpec
from deepbilevel.methods.objective import ObjectiveSpec
from deepbilevel.specs import SpecError
from deepbilevel.training.spec import RunSpec


def check_spread(spec: RunSpec, num_processes: int) -> None:
    """Refuse a run that would not be the same in so many processes as in one."""
    if num_processes == 1:
        return
    if spec.group.num_batches < num_processes:
        raise SpecError(
            f"group.num_batches {spec.group.num_batches} is too small for {num_processes} processes: one of them would "
            f"have nothing to do; start at most {spec.group.num_batches} (--nproc-per-node), or take larger groups"
        )
    reason = _of_method(spec) or _of_passes(spec) or _of_loss(spec) or _of_device(spec)
    if reason is not None:
        raise SpecError(f"{reason}; or start one process, without torchrun")


def _of_method(spec: RunSpec) -> str | None:
    method = spec.method
    if isinstance(method, SgdSpec):
        return (
            "method sgd takes the group as one batch, which cannot be spread over processes; take method uniform with "
            "method.use_validation=true, which learns from the same images in parts"
        )
    if isinstance(method, AgreementFilterSpec):
        return f"method {method.kind} compares all gradients with each other, in one process; take another method"
    if isinstance(method, BilevelSpec) and method.solver == "exact":
        return "method.solver 'exact' needs all gradients in one process; take 'diagonal'"
    if isinstance(method, BilevelSpec) and method.validation == "k-fold":
        return "method.validation 'k-fold' needs all gradients in one process; take 'first' or 'momentum'"
    return None


def _of_passes(spec: RunSpec) -> str | None:
    if spec.passes == "joined":
        return "passes 'joined' runs several mini-batches in one process; take 'single'"
    return None


def _of_loss(spec: RunSpec) -> str | None:
    why = spec.loss.why_not_spread() if isinstance(spec.loss, ObjectiveSpec) else None
    return None if why is None else f"loss {spec.loss.kind} {why}, so it cannot be spread over processes; take another"


def _of_device(spec: RunSpec) -> str | None:
    if spec.device == "mps":
        return "device 'mps' cannot be shared by processes; take 'cpu'"
    if spec.device == "cuda" and isinstance(spec.method, BilevelSpec) and spec.method.weighting == "random":
        return "method.weighting 'random' draws on each GPU for itself, so processes would not agree; take 'cpu'"
    return None
