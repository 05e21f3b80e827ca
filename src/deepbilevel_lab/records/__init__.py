"""Records of runs and sweeps as values, for those who write them and for those who read them. No torch.

``json_values.py`` turns any such value into JSON and back; ``runs.py`` and ``sweeps.py`` say what a record holds. A
record may be a stranger's text: whatever is read arrives as checked numbers and as strings that any file can hold.
"""

from deepbilevel_lab.records.json_values import FORMAT, FormatError, clean, from_json, read_file, to_json, to_text
from deepbilevel_lab.records.runs import (
    FIGURES,
    STATUSES,
    Environment,
    Images,
    PlainSpec,
    Row,
    RunRecord,
    Seconds,
    Status,
    show_figure,
)
from deepbilevel_lab.records.sweeps import Axis, Cell, CellRun, MeanFigure, Published, SweepRecord, show_number

__all__ = [
    "FIGURES",
    "FORMAT",
    "STATUSES",
    "Axis",
    "Cell",
    "CellRun",
    "Environment",
    "FormatError",
    "Images",
    "MeanFigure",
    "PlainSpec",
    "Published",
    "Row",
    "RunRecord",
    "Seconds",
    "Status",
    "SweepRecord",
    "clean",
    "from_json",
    "read_file",
    "show_figure",
    "show_number",
    "to_json",
    "to_text",
]
