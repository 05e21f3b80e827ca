"""Image classifiers of transformers, from a ``config.json`` or a folder with one and its weights; no code of others."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deepbilevel_lab.networks.named_code import TRANSFORMERS


class Scores(nn.Module):
    """A network of transformers that returns its scores as a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        return self.model(pixel_values=images).logits


def make_transformer(
    name: str, num_classes: int, *, side: int | None, pretrained: bool, arguments: Mapping[str, Any]
) -> nn.Module:
    """Make an image classifier; ``pretrained`` takes the weights beside the ``config.json``, from safetensors only."""
    try:
        from transformers import (  # pyright: ignore[reportMissingImports]
            AutoConfig,
            AutoModelForImageClassification,
        )
    except ImportError as error:
        raise ImportError("networks of transformers need it; run: pip install transformers") from error
    place = Path(name.removeprefix(TRANSFORMERS))
    settings: dict[str, Any] = {"num_labels": num_classes, **arguments}
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        config = AutoConfig.from_pretrained(str(place), trust_remote_code=False, local_files_only=True)
        if side is not None and hasattr(config, "image_size"):
            settings["image_size"] = side
        for key, value in settings.items():
            setattr(config, key, value)
        if not pretrained:
            return Scores(AutoModelForImageClassification.from_config(config, trust_remote_code=False))
        model = AutoModelForImageClassification.from_pretrained(
            str(place if place.is_dir() else place.parent),
            config=config,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
        )
        return Scores(model)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"network {name}: {str(error).splitlines()[0]}; it needs the config.json of an image classifier and, with "
            "--pretrained, model.safetensors beside it"
        ) from error
