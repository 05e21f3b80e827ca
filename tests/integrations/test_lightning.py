"""A module under Lightning ends where a loop of one's own ends; what would go wrong silently is refused."""

import signal
import warnings

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

lightning = pytest.importorskip("lightning.pytorch", reason="lightning is missing; run: pip install '.[lightning]'")

from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint  # noqa: E402
from lightning.pytorch.plugins.precision import MixedPrecision  # noqa: E402

from deepbilevel import MatchedGroups  # noqa: E402
from deepbilevel.integrations.lightning import BilevelCallback  # noqa: E402
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

# What Lightning says of itself and of machines.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),
    pytest.mark.filterwarnings("ignore:.*_pytree"),
    pytest.mark.filterwarnings("ignore:.*treespec"),
    pytest.mark.filterwarnings("ignore:.*litlogger"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:.*smaller than the logging interval"),
]


class Module(lightning.LightningModule):
    """Knows nothing of groups."""

    def __init__(self, scheduler=None, optimizer=None):
        super().__init__()
        self.network = make_network()
        self.make_optimizer = optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
        self.make_scheduler = scheduler

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.network(x), y)

    def configure_optimizers(self):
        optimizer = self.make_optimizer(self.parameters())
        if self.make_scheduler is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self.make_scheduler(optimizer, self)}


def make_loader(callback, **options):
    inputs, labels = make_data()
    return callback.loader(TensorDataset(inputs, labels), labels, batch_size=BATCH_SIZE, seed=SEED, **options)


def make_trainer(callback, folder, *, callbacks=(), **options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet["enable_checkpointing"] = any(isinstance(each, ModelCheckpoint) for each in callbacks)
    return lightning.Trainer(
        **{"max_epochs": 2, "accelerator": "cpu", "devices": 1, "default_root_dir": folder, **quiet, **options},
        callbacks=[callback, *callbacks],
    )


def train(folder, *, callback=None, module=None, ckpt_path=None, loader_options=None, **options):
    callback = callback or BilevelCallback(num_batches=K)
    module = module or Module()
    trainer = make_trainer(callback, folder, **options)
    trainer.fit(module, make_loader(callback, **(loader_options or {})), ckpt_path=ckpt_path)
    return vector(module.network), trainer


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_parameters_are_those_of_the_plain_loop(tmp_path):
    ours, trainer = train(tmp_path)
    close(ours, plain_loop())
    assert trainer.global_step == 2 * NUM_GROUPS


def test_a_training_step_may_return_a_dictionary_and_take_the_batch_alone(tmp_path):
    class Other(Module):
        def training_step(self, batch):
            x, y = batch
            return {"loss": F.cross_entropy(self.network(x), y), "also": 1}

    close(train(tmp_path, module=Other())[0], plain_loop())


def test_gradients_are_clipped_after_fill(tmp_path):
    clipped = plain_loop(clip=0.05)
    close(train(tmp_path, gradient_clip_val=0.05)[0], clipped)
    assert not torch.allclose(clipped, plain_loop())


def one_cycle(optimizer, module):
    total_steps = module.trainer.estimated_stepping_batches
    assert total_steps == 2 * NUM_GROUPS
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=total_steps)
    return {"scheduler": scheduler, "interval": "step"}


def test_schedulers_step_with_the_optimizer(tmp_path):
    expected = plain_loop(
        make_scheduler=lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=10)
    )
    close(train(tmp_path, module=Module(one_cycle))[0], expected)


def test_schedulers_step_with_epochs(tmp_path):
    module = Module(lambda optimizer, _: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5))
    _, trainer = train(tmp_path, module=module, max_epochs=3)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**3)


def test_schedulers_that_watch_a_number_see_it(tmp_path):
    class Watched(Module):
        def on_train_epoch_start(self):
            self.log("bad", 1.0)

    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    module = Watched(lambda o, _: {"scheduler": plateau(o, patience=0, factor=0.1), "monitor": "bad"})
    _, trainer = train(tmp_path, module=module, max_epochs=3)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.1**2)


