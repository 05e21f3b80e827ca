"""The options that say what the columns of a table are for; the commands that train have them in common."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from deepbilevel_lab.data.table import ColumnsSpec

TargetOption = Annotated[str | None, typer.Option(help="For a table (.csv, .parquet): the column to predict.")]
TextOption = Annotated[str | None, typer.Option(help="For a table: the column of text to predict from.")]
IgnoreOption = Annotated[str | None, typer.Option(help="For a table: columns to ignore, as in id,name.")]


def read_columns_spec(target: str | None, text: str | None, ignore: str | None) -> "ColumnsSpec | None":
    """Return what the columns are for, if that was said."""
    from deepbilevel_lab.data.table import ColumnsSpec

    if target is None:
        if text is not None or ignore is not None:
            raise ValueError("--text and --ignore are about a table; name the column to predict as well: --target")
        return None
    names = [] if ignore is None else [name.strip() for name in ignore.split(",") if name.strip()]
    return ColumnsSpec(target, text, tuple(names))
