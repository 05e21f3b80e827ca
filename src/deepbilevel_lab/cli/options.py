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
        help="Other images or rows of yours, with labels you trust, to test on; unless told, some are set aside.",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        help="A network of the catalog (a wrong name lists them), timm:NAME, transformers:FOLDER, or your own code as "
        "file.py:make or package.module:make; the usual one for the data unless told."
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Start from these weights, .safetensors or .pt; the last layer may differ."),
]
PretrainedOption = Annotated[
    bool, typer.Option("--pretrained", help="Start from the weights published with a network of timm or transformers.")
]
FreezeOption = Annotated[bool, typer.Option("--freeze", help="Let only the last layer learn.")]
NamedNetworkOption = Annotated[
    str | None,
    typer.Option(help="The code of the run's network, as in file.py:make, if it is yours: only what you name is run."),
]
BatchSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Images of a mini-batch; fitted to your own data unless told.")
]
NumBatchesOption = Annotated[
    int | None, typer.Option(min=2, help="Mini-batches of a group; fitted to your own data unless told.")
]
LrOption = Annotated[float | None, typer.Option(help="The learning rate; the network's usual one unless told.")]


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
