"""The history of a run for TensorBoard. The files follow from the history: a run that goes on writes them anew."""

from pathlib import Path
from typing import TYPE_CHECKING

from deepbilevel_lab.records import Row, to_json

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class Events:
    """Writes rows of metrics; does nothing where TensorBoard is not installed.

    Killed processes leave rows in their files that the continued run will have again; therefore the old files go.
    """

    def __init__(self, folder: Path, history: list[Row]) -> None:
        self._writer: SummaryWriter | None = None
        try:
            from torch.utils import tensorboard
        except ImportError:
            return
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = tensorboard.SummaryWriter(str(folder))
        for row in history:
            self.add(row)

    def add(self, row: Row) -> None:
        """Write one epoch."""
        if self._writer is None:
            return
        for name, value in to_json(row).items():
            if name != "epoch":
                self._writer.add_scalar(name, value, row.epoch)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