def test_rules_that_shrink_updates_get_the_optimizer(tmp_path):
    rule = CrossValidatedRule(shrink="update")
    adam = Module(optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    shrunk, _ = train(tmp_path, callback=BilevelCallback(K, rule), module=adam)
    adam = Module(optimizer=lambda p: torch.optim.Adam(p, lr=0.01))
    with pytest.warns(UserWarning, match="Adam divides by the size of the gradients"):
        other, _ = train(tmp_path, callback=BilevelCallback(K, CrossValidatedRule()), module=adam)
    assert not torch.allclose(shrunk, other)


def test_weights_and_agreement_are_logged(tmp_path):
    _, trainer = train(tmp_path)
    logged = trainer.logged_metrics
    assert {"bilevel/loss", "bilevel/weight_min", "bilevel/weight_max", "bilevel/agreement"} <= set(logged)
    assert -1 <= logged["bilevel/weight_min"] <= logged["bilevel/weight_max"] <= 1
    assert -1 <= logged["bilevel/agreement"] <= 1


def test_bfloat16_trains_and_its_rule_works_in_full_precision(tmp_path):
    seen = []

    class Watching(Module):
        def __init__(self):
            super().__init__()
            self.network.float()

        def training_step(self, batch, batch_idx):
            x, y = batch
            seen.append(torch.is_autocast_enabled("cpu"))
            return F.cross_entropy(self.network(x.float()), y)

    trained, _ = train(tmp_path, module=Watching(), precision="bf16-mixed")
    assert all(seen)
    assert seen
    assert torch.isfinite(trained).all()
    assert not torch.equal(trained, vector(make_network().float()))


@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_loss_scaler_changes_nothing_but_the_range(tmp_path, clip):
    # In float64 under an autocast that is off for it; the scale is a power of two, so that nothing is rounded.
    class Unscaled(Module):
        def training_step(self, batch, batch_idx):
            with torch.autocast("cpu", enabled=False):
                return super().training_step(batch, batch_idx)

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    options = {"plugins": [MixedPrecision("16-mixed", "cpu", scaler)], "gradient_clip_val": clip}
    close(train(tmp_path, module=Unscaled(), **options)[0], plain_loop(clip=clip))
    assert scaler.get_scale() == 2.0**10


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", [3, NUM_GROUPS, NUM_GROUPS + 2])
def test_a_checkpoint_goes_on_where_it_was_also_in_mid_epoch(tmp_path, at, num_workers):
    rule = MomentumBilevel(momentum=0.5)  # which remembers something between groups
    expected = plain_loop(rule=rule)

    def run(**options):
        saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=at, save_top_k=-1)
        workers = {"num_workers": num_workers}
        return train(tmp_path, callback=BilevelCallback(K, rule), callbacks=[saving], loader_options=workers, **options)

    close(run()[0], expected)
    resumed, trainer = run(ckpt_path=tmp_path / f"step={at}.ckpt")
    close(resumed, expected)
    assert trainer.global_step == 2 * NUM_GROUPS


def test_resuming_works_where_the_loader_was_set_up_early(tmp_path):
    def run(**options):
        saving = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=3, save_top_k=-1)
        return train(tmp_path, module=Module(one_cycle), callbacks=[saving], **options)[0]

    close(run(), run(ckpt_path=tmp_path / "step=3.ckpt"))


@pytest.mark.parametrize("batch_idx", [1, K, K + 2, NUM_GROUPS * K - 2])
def test_a_checkpoint_in_mid_group_goes_on_at_its_start(tmp_path, batch_idx):
    class Saves(Module):
        def on_train_batch_end(self, outputs, batch, index):
            if index == batch_idx:
                self.trainer.save_checkpoint(tmp_path / "middle.ckpt")

    whole, _ = train(tmp_path, module=Saves())
    resumed, trainer = train(tmp_path, ckpt_path=tmp_path / "middle.ckpt")
    close(resumed, whole)
    assert trainer.global_step == 2 * NUM_GROUPS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate_grad_batches": 4}, r"accumulate_grad_batches=4 .* set BilevelCallback\(num_batches=...\), now 4"),
        ({"callbacks": [GradientAccumulationScheduler({0: 2})]}, "would be a second accumulation"),
        ({"reload_dataloaders_every_n_epochs": 1}, "start every new loader at epoch 0"),
        ({"limit_train_batches": 9}, r"9 mini-batches, no multiple of the 4 of a group.* set limit_train.* such as 8"),
        ({"fast_dev_run": True}, r"an epoch has 1 mini-batches.* \(or fast_dev_run\) to a multiple, such as 4"),
    ],
)
def test_settings_that_would_undo_groups_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        train(tmp_path, **options)


def test_a_training_step_without_a_loss_is_refused(tmp_path):
    class Skips(Module):
        def training_step(self, batch, batch_idx):
            return None

    with pytest.raises(ValueError, match="training_step returned None without a loss"):
        train(tmp_path, module=Skips())


def test_two_optimizers_are_refused(tmp_path):
    class Two(Module):
        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), lr=0.1), torch.optim.SGD(self.parameters(), lr=0.1)]

    with pytest.raises((ValueError, RuntimeError), match="optimizers"):
        train(tmp_path, module=Two())


