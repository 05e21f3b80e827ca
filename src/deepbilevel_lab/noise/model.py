"""Label noise made by a network: the mistakes of a trained model whose dropout is left on.

Such mistakes resemble a human annotator's: hard images are mistaken, and for what they look like. They depend on
the arithmetic and the random numbers of torch, so another machine may make others; share them as a file.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from deepbilevel_lab.noise.noisy_labels import (
    NoisyLabels,
    random_numbers,
    read_labels,
    read_num_classes,
    read_rate,
    read_seed,
)

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def flip_by_model(
    clean_labels: npt.ArrayLike,
    rate: float | None = None,
    *,
    model: nn.Module,
    images: Tensor | Iterable[Tensor],
    num_classes: int,
    seed: int,
    dropout: bool = True,
    batch_size: int = 256,
) -> NoisyLabels:
    """Replace labels by a model's predictions; with ``rate``, exactly ``int(rate * n)`` of all n become wrong ones.

    Every image has a *rival*: the wrong class with the highest score. Where the rival beats the true class the model
    is mistaken. Without ``rate`` these images get their rival as label, and that is all. With it, the images stand in
    one queue and the first ``int(rate * n)`` get theirs: first the model's mistakes, in random order, so that a rate
    below the model's own dilutes its mistakes and does not select among them; then the others, by how little the
    true class leads. A higher rate therefore keeps what a lower one flipped. Classes that are easily mistaken get more
    noise than others; ``NoisyLabels.describe`` says how much.

    >>> model = nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 10))
    >>> noisy = flip_by_model([0] * 50, 0.44, model=model, images=torch.rand(50, 64), num_classes=10, seed=0)
    >>> noisy.rate
    0.44

    Args:
        clean_labels: the true class of every image.
        rate: the share of wrong labels; by default whatever the model makes.
        model: returns scores ``[images, num_classes]``. Its mode and torch's random numbers are left as they were.
        images: all images as one tensor, or mini-batches of them, in the order of ``clean_labels``.
        num_classes: how many classes there are.
        seed: decides dropout masks and the queue. Another size of mini-batch means other masks.
        dropout: leave dropout on. Everything else, BatchNorm above all, is in evaluation mode in any case.
        batch_size: how many images of a tensor are predicted at once.
    """
    num_classes, seed = read_num_classes(num_classes), read_seed(seed)
    clean = read_labels(clean_labels, num_classes)
    rate = None if rate is None else read_rate(rate)
    if num_classes < 2:
        raise ValueError(f"num_classes must be at least 2 for a model to be mistaken, got {num_classes}")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
    if dropout and not any(_drops(module) for module in model.modules()):
        raise ValueError(
            f"model ({type(model).__name__}) has no dropout layer that could be left on; pass dropout=False to take "
            "its predictions as they are"
        )
    batches = images.split(batch_size) if isinstance(images, Tensor) else images
    with _modes(model, dropout), _random_numbers(_device_of(model), seed), torch.no_grad():
        rivals, leads = _predict(model, batches, torch.from_numpy(clean), num_classes)
    mistaken = leads < 0
    if rate is None:
        chosen = mistaken
    else:
        random = random_numbers(seed).random_sample(len(clean))
        queue = np.lexsort((random, np.where(mistaken, -1, leads)))  # the last key counts first
        chosen = np.zeros(len(clean), dtype=bool)
        chosen[queue[: int(rate * len(clean))]] = True
    return NoisyLabels(np.where(chosen, rivals, clean), clean, num_classes)


def _predict(
    model: nn.Module, batches: Iterable[Tensor], clean: Tensor, num_classes: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return every image's rival and by how much the true class leads it, negative where it does not."""
    device = _device_of(model)
    rivals, leads = torch.zeros(len(clean), dtype=torch.int64), torch.zeros(len(clean), dtype=torch.float64)
    start = 0
    for batch in batches:
        if not isinstance(batch, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"images must yield tensors, got {type(batch).__name__}; of a loader that also yields labels pass "
                "(x for x, _ in loader), and let it not shuffle"
            )
        here = slice(start, start + len(batch))
        start += len(batch)
        if start > len(clean):
            raise ValueError(f"images holds more than the {len(clean)} images clean_labels has a label for")
        scores = model(batch.to(device))
        if not isinstance(scores, Tensor) or scores.shape != (len(batch), num_classes):
            form = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(
                f"model must return scores {(len(batch), num_classes)} for {len(batch)} images, got {form}"
            )
        scores = scores.double().cpu()
        if not scores.isfinite().all():
            raise ValueError(f"model returned scores that are not finite among images {here.start} to {here.stop - 1}")
        true = clean[here].unsqueeze(1)
        highest, rivals[here] = scores.scatter(1, true, -torch.inf).max(dim=1)
        leads[here] = scores.gather(1, true).squeeze(1) - highest
    if start < len(clean):
        raise ValueError(f"images holds {start} images, but clean_labels has {len(clean)} labels")
    return rivals.numpy(), leads.numpy()


def _drops(module: nn.Module) -> bool:
    """Say whether a module drops at random: a dropout layer, or one with a rate of its own (attention, LSTM)."""
    rate = module.p if isinstance(module, _DROPOUT) else getattr(module, "dropout", 0)
    return isinstance(rate, int | float) and rate > 0


@contextmanager
def _modes(model: nn.Module, dropout: bool) -> Generator[None]:
    """Put dropout into training mode and all else into evaluation mode, for a while."""
    before = {module: module.training for module in model.modules()}
    try:
        # Flags, not `train()` and `eval()`: these reach children, and models override them with side effects.
        for module in before:
            # A transformer layer in evaluation mode takes a fast path that skips the dropout inside it.
            skips = isinstance(module, nn.TransformerEncoderLayer)
            module.training = dropout and (_drops(module) or skips)
        yield
    finally:
        for module, training in before.items():
            module.training = training


@contextmanager
def _random_numbers(device: torch.device, seed: int) -> Generator[None]:
    """Give torch the random numbers of a seed, for a while, on the CPU and on the model's device."""
    accelerators = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(accelerators, device_type="cuda" if device.type == "cpu" else device.type):
        # `torch.manual_seed` would also seed devices that are not restored afterwards.
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        for accelerator in accelerators:
            state = torch.Generator(accelerator).manual_seed(seed).get_state()
            getattr(torch, accelerator.type).set_rng_state(state, accelerator)
        yield


def _device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))
