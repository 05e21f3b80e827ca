"""Small networks with the traits of those people train, and data to train them on; everything in float64."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CifarNetLike(nn.Module):
    """Convolutions, local response normalisation, dropout, and no BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.LocalResponseNorm(3)
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(96, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x))


class BatchNormLike(nn.Module):
    """A residual block with BatchNorm, used twice: a shared module."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.block = nn.Sequential(nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1, bias=False))
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for _ in range(2):
            x = x + self.block(x)
        return self.head(x.mean(dim=(2, 3)))


class TransformerLike(nn.Module):
    """Attention and LayerNorm over patches, with weights tied between input and output."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(12, 8, bias=False)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.unembed = nn.Linear(8, 12, bias=False)
        self.unembed.weight = nn.Parameter(self.embed.weight.detach().T.clone())
        self.tied = nn.Linear(12, 8, bias=False)
        self.tied.weight = self.embed.weight
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        patches = F.unfold(x, 2, stride=2).transpose(1, 2)
        hidden = self.layer(self.embed(patches))
        return self.head(hidden.mean(1) + self.tied(self.unembed(hidden)).mean(1))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "CifarNet-like": CifarNetLike,
    "BatchNorm-like": BatchNormLike,
    "transformer-like": TransformerLike,
}


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return NETWORKS[name]().double()


def images(num_batches: int, batch_size: int = 3, seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Return mini-batches of 8x8 colour images with labels out of four."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(batch_size, 3, 8, 8, generator=generator, dtype=torch.float64),
            torch.randint(4, (batch_size,), generator=generator),
        )
        for _ in range(num_batches)
    ]


def gradient_matrix(model: nn.Module, batches: list[tuple[Tensor, Tensor]], seed: int = 0) -> Tensor:
    """Return the gradient of each mini-batch as a row, by plain autograd; dropout as after ``manual_seed(seed)``."""
    torch.manual_seed(seed)
    rows = []
    for x, y in batches:
        gradients = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(rows)


def flat_grad(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


class Vectors:
    """A model of one parameter whose gradient on mini-batch i is any vector one likes: loss_i = <parameter, g_i>."""

    def __init__(self, gradients: Tensor) -> None:
        self.gradients = gradients
        self.parameter = nn.Parameter(torch.zeros_like(gradients[0]))

    def losses(self) -> list[Tensor]:
        return [self.parameter @ gradient for gradient in self.gradients]
