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
NetworkOption = Annotated[str | None, typer.Option(help="A network; the usual one for the data unless told.")]
BatchSizeOption = Annotated[
    int | None, typer.Option(min=1, help="Images of a mini-batch; fitted to your own data unless told.")
]
NumBatchesOption = Annotated[
    int | None, typer.Option(min=2, help="Mini-batches of a group; fitted to your own data unless told.")
]
LrOption = Annotated[float | None, typer.Option(help="The learning rate; the network's usual one unless told.")]


def by_key(val: str | None, batch_size: int | None, num_batches: int | None, lr: float | None) -> dict[str, Any]:
    """Return these options by the dotted keys of their fields."""
    groups = {"group.batch_size": batch_size, "group.num_batches": num_batches}
    return {"data.test_path": val, **groups, "optimizer.lr": lr}