def test_modules_with_a_backward_pass_of_their_own_are_refused(tmp_path):
    class Own(Module):
        def backward(self, loss):
            loss.backward()

    with pytest.raises(ValueError, match=r"backward\(\) of its own, which would not be called"):
        train(tmp_path, module=Own())
    manual = Module()
    manual.automatic_optimization = False
    with pytest.raises(ValueError, match="automatic_optimization=False"):
        train(tmp_path, module=manual)


def test_module_and_trainer_are_as_before_afterwards(tmp_path):
    module = Module()
    _, trainer = train(tmp_path, module=module)
    assert trainer.accumulate_grad_batches == 1
    assert not {"training_step", "backward"} & set(vars(module))
    again, _ = train(tmp_path, module=module)
    assert not torch.equal(again, plain_loop())


class Fails(Module):
    """Fails once, at a mini-batch counted from the start."""

    def __init__(self, at, error=RuntimeError):
        super().__init__()
        self.left, self.error = at, error

    def training_step(self, batch, batch_idx):
        self.left -= 1
        if self.left == 0:
            raise self.error("the machine is tired")
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(("error", "raised"), [(RuntimeError, RuntimeError), (KeyboardInterrupt, SystemExit)])
def test_module_and_trainer_are_as_before_after_an_error_and_can_be_trained(tmp_path, error, raised):
    module, callback = Fails(2, error), BilevelCallback(num_batches=K)
    trainer = make_trainer(callback, tmp_path)
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(raised):
            trainer.fit(module, make_loader(callback))
    finally:
        signal.signal(signal.SIGINT, before)  # which Lightning ignores after a Ctrl-C
    assert trainer.accumulate_grad_batches == 1
    assert not {"training_step", "backward"} & set(vars(module))
    close(train(tmp_path, module=module, callback=callback)[0], plain_loop())


def test_an_error_before_the_first_step_leaves_the_trainer_as_it_was(tmp_path):
    class Wrong(Module):
        def configure_optimizers(self):
            raise RuntimeError("no optimizer")

    callback = BilevelCallback(num_batches=K)
    trainer = make_trainer(callback, tmp_path)
    with pytest.raises(RuntimeError, match="no optimizer"):
        trainer.fit(Wrong(), make_loader(callback))
    assert trainer.accumulate_grad_batches == 1
    trainer = make_trainer(callback, tmp_path, accumulate_grad_batches=3)
    with pytest.raises(ValueError, match="accumulate_grad_batches=3 would be a second accumulation"):
        trainer.fit(Module(), make_loader(callback))
    assert trainer.accumulate_grad_batches == 3


@pytest.mark.parametrize("saves_first", [True, False])
def test_a_checkpoint_that_an_error_leaves_goes_on_at_the_start_of_its_group(tmp_path, saves_first):
    class Saves(lightning.Callback):
        def on_exception(self, trainer, pl_module, exception):
            trainer.save_checkpoint(tmp_path / "left.ckpt")

    rule = MomentumBilevel(momentum=0.5)  # which remembers something between groups
    module, callback = Fails(K + 3), BilevelCallback(K, rule)
    trainer = make_trainer(callback, tmp_path, callbacks=[Saves()])
    trainer.callbacks.sort(key=lambda each: isinstance(each, Saves) != saves_first)
    with pytest.raises(RuntimeError, match="the machine is tired"):
        trainer.fit(module, make_loader(callback))
    resumed, trainer = train(tmp_path, callback=callback, module=module, ckpt_path=tmp_path / "left.ckpt")
    close(resumed, plain_loop(rule=rule))
    assert trainer.global_step == 2 * NUM_GROUPS


def test_loaders_of_ones_own_are_looked_at(tmp_path):
    inputs, labels = make_data()
    data = TensorDataset(inputs, labels)

    def fit(loader, rule=None):
        make_trainer(BilevelCallback(K, rule), tmp_path).fit(Module(), loader)

    with pytest.warns(
        UserWarning, match="rule bilevel compares mini-batches with the same labels, but this DataLoader"
    ):
        fit(DataLoader(data, batch_size=6))
    other = MatchedGroups(labels, num_batches=2, batch_size=6, seed=0)
    with pytest.raises(ValueError, match="groups of num_batches=2, the step of 4; give both the same"):
        fit(DataLoader(data, batch_sampler=other))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message=".*workers")
        fit(DataLoader(data, batch_sampler=MatchedGroups(labels, num_batches=K, batch_size=6, seed=0)))
        fit(DataLoader(data, batch_size=6), CrossValidatedRule())


@pytest.mark.parametrize(("argument", "value"), [("num_batches", 1), ("num_batches", 2.5)])
def test_bad_arguments_are_refused_at_once(argument, value):
    with pytest.raises((ValueError, TypeError), match=argument):
        BilevelCallback(**{argument: value})
