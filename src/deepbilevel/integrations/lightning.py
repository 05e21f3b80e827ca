"""Lightning: a callback that makes a group of mini-batches the step of a module that knows nothing of it.

    callback = BilevelCallback(num_batches=8)
    Trainer(callbacks=[callback]).fit(module, callback.loader(dataset, labels, batch_size=16, seed=0))

To Lightning a group looks like ``accumulate_grad_batches``: clipping, precision, schedulers, loggers and checkpoints
work as always. Only the backward pass is another.
"""

import functools
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor

from deepbilevel.audit import LabelAudit
from deepbilevel.checks import check_count
from deepbilevel.contract import Report, Rule
from deepbilevel.distributed import share
from deepbilevel.integrations.parts import SharedLater, check_loader, report_numbers
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.sampling import MatchedGroups, MatchedLoader
from deepbilevel.sampling.loader import make_loader
from deepbilevel.step import GroupStep

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.callbacks import GradientAccumulationScheduler
    from lightning.pytorch.utilities.model_helpers import is_overridden
except ImportError as error:
    raise ImportError(f"{error}; run: pip install 'deepbilevel[lightning]'") from error

__all__ = ["AuditCallback", "BilevelCallback"]


class BilevelCallback(Callback):
    """Trains a module by a rule over groups of mini-batches; its ``training_step`` returns a loss, as always.

    Numbers of each step are logged under ``bilevel/``. The module has one optimizer, and no ``backward`` of its own.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> labels = torch.arange(256) % 4
    >>> callback = BilevelCallback(num_batches=8)
    >>> loader = callback.loader(TensorDataset(torch.randn(256, 10), labels), labels, batch_size=16, seed=0)
    >>> trainer = Trainer(max_epochs=5, callbacks=[callback], logger=False)  # and then: trainer.fit(module, loader)
    >>> len(loader)  # two groups of eight mini-batches
    16

    Args:
        num_batches: k, the number of mini-batches in a group; instead of ``Trainer(accumulate_grad_batches=...)``.
        rule: how their gradients become one; the paper's rule by default.
        spread: what several processes share: the mini-batches of one group (``"batches"``), or a group for each
            (``"groups"``); see :func:`deepbilevel.distributed.share`.
    """

    def __init__(
        self,
        num_batches: int = 8,
        rule: Rule[Any] | None = None,
        *,
        spread: Literal["batches", "groups"] = "batches",
    ) -> None:
        self.rule = BilevelRule() if rule is None else rule
        self.num_batches = check_count("num_batches", num_batches, self.rule.min_batches, remedy="8 is usual")
        self.spread: Literal["batches", "groups"] = spread
        self._counts = False  # whether Lightning counts a group as accumulation
        self._step: GroupStep[Any] | None = None
        self._loader: MatchedLoader | None = None
        self._loss: Tensor | None = None  # as the module returned it; Lightning divides and scales it
        self._report: Report | None = None  # of the last group, until it is logged
        self._between_groups: dict[str, Any] = {}  # the step's state after the last whole group
        self._to_load: dict[str, Any] = {}  # from a checkpoint, until step and loader are made

    def loader(self, dataset: Any, labels: Any, *, batch_size: int, seed: int, **options: Any) -> MatchedLoader:
        """Return a loader of matched groups for ``trainer.fit``; processes that start later share them.

        Args:
            dataset: anything with ``__getitem__``.
            labels: one class for each of its items.
            batch_size: how many items each mini-batch has.
            seed: determines every epoch.
            options: of the ``DataLoader``, and ``holdout``, ``draw`` and ``on_rare`` of ``MatchedGroups``.
        """
        return make_loader(self, dataset, labels, batch_size=batch_size, seed=seed, **options)

    def deal(self, groups: MatchedGroups) -> SharedLater:
        """Return the sampler of what this process will get of groups."""
        return SharedLater(groups, self.spread)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse settings that would undo the groups; let Lightning count them as accumulation."""
        if stage != "fit":
            return
        self._step = None  # of a fit that was interrupted
        refuse_settings(trainer, pl_module, self)
        # Before the optimizer is made: schedules ask for `trainer.estimated_stepping_batches`.
        trainer.accumulate_grad_batches = self.num_batches // (trainer.world_size if self.spread == "batches" else 1)
        self._counts = True

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the step: the model is on its device, its optimizer is made, and all processes are there."""
        model = trainer.strategy.model
        assert model is not None
        step = GroupStep(
            model,
            self.rule,
            num_batches=self.num_batches,
            optimizer=trainer.optimizers[0] if self.rule.shrinks_updates else None,
            scaler=getattr(trainer.precision_plugin, "scaler", None),
        )
        self._step = share(step, self.spread)
        if "step" in self._to_load:
            self._step.load_state_dict(self._to_load.pop("step"))
        self._between_groups = self._step.state_dict()
        original = pl_module.training_step

        @functools.wraps(original)
        def training_step(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            self._loss = output.get("loss") if isinstance(output, Mapping) else output
            if self._loss is None:
                raise ValueError(
                    f"training_step returned {output!r} without a loss; a group needs the loss of each of its "
                    "mini-batches, so that none can be skipped"
                )
            return output

        pl_module.training_step = training_step
        pl_module.backward = self._backward

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look at the loader, which exists now."""
        assert self._step is not None
        loader: Any = trainer.train_dataloader
        check_loader(loader, trainer.num_training_batches, self._step, limit="limit_train_batches (or fast_dev_run)")
        if isinstance(loader, MatchedLoader):
            self._loader = loader
            # Lightning does so by itself in some cases only; not at the end of an epoch, for instance.
            if "loader" in self._to_load:
                loader.load_state_dict(self._to_load.pop("loader"))

    def _backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        assert self._step is not None
        assert self._loss is not None
        undivided, self._loss = self._loss, None
        self._step.backward(undivided)
        if self._step.full:
            self._report = self._step.fill()
            self._between_groups = self._step.state_dict()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log what the step did."""
        if self._report is not None:
            report, self._report = self._report, None
            pl_module.log_dict({f"bilevel/{name}": value for name, value in report_numbers(report).items()})

    def state_dict(self) -> dict[str, Any]:
        """Return what the rule keeps between groups, and where the loader is."""
        state = {"step": self._between_groups}
        return state if self._loader is None else {**state, "loader": self._loader.state_dict()}

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Let a checkpoint that falls into a group go on at the start of it, as the loader does."""
        begun = 0 if self._step is None else self._step.num_collected
        progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        for counts in (progress["total"], progress["current"]):
            for name in counts:
                counts[name] -= begun

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep it until training starts."""
        self._to_load = dict(state_dict)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let trainer and module be as they were: there is no teardown after an error or Ctrl-C."""
        self._put_back(trainer, pl_module)  # the step stays: other callbacks may write a checkpoint now

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let trainer and module be as they were."""
        if stage == "fit":
            self._put_back(trainer, pl_module)
            self._step = None

    def _put_back(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._counts:
            return
        self._counts = False
        trainer.accumulate_grad_batches = 1
        if pl_module.backward == self._backward:
            del pl_module.training_step, pl_module.backward
        self._loss = self._report = None


class AuditCallback(Callback):
    """Shows an audit what the module predicts in training, with any rule or none; checkpoints keep what it saw.

    The ``training_step`` of the module returns ``{"loss": loss, "logits": logits, "index": index}``, the last being the
    places of the samples in the data set. Afterwards: ``callback.audit.issues()``; on several processes
    ``callback.audit.gathered().issues()``.

    >>> import torch
    >>> class Module(LightningModule):
    ...     def training_step(self, batch, batch_idx):
    ...         x, y, index = batch
    ...         logits = self(x)
    ...         return {"loss": torch.nn.functional.cross_entropy(logits, y), "logits": logits, "index": index}
    >>> audit = LabelAudit(torch.arange(256) % 4, num_classes=4)
    >>> trainer = Trainer(max_epochs=5, callbacks=[AuditCallback(audit)], logger=False)

    Args:
        audit: of the labels of the whole data set.
    """

    def __init__(self, audit: LabelAudit) -> None:
        self.audit = audit

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Observe a mini-batch."""
        if not isinstance(outputs, Mapping) or not {"logits", "index"} <= outputs.keys():  # pyright: ignore[reportUnknownMemberType]
            raise ValueError(
                "an audit needs the logits, and which samples they are of: let training_step return "
                '{"loss": loss, "logits": logits, "index": index}'
            )
        self.audit.observe(outputs["index"], outputs["logits"])

    def state_dict(self) -> dict[str, Any]:
        """Return what was observed."""
        return self.audit.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.audit.load_state_dict(state_dict)


def refuse_settings(trainer: Trainer, module: LightningModule, callback: BilevelCallback) -> None:
    """Refuse what would accumulate or deal out a second time, or not reach the backward pass."""
    schedulers = [each for each in trainer.callbacks if isinstance(each, GradientAccumulationScheduler)]  # pyright: ignore[reportAttributeAccessIssue]
    if trainer.accumulate_grad_batches != 1 or schedulers:
        raise ValueError(
            f"accumulate_grad_batches={trainer.accumulate_grad_batches} would be a second accumulation: a group is "
            f"one already; leave it out, and set BilevelCallback(num_batches=...), now {callback.num_batches}"
        )
    reload_every: int = getattr(trainer, "reload_dataloaders_every_n_epochs", 0)
    if reload_every:
        raise ValueError(
            f"reload_dataloaders_every_n_epochs={reload_every} would start every new loader at epoch 0, with the same "
            "groups; leave it out"
        )
    if is_overridden("backward", module):
        raise ValueError("the module has a backward() of its own, which would not be called; remove it")
    if not module.automatic_optimization:
        raise ValueError("automatic_optimization=False steps by itself; leave it out, or use deepbilevel.GroupStep")
    if trainer.world_size == 1:
        return
    connector: Any = trainer._accelerator_connector  # pyright: ignore[reportPrivateUsage] (there is no public way)
    if connector.use_distributed_sampler:
        raise ValueError(
            f"use_distributed_sampler=True would deal the groups out to {trainer.world_size} processes a second time; "
            "set Trainer(use_distributed_sampler=False)"
        )
    if callback.spread == "batches" and callback.num_batches % trainer.world_size:
        raise ValueError(
            f"num_batches={callback.num_batches} mini-batches cannot be spread evenly over {trainer.world_size} "
            f"processes; take a multiple of {trainer.world_size}, or spread='groups'"
        )
