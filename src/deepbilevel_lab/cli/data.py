"""``deepbilevel data``: list, fetch and check data sets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepbilevel_lab.cli.messages import errors_as_messages
from deepbilevel_lab.records import clean

if TYPE_CHECKING:
    from rich.console import Console

    from deepbilevel_lab.data import ImagesOnDisk

data = typer.Typer(help="List, fetch and check data sets.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(help="A name from `deepbilevel data list`.")]
DirOption = Annotated[
    Path,
    typer.Option("--dir", envvar="DEEPBILEVEL_DATA", help="The folder of data sets, or of your own images."),
]

_DECODED_AT_MOST = 20_000


@data.command("list")
def list_data() -> None:
    """List the data sets that can be used by name.

    Example: deepbilevel data list
    """
    from rich.console import Console
    from rich.table import Table

    from deepbilevel_lab.data import DATA_SETS
    from deepbilevel_lab.data.cifar import label_sets

    table = Table("name", "what it is", "splits", "other labels", "fetched for you")
    for name, entry in DATA_SETS.items():
        fetched = "yes" if entry.release else ("embedded" if name == "digits" else "no")
        table.add_row(name, entry.description, ", ".join(entry.splits), ", ".join(label_sets(name)), fetched)
    Console().print(table)


@data.command()
def fetch(name: NameArgument, directory: DirOption = Path("data")) -> None:
    """Download a data set, verify and unpack it; rerun to resume a broken download.

    Example: deepbilevel data fetch cifar10 --dir data
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from deepbilevel_lab.data.catalog import find_entry
    from deepbilevel_lab.data.download import fetch_archive, unpack_archive

    console = Console()
    with errors_as_messages():
        release = find_entry(name).release
        if release is None:
            raise ValueError(f"{name} cannot be fetched: it is embedded, your own, or given out by its authors only")
        if (directory / release.folder).exists():
            console.print(f"{directory / release.folder} is there already and used as it is", markup=False)
            return
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task(release.archive.file_name, total=None)

            def on_bytes(done: int, total: int | None) -> None:
                progress.update(bar, completed=done, total=total)

            archive = fetch_archive(release.archive, directory, on_bytes)
        console.print(
            f"{name} is in {unpack_archive(archive, directory, release.folder)}", soft_wrap=True, markup=False
        )


@data.command()
def check(
    name: NameArgument,
    directory: DirOption = Path("data"),
    split: Annotated[str | None, typer.Option(help="The split; all splits by default.")] = None,
    labels: Annotated[str | None, typer.Option(help="A named set of labels, such as `worst` of CIFAR-10N.")] = None,
    every: Annotated[bool, typer.Option("--every", help="Decode every file, however many there are.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the contact sheets.")] = Path(),
) -> None:
    """Verify a data set: read everything, count images per class, and draw some with their labels.

    Example: deepbilevel data check cifar10 --dir data
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from deepbilevel_lab.data import ImagesOnDisk, load_data
    from deepbilevel_lab.data.catalog import find_entry
    from deepbilevel_lab.data.contact_sheet import draw_contact_sheet

    console = Console()
    with errors_as_messages():
        splits = (split,) if split else (("train",) if labels else find_entry(name).splits)
        for part in splits:
            images = load_data(name, directory, part, labels=labels)
            if isinstance(images, ImagesOnDisk):
                images.check_files()
                _decode(images, console, every=every)
            table = Table("class", "images", title=f"{name} {part}{f', labels {labels}' if labels else ''}")
            table.columns[1].justify = "right"
            for class_name, count in zip(images.class_names, images.class_counts(), strict=True):
                table.add_row(escape(clean(class_name)), f"{count:,}")
            console.print(table)
            console.print(f"{len(images):,} images, {images.num_classes} classes")
            if images.clean_labels is not None:
                wrong = (images.labels != images.clean_labels).double().mean().item()
                console.print(f"{wrong:.2%} of the labels differ from the clean ones")
            sheet = out / f"{name}-{part}{f'-{labels}' if labels else ''}.png"
            draw_contact_sheet(images, sheet)
            console.print(f"contact sheet: {sheet}", soft_wrap=True, highlight=False, markup=False)


def _decode(images: "ImagesOnDisk", console: "Console", *, every: bool) -> None:
    """Open the files, or an even selection of very many, and stop at the first that cannot be read."""
    from rich.progress import track

    step = 1 if every else -(-len(images) // _DECODED_AT_MOST)
    for index in track(range(0, len(images), step), "decoding", console=console, transient=True):
        images.read(index)
    if step > 1:
        console.print(f"decoded every {step}th of {len(images):,} files; --every decodes all")
