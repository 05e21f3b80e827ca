"""Options that the commands that train have in common."""

from typing import Annotated, Any

import typer

DataOption = Annotated[
    str | None, typer.Option(help="A data set (`deepbilevel data list`), a folder of images, or a table.")
]
ValOption = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Images or rows with labels you trust, to test on; by default some of your data are held out.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        help="A network from the catalog (a wrong name lists them), timm:NAME, transformers:FOLDER, or your own code "
        "as file.py:make or package.module:make; the usual one for the data by default."
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Start from these weights, .safetensors or .pt; the last layer may differ."),
]
PretrainedOption = Annotated[
    bool, typer.Option("--pretrained", help="Start from the published weights of a timm or transformers network.")
]
FreezeOption = Annotated[bool, typer.Option("--freeze", help="Train only the last layer.")]
NamedNetworkOption = Annotated[
    str | None,
    typer.Option(help="Your own code for the run's network, as in file.py:make; code is run only if you name it."),
]
BatchSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Images per mini-batch; chosen to fit your own data by default.")
]
NumBatchesOption = Annotated[
    int | None, typer.Option(min=2, help="Mini-batches per group; chosen to fit your own data by default.")
]
LrOption = Annotated[float | None, typer.Option(help="The learning rate; the network's usual one by default.")]


def by_key(
    val: str | None,
    batch_size: int | None,
    num_batches: int | None,
    lr: float | None,
    weights: str | None,
    *,
    pretrained: bool,
    freeze: bool,
) -> dict[str, Any]:
    """Return these options by the dotted keys of their fields."""
    groups = {"group.batch_size": batch_size, "group.num_batches": num_batches}
    start = {"network.weights": weights, "network.pretrained": pretrained or None, "network.freeze": freeze or None}
    return {"data.test_path": val, **groups, "optimizer.lr": lr, **start}
