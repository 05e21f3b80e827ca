"""Classifiers of images or text from transformers: a ``config.json``, or a folder with it, weights and a tokenizer.

Everything is read from this machine, and no code of others is run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from deepbilevel_lab.networks.named_code import TRANSFORMERS, tokenizer_files


class ImageScores(nn.Module):
    """A network of transformers that takes images, and returns its scores as a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``."""
        if images.ndim != 4:
            raise ValueError(
                f"the network takes images, and these are rows of {images.shape[1]} numbers; choose another"
            )
        return self.model(pixel_values=images).logits


class TextScores(nn.Module):
    """A network of transformers that takes text as tokens, and returns its scores as a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, rows: Tensor) -> Tensor:
        """Return one score per class, ``[batch, num_classes]``, for tokens counted from 1 and filled up with 0."""
        if rows.ndim != 2:
            raise ValueError("the network reads text, and these are images; choose another, or a table with --text")
        tokens = rows[:, : max(1, int((rows > 0).sum(dim=1).max()))].long() - 1
        return self.model(input_ids=tokens.clamp(min=0), attention_mask=(tokens >= 0).long()).logits


def make_transformer(
    name: str, num_classes: int, *, side: int | None, pretrained: bool, arguments: Mapping[str, Any]
) -> nn.Module:
    """Make a classifier; ``pretrained`` takes the weights beside the ``config.json``, from safetensors only."""
    transformers = _import()
    folder, file = _places(name)
    try:
        config = transformers.AutoConfig.from_pretrained(str(file), trust_remote_code=False, local_files_only=True)
        reads_text = hasattr(config, "vocab_size")
        settings: dict[str, Any] = {"num_labels": num_classes, **arguments}
        if side is not None and hasattr(config, "image_size"):
            settings["image_size"] = side
        if reads_text and getattr(config, "pad_token_id", None) is None:
            settings["pad_token_id"] = (
                0  # some networks refuse to go without; the attention mask hides what it stands for
            )
        for key, value in settings.items():
            setattr(config, key, value)
        kind = "AutoModelForSequenceClassification" if reads_text else "AutoModelForImageClassification"
        scores = TextScores if reads_text else ImageScores
        if not pretrained:
            return scores(getattr(transformers, kind).from_config(config, trust_remote_code=False))
        model = getattr(transformers, kind).from_pretrained(
            str(folder),
            config=config,
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
        )
        return scores(model)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"network {name}: {str(error).splitlines()[0]}; it needs the config.json of a classifier of images or text "
            "and, with --pretrained, model.safetensors beside it"
        ) from error


def load_tokenizer(name: str) -> Callable[[Sequence[str], int], list[list[int]]]:
    """Return what cuts text into tokens for a network; its files lie beside the ``config.json``."""
    transformers = _import()
    folder, file = _places(name)
    try:
        if not tokenizer_files(folder):  # transformers would make one that knows no word
            raise ValueError("there is none")
        config = transformers.AutoConfig.from_pretrained(str(file), trust_remote_code=False, local_files_only=True)
        cut: Any = transformers.AutoTokenizer.from_pretrained(
            str(folder), trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"network {name}: {folder} has no tokenizer that can be read ({str(error).splitlines()[0]}); bring the "
            "tokenizer.json of the network"
        ) from error
    places = getattr(config, "max_position_embeddings", None) or cut.model_max_length
    limit = min(cut.model_max_length, places)

    def tokenize(texts: Sequence[str], most: int) -> list[list[int]]:
        return cut(list(texts), truncation=True, max_length=min(most, limit))["input_ids"]

    return tokenize


def _import() -> Any:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        import transformers  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("networks of transformers need it; run: pip install 'deepbilevel[transformers]'") from error
    return transformers


def _places(name: str) -> tuple[Path, Path]:
    """Return the folder of a network and what its configuration is read from."""
    place = Path(name.removeprefix(TRANSFORMERS))
    return place if place.is_dir() else place.parent, place
