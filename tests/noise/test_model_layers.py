"""Which layers of a model drop at random while it makes noise, and which must not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from deepbilevel_lab.noise import flip_by_model

NUM_IMAGES, WIDTH = 60, 8


class Attention(nn.Module):
    """Attention whose dropout is a number of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.5, batch_first=True)

    def forward(self, x):
        x = x.reshape(len(x), 4, WIDTH // 4).repeat(1, 1, 4)
        return self.attention(x, x, x)[0].mean(dim=1)


class Transformer(nn.Module):
    """A layer that has a fast path without dropout for evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.5, batch_first=True)

    def forward(self, x):
        return self.layer(x.unsqueeze(1)).squeeze(1)


class Functional(nn.Module):
    """A user's layer with a rate, and dropout as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = 0.5
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return F.dropout(self.norm(x), self.dropout, self.training)


class TwoHeaded(nn.Module):
    """Returns a second prediction in training mode, as Inception does, and holds its dropout as a child."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        x = self.dropout(x)
        return (x, x) if self.training else x


LAYERS = {
    "dropout": lambda: nn.Dropout(0.5),
    "alpha dropout": lambda: nn.AlphaDropout(0.5),
    "channels": lambda: nn.Sequential(nn.Unflatten(1, (WIDTH, 1, 1)), nn.Dropout2d(0.5), nn.Flatten()),
    "attention": Attention,
    "transformer": Transformer,
    "functional": Functional,
    "two-headed": TwoHeaded,
}

every_layer = pytest.mark.parametrize("build", LAYERS.values(), ids=LAYERS)


def noise_of(model, seed, **arguments):
    images = torch.randn(NUM_IMAGES, WIDTH, generator=torch.Generator().manual_seed(0))
    labels = images.argmax(dim=1)
    return flip_by_model(labels, model=model, images=images, num_classes=WIDTH, seed=seed, **arguments).labels.tolist()


@every_layer
def test_it_drops_when_dropout_is_on_and_only_then(build):
    model = build()
    assert len({tuple(noise_of(model, seed)) for seed in range(4)}) > 1
    assert len({tuple(noise_of(model, seed, dropout=False)) for seed in range(4)}) == 1


@every_layer
def test_the_mode_the_model_came_in_does_not_matter(build):
    model = build()
    assert noise_of(model.train(), 0) == noise_of(model.eval(), 0)
    assert not any(module.training for module in model.modules())


def test_batchnorm_inside_a_layer_that_drops_keeps_its_statistics():
    model = Functional()
    noise_of(model, 0)
    assert int(model.norm.num_batches_tracked) == 0
    assert torch.equal(model.norm.running_mean, torch.zeros(WIDTH))


def test_modes_are_set_without_calling_train_or_eval_which_models_override():
    class Touchy(nn.Sequential):
        def train(self, mode=True):
            raise AssertionError("train() was called")

    assert noise_of(Touchy(nn.Dropout(0.5)), 0)
