"""Hugging Face: a ``Trainer`` whose ``gradient_accumulation_steps`` are the mini-batches of a group.

    arguments = TrainingArguments(folder, gradient_accumulation_steps=8, per_device_train_batch_size=16)
    BilevelTrainer(model, arguments, train_dataset=dataset, labels=labels).train()

Only the backward pass and the order of the training data are others. Clipping, precision, schedulers, evaluation and
checkpoints are those of the ``Trainer``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from deepbilevel.audit import LabelAudit
from deepbilevel.checks import check_count
from deepbilevel.contract import Report, Rule
from deepbilevel.distributed import share
from deepbilevel.integrations.parts import report_numbers
from deepbilevel.rules.bilevel import BilevelRule
from deepbilevel.sampling import MatchedGroups
from deepbilevel.step import GroupStep

try:
    import transformers
    from packaging.version import Version  # which transformers needs itself
    from transformers import Trainer, TrainerCallback
except ImportError as error:
    raise ImportError(f"{error}; run: pip install 'deepbilevel[transformers]'") from error
if Version(transformers.__version__) < Version("5.3"):  # with these, training ends elsewhere and nothing says so
    raise ImportError(f"transformers {transformers.__version__} is too old; run: pip install 'transformers>=5.3'")

__all__ = ["BilevelTrainer"]


class BilevelTrainer(Trainer):
    """Trains by a rule over groups of ``gradient_accumulation_steps`` mini-batches.

    A mini-batch has ``per_device_train_batch_size`` samples, and its loss is its own mean, not divided. Numbers of the
    last step are logged beside the loss, as ``bilevel_...``. Several processes have a group each; the gradients that
    come of these are averaged.

    >>> import tempfile
    >>> from transformers import TrainingArguments
    >>> from deepbilevel.rules.cross_validated import CrossValidatedRule
    >>> class Classifier(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer = nn.Linear(10, 4)
    ...     def forward(self, x, labels=None):
    ...         logits = self.layer(x)
    ...         return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
    >>> labels = torch.arange(256) % 4
    >>> items = [{"x": torch.randn(10), "labels": label} for label in labels]
    >>> arguments = TrainingArguments(
    ...     tempfile.mkdtemp(), gradient_accumulation_steps=8, per_device_train_batch_size=16, num_train_epochs=1,
    ...     save_strategy="no", report_to=[], use_cpu=True,
    ... )
    >>> rule = CrossValidatedRule(shrink="update")  # for AdamW, the usual optimizer of the library
    >>> trainer = BilevelTrainer(Classifier(), arguments, train_dataset=items, labels=labels, rule=rule)
    >>> trained = trainer.train()  # doctest: +ELLIPSIS
    {'train_runtime': ...}
    >>> trained.global_step  # 256 samples are two groups
    2

    Args:
        arguments: of the ``Trainer``, in its order.
        rule: how the gradients of a group become one; the paper's rule by default.
        labels: one class for each item of ``train_dataset``; its column ``labels`` or ``label`` by default.
        audit: is shown what the model predicts in training. Items then have a key ``index``, their place in the data
            set; checkpoints keep what it saw. On several processes, ask ``audit.gathered()`` in the end.
        on_rare: what to do with classes that have fewer items than a group has mini-batches; see
            :class:`~deepbilevel.MatchedGroups`.
        settings: of the ``Trainer``.
    """

    def __init__(
        self,
        *arguments: Any,
        rule: Rule[Any] | None = None,
        labels: Any = None,
        audit: LabelAudit | None = None,
        on_rare: Any = "raise",
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.rule = BilevelRule() if rule is None else rule
        self.labels = labels
        self.audit = audit
        self.on_rare = on_rare
        self.num_batches = check_count(
            "gradient_accumulation_steps",
            self.args.gradient_accumulation_steps,
            self.rule.min_batches,
            remedy="it is the number of mini-batches in a group: set TrainingArguments(gradient_accumulation_steps=8)",
        )
        self._refuse_other_backward_passes()
        self._step: GroupStep[Any] | None = None
        self._to_load: dict[str, Any] | None = None
        self._report: Report | None = None
        self.add_callback(_MakesStep(self))

    def _refuse_other_backward_passes(self) -> None:
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise ValueError("DeepSpeed and FSDP have backward passes of their own; take neither, and torchrun alone")
        if self.args.n_gpu > 1:
            raise ValueError(
                f"one process with {self.args.n_gpu} GPUs would average their losses; start one process per GPU, as in "
                f"torchrun --nproc-per-node {self.args.n_gpu}"
            )

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return a loader of this process's groups; Accelerate would deal them out once more, so it does not see it."""
        if self.train_dataset is None:
            raise ValueError("train_dataset is missing; pass the data set to train on")
        dataset: Any = self.train_dataset
        groups = MatchedGroups(
            self._labels_of(dataset),
            num_batches=self.num_batches,
            batch_size=self._train_batch_size,
            seed=self.args.data_seed if self.args.data_seed is not None else self.args.seed,
            on_rare=self.on_rare,
        )
        collate = self.data_collator
        if hasattr(dataset, "remove_columns"):  # of the package `datasets`
            dataset = self._remove_unused_columns(dataset, description="training")
        else:
            collate = self._get_collator_with_removed_columns(collate, description="training")
        return DataLoader(
            dataset,
            batch_sampler=_FromCheckpoint(share(groups, "groups"), self),
            collate_fn=collate,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )

    def _labels_of(self, dataset: Any) -> Any:
        labels = self.labels
        for name in ("labels", "label"):
            if labels is None and name in (getattr(dataset, "column_names", None) or []):
                labels = dataset[name][:]
        if labels is None:
            raise ValueError(
                f"labels is missing, and {type(dataset).__name__} has no column 'labels' or 'label'; pass labels=..., "
                "one class for each item of train_dataset"
            )
        if len(labels) != len(dataset):
            raise ValueError(
                f"labels has {len(labels)} entries, but train_dataset has {len(dataset)} items; pass one for each, in "
                "their order"
            )
        return labels

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Collect the gradient of a mini-batch; after the last one of a group, fill ``.grad``."""
        assert self._step is not None
        model.train()
        if callable(getattr(self.optimizer, "train", None)):  # of optimizers without a schedule
            self.optimizer.train()  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
        with self.compute_loss_context_manager():
            # Without `num_items_in_batch`, by which the loss would be divided: it counts those of the whole group.
            loss = self._watched_loss(model, self._prepare_inputs(inputs))
        self._step.backward(loss)
        if self._step.full:
            self._report = self._step.fill()
        return loss.detach() / self.num_batches  # which the Trainer adds up, for its log

    def _watched_loss(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """Return the loss of a mini-batch, and show its scores to the audit if there is one."""
        if self.audit is None:
            loss = self.compute_loss(model, inputs)
        elif "index" not in inputs:
            raise ValueError(
                "an audit needs to know the samples: give each item a key 'index', its place in the data set"
            )
        else:
            index = inputs.pop("index")
            outputs: Any
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
            self.audit.observe(index, outputs["logits"])
        assert isinstance(loss, Tensor)
        return loss

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if self.audit is not None:
            self._signature_columns = [*(self._signature_columns or ()), "index"]

    def make_step(self) -> None:
        """Make the step of the model as it is trained, in a wrapper where there are several processes."""
        assert self.model_wrapped is not None
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)  # within Accelerate's
        step = GroupStep(
            self.model_wrapped,
            self.rule,
            num_batches=self.num_batches,
            optimizer=optimizer if self.rule.shrinks_updates else None,
            scaler=self.accelerator.scaler,
        )
        self._step = share(step, "groups")
        if self._to_load is not None:
            self._step.load_state_dict(self._to_load)
            self._to_load = None

    def log(self, logs: dict[str, float], *arguments: Any, **settings: Any) -> None:
        """Log also what the last step did."""
        if "loss" in logs and self._report is not None:
            numbers = report_numbers(self._report).items()
            logs.update({f"bilevel_{name}": value.item() for name, value in numbers})
        super().log(logs, *arguments, **settings)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self._step is not None:
            torch.save(self._step.state_dict(), self._state_file(output_dir))
        if self.audit is not None:
            torch.save(self.audit.state_dict(), self._state_file(output_dir, "audit"))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (file := self._state_file(checkpoint)).exists():
            self._to_load = torch.load(file, weights_only=True, map_location=self.args.device)
        if checkpoint is not None and self.audit is not None:
            self.audit.load_state_dict(torch.load(self._state_file(checkpoint, "audit"), weights_only=True))

    def _state_file(self, folder: str, what: str = "bilevel") -> Path:
        return Path(folder) / f"{what}_{self.args.process_index}.pt"


class _MakesStep(TrainerCallback):
    """Makes the step when model and optimizer are ready, and before the ``Trainer`` plays with the wrapper's flags."""

    def __init__(self, trainer: BilevelTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, *arguments: Any, **settings: Any) -> None:
        self._trainer.make_step()


class _FromCheckpoint(Sampler[list[int]]):
    """Groups whose first pass is the epoch in which training goes on.

    The ``Trainer`` skips mini-batches by itself, but does not tell every sampler which epoch it is in.
    """

    def __init__(self, groups: MatchedGroups, trainer: Trainer) -> None:
        self._groups = groups
        self._trainer = trainer
        self._has_begun = False

    def __iter__(self) -> Iterator[list[int]]:
        if not self._has_begun:
            self._groups.set_epoch(self._trainer.state.global_step // self._groups.num_groups)
            self._has_begun = True
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
