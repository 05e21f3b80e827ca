"""Training runs: a spec becomes objects, a loop, and a record, and survives what happens on the way."""

from deepbilevel_lab.training.defaults import default_spec
from deepbilevel_lab.training.folder import RunFolder, find_runs
from deepbilevel_lab.training.interruption import Interrupted
from deepbilevel_lab.training.loop import DivergedError
from deepbilevel_lab.training.model_file import TrainedModel, load_model
from deepbilevel_lab.training.run import Listener, train
from deepbilevel_lab.training.spec import RunSpec
from deepbilevel_lab.training.spec_files import load_spec, save_spec
from deepbilevel_lab.training.step_log import read_steps

__all__ = [
    "DivergedError",
    "Interrupted",
    "Listener",
    "RunFolder",
    "RunSpec",
    "TrainedModel",
    "default_spec",
    "find_runs",
    "load_model",
    "load_spec",
    "read_steps",
    "save_spec",
    "train",
]
