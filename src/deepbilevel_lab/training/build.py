"""The only place where a spec becomes objects."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from deepbilevel.distributed import share
from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep
from deepbilevel_lab.data import LabelledSet, find_recipe, load_data
from deepbilevel_lab.data.own_items import OwnSets
from deepbilevel_lab.data.views import find_view
from deepbilevel_lab.losses.objective import Objective, ObjectiveSpec, Task
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.processes import find_processes
from deepbilevel_lab.processes.one_process import OneProcess
from deepbilevel_lab.run_references import referred_run
from deepbilevel_lab.training.auditing import RunAudit
from deepbilevel_lab.training.averaging import make_averaged
from deepbilevel_lab.training.devices import find_device, make_autocast
from deepbilevel_lab.training.feeding import Batch, Feed
from deepbilevel_lab.training.group_passes import make_step
from deepbilevel_lab.training.inputs import encoding_of, for_rows, input_shape
from deepbilevel_lab.training.sets import OtherRuns, encoded, load_sets, needed
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.streams import seed_streams

_BESIDE_DATA = "data:"  # weights in the folder of the data sets, which is another on every machine


@dataclass(frozen=True, eq=False)
class Parts:
    """The objects of a run.

    Attributes:
        objective: the loss, where it remembers or learns something; its parameters are trained with the network's.
        averaged: the network with weights that are averaged over steps, where the spec wants them.
        rated: whose figures are called those of training; usually the images trained on.
        selection: what settings and epochs may be chosen by, if the spec sets images aside.
        step: all passes of a group, and what the method makes of them.
        num_parts: into how many mini-batches a group is cut: k, or 1 where the group is one batch.
        processes: those that share the run.
        audit: what the run sees of every label, if the spec wants it kept.
        notes: what a person should know.
    """

    spec: RunSpec
    model: nn.Module
    averaged: AveragedModel | None
    objective: Objective | None
    method: GroupStep[Any]
    optimizer: Optimizer
    scaler: GradScaler | None
    groups: MatchedGroups
    train: Feed
    rated: Feed
    selection: Feed | None
    test: Feed
    step: Callable[[list[Batch]], Any]
    autocast: torch.autocast | None
    num_parts: int
    processes: OneProcess
    audit: RunAudit | None
    notes: tuple[str, ...] = ()

    @property
    def result(self) -> nn.Module:
        """The network that is evaluated and kept."""
        return self.model if self.averaged is None else self.averaged.module


def build(
    spec: RunSpec, data_dir: Path, *, workers: int = 0, runs: OtherRuns | None = None, own: OwnSets | None = None
) -> Parts:
    """Make everything a run needs; the process's random numbers and threads are set as the spec says."""
    processes = find_processes()
    torch.set_num_threads(processes.threads(spec.threads))
    sets = load_sets(spec.data, data_dir, noise=spec.noise, seed=spec.seed, runs=runs, own=own)
    sets = encoded(sets, spec.network)
    train_set = sets.train
    device = find_device(spec.device)
    # A feed wants whole groups, to draw for each of their images whoever prepares it.
    groups = share(_make_groups(spec, train_set), "nothing")
    seed_streams(spec.seed)
    network = for_rows(_found_weights(spec.network, data_dir, runs), encoding_of(train_set))
    notes: list[str] = []
    model = make_model(network, train_set.num_classes, input_shape(train_set), notes.append).to(device)
    scaler = GradScaler(spec.device) if spec.precision == "float16" else None
    autocast = make_autocast(spec)
    objective = _make_objective(spec, network, model, train_set, autocast)
    trained = _trained_together(model, objective)
    optimizer = spec.optimizer.make(trained, network=model)
    method, num_parts = _make_method(spec, trained, scaler, optimizer)
    _warn_of_single_images(model, spec.group.size // num_parts)
    train = make_feed(spec, train_set, device, split="train", workers=workers)
    audit = RunAudit(train_set, sets.test if spec.data.tests_doubtful_labels else None, device) if spec.audit else None
    return Parts(
        spec=spec,
        model=model,
        averaged=make_averaged(spec, model),
        objective=objective,
        method=method,
        optimizer=optimizer,
        scaler=scaler,
        groups=groups,
        train=train,
        rated=_make_rated_feed(spec, data_dir, device, workers) or train,
        selection=None if sets.selection is None else make_feed(spec, sets.selection, device, split="test"),
        test=make_feed(spec, sets.test, device, split="test", workers=workers),
        step=make_step(spec, model, objective, method, autocast, audit),
        autocast=autocast,
        num_parts=num_parts,
        processes=processes,
        audit=audit,
        notes=tuple(notes),
    )


def _make_groups(spec: RunSpec, data: LabelledSet) -> MatchedGroups:
    group = spec.group
    try:
        return MatchedGroups(
            data.labels.numpy(),
            num_batches=group.num_batches,
            batch_size=group.batch_size,
            seed=spec.seed,
            matched=spec.matched,
            holdout=group.holdout,
            draw=group.draw,
            on_rare=group.on_rare,
        )
    except ValueError as error:
        raise ValueError(
            f"{error}. Options: --num-batches (now {group.num_batches}), --batch-size (now {group.batch_size}), --set "
            f"group.on_rare=repeat or drop (now {group.on_rare})"
        ) from error


def _found_weights(spec: NetworkSpec, data_dir: Path, runs: OtherRuns | None) -> NetworkSpec:
    """Return the spec with a plain path for its weights."""
    if spec.weights is None:
        return spec
    run_id = referred_run(spec.weights)
    if run_id is not None:
        return replace(spec, weights=needed(runs, run_id).weights(run_id))
    is_beside_data = spec.weights.startswith(_BESIDE_DATA)
    return replace(spec, weights=str(data_dir / spec.weights.removeprefix(_BESIDE_DATA))) if is_beside_data else spec


def make_feed(spec: RunSpec, data: LabelledSet, device: torch.device, *, split: Any, workers: int = 0) -> Feed:
    """Return the way of a data set's images to the network of a spec."""
    view = None if spec.data.view is None else find_view(spec.data.view, spec.network_side)
    recipe = find_recipe(spec.data.recipe)
    return Feed(data, recipe, view, split=split, seed=spec.seed, device=device, workers=workers, mixing=spec.mixing)


def _make_rated_feed(spec: RunSpec, data_dir: Path, device: torch.device, workers: int) -> Feed | None:
    """Return the way of the images that figures of training are of, if they are others than those trained on."""
    if spec.data.train_figures == "trained":
        return None
    whole = load_data(spec.data.name, data_dir, spec.data.train_split)
    return make_feed(spec, whole, device, split="train", workers=workers)


def _make_objective(
    spec: RunSpec, network: NetworkSpec, model: nn.Module, data: LabelledSet, autocast: torch.autocast | None
) -> Objective | None:
    if not isinstance(spec.loss, ObjectiveSpec):
        return None
    device = next(model.parameters()).device
    task = Task(
        labels=data.labels.to(device),
        num_classes=data.num_classes,
        num_epochs=spec.epochs,
        network=model,
        make_network=lambda: make_model(network, data.num_classes, input_shape(data)),
        autocast=autocast,
    )
    return spec.loss.make(task).to(device)


def _trained_together(model: nn.Module, objective: Objective | None) -> nn.Module:
    """Return the network, together with the objective if there is anything to learn in it."""
    if objective is None or not any(parameter.requires_grad for parameter in objective.parameters()):
        return model
    return nn.ModuleList([model, objective])


def _make_method(
    spec: RunSpec, model: nn.Module, scaler: GradScaler | None, optimizer: Optimizer
) -> tuple[GroupStep[Any], int]:
    num_parts = spec.group.num_batches if spec.method.splits else 1
    shrunk = optimizer if spec.method.shrinks_updates else None
    step = GroupStep(model, spec.method, num_batches=num_parts, optimizer=shrunk, scaler=scaler)
    return share(step, "batches"), num_parts


def _warn_of_single_images(model: nn.Module, batch_size: int) -> None:
    if batch_size == 1 and any(isinstance(module, _BatchNorm) for module in model.modules()):
        warnings.warn(
            "group.batch_size is 1 and the network has BatchNorm, whose statistics of a single image mean little; "
            "take a larger batch_size, or a network without BatchNorm such as cifarnet",
            stacklevel=3,
        )
