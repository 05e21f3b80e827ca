"""Which runs can be spread over processes, and why others cannot.

What a rule must see in one place is known by the rule, what a loss remembers by the loss; here it is said with the
names of a spec, before anything is built.
"""

from deepbilevel_lab.losses.objective import ObjectiveSpec
from deepbilevel_lab.specs import SpecError
from deepbilevel_lab.training.spec import RunSpec


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
    if not method.splits:
        return (
            f"method {method.kind} takes the group as one batch, which cannot be spread over processes; take method "
            "uniform with method.use_validation=true, which learns from the same images in parts"
        )
    if not method.spreads:
        return f"method {method.kind} compares all gradients with each other, in one process; take another method"
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
    return None
