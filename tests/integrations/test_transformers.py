"""The Hugging Face trainer ends where a loop of one's own ends; what would go wrong silently is refused."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

transformers = pytest.importorskip("transformers", reason="transformers is missing; run: pip install '.[transformers]'")
pytest.importorskip("accelerate", reason="accelerate is missing; run: pip install '.[transformers]'")

from deepbilevel.integrations.transformers import BilevelTrainer  # noqa: E402
from deepbilevel.rules.cross_validated import CrossValidatedRule  # noqa: E402
from deepbilevel.rules.momentum import MomentumBilevel  # noqa: E402
from tests.integrations.tasks import (  # noqa: E402
    BATCH_SIZE,
    NUM_GROUPS,
    SEED,
    K,
    make_data,
    make_network,
    plain_loop,
    vector,
)


class Samples(Dataset):
    def __init__(self):
        self.inputs, self.labels = make_data()

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"x": self.inputs[index], "labels": self.labels[index]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = make_network()

    def forward(self, x, labels=None):
        logits = self.network(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class ScaledModel(Model):
    """Divides by the items of the whole group, if it is told how many these are, as language models do."""

    def forward(self, x, labels=None, num_items_in_batch=None, **kwargs):
        logits = self.network(x)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        return {"loss": loss / (num_items_in_batch or len(labels)), "logits": logits}


def make_trainer(folder, *, model=None, rule=None, labels="own", callbacks=None, **options):
    dataset = Samples()
    arguments = transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "num_train_epochs": 2,
            "gradient_accumulation_steps": K,
            "per_device_train_batch_size": BATCH_SIZE,
            "seed": SEED,
            "optim": "sgd",
            "optim_args": "momentum=0.9",
            "learning_rate": 0.1,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "logging_steps": 1,
            **options,
        }
    )
    return BilevelTrainer(
        model or Model(),
        arguments,
        train_dataset=dataset,
        rule=rule,
        labels=dataset.labels if labels == "own" else labels,
        callbacks=callbacks,
    )


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(folder, resume=None, **options):
    trainer = make_trainer(folder, **options)
    trainer.train(resume_from_checkpoint=resume)
    return vector(trainer.model.network), trainer


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("model", [Model, ScaledModel])
def test_the_parameters_are_those_of_the_plain_loop(tmp_path, model):
    ours, trainer = train(tmp_path, model=model())
    close(ours, plain_loop())
    assert trainer.state.global_step == 2 * NUM_GROUPS


def test_gradients_are_clipped_after_fill(tmp_path):
    clipped = plain_loop(clip=0.05)
    close(train(tmp_path, max_grad_norm=0.05)[0], clipped)
    assert not torch.allclose(clipped, plain_loop())


def test_schedules_count_groups(tmp_path):
    def linear(optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / (2 * NUM_GROUPS)))

    close(train(tmp_path, lr_scheduler_type="linear")[0], plain_loop(make_scheduler=linear))


def test_rules_that_shrink_updates_get_the_optimizer(tmp_path):
    options = {"optim": "adamw_torch", "optim_args": None, "learning_rate": 0.01}
    shrunk, _ = train(tmp_path, rule=CrossValidatedRule(shrink="update"), **options)
    with pytest.warns(UserWarning, match="AdamW divides by the size of the gradients"):
        other, _ = train(tmp_path, rule=CrossValidatedRule(), **options)
    assert not torch.allclose(shrunk, other)


def test_the_loss_and_what_steps_did_are_logged(tmp_path):
    _, trainer = train(tmp_path)
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logs) == 2 * NUM_GROUPS
    assert {"bilevel_agreement", "bilevel_weight_min", "bilevel_weight_max", "bilevel_skipped"} <= set(logs[0])
    for entry in logs:  # neither divided nor added up
        assert entry["loss"] == pytest.approx(entry["bilevel_loss"], rel=1e-3)


def test_bfloat16_trains(tmp_path):
    model = Model().float()

    class Rounded(Samples):
        def __init__(self):
            self.inputs, self.labels = make_data(torch.float32)

    trainer = make_trainer(tmp_path, model=model, bf16=True)
    trainer.train_dataset = Rounded()
    before = vector(model.network).clone()
    trainer.train()
    assert torch.isfinite(vector(model.network)).all()
    assert not torch.equal(vector(model.network), before)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", [3, NUM_GROUPS, NUM_GROUPS + 2])
def test_a_checkpoint_goes_on_where_it_was_also_in_mid_epoch(tmp_path, at, num_workers):
    rule = MomentumBilevel(momentum=0.5)  # which remembers something between groups
    options = {"rule": rule, "save_strategy": "steps", "save_steps": at, "dataloader_num_workers": num_workers}
    expected = plain_loop(rule=rule)
    close(train(tmp_path, **options)[0], expected)
    resumed, trainer = train(tmp_path, resume=str(tmp_path / f"checkpoint-{at}"), **options)
    close(resumed, expected)
    assert trainer.state.global_step == 2 * NUM_GROUPS


def test_a_group_needs_several_mini_batches(tmp_path):
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps must be at least 2, got 1; .* set TrainingArg"):
        make_trainer(tmp_path, gradient_accumulation_steps=1)


def test_labels_are_needed_one_for_each_item(tmp_path):
    with pytest.raises(ValueError, match=r"labels is missing, and Samples has no column 'labels' or 'label'; pass"):
        train(tmp_path, labels=None)
    with pytest.raises(ValueError, match="labels has 7 entries, but train_dataset has 120 items"):
        train(tmp_path, labels=[0] * 7)


class Columns(Samples):
    """Answers like a data set of the package `datasets`."""

    column_names = ("x", "labels")

    def __getitem__(self, index):
        return (
            {"x": self.inputs, "labels": self.labels}[index] if isinstance(index, str) else super().__getitem__(index)
        )


def test_labels_are_found_in_a_column(tmp_path):
    trainer = make_trainer(tmp_path, labels=None)
    trainer.train_dataset = Columns()
    trainer.train()
    close(vector(trainer.model.network), plain_loop())


def test_training_again_starts_anew(tmp_path):
    trainer = make_trainer(tmp_path)
    trainer.train()
    first = vector(trainer.model.network).clone()
    trainer.train()
    assert not torch.equal(vector(trainer.model.network), first)
    assert trainer.state.global_step == 2 * NUM_GROUPS


def test_versions_whose_trainer_ends_elsewhere_are_refused():
    code = "import transformers; transformers.__version__ = '5.2.0'; import deepbilevel.integrations.transformers"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "transformers 5.2.0 is too old; run: pip install 'transformers>=5.3'" in done.stderr
