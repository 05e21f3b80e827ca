"""Training runs: a spec becomes objects, a loop, and a record, and survives what happens on the way."""

from deepbilevel.training.defaults import default_spec
from deepbilevel.training.folder import RunFolder, find_runs
from deepbilevel.training.interruption import Interrupted
from deepbilevel.training.loop import DivergedError
from deepbilevel.training.model_file import TrainedModel, load_model
from deepbilevel.training.run import Listener, train
from deepbilevel.training.spec import RunSpec
from deepbilevel.training.spec_files import load_spec, save_spec
from deepbilevel.training.step_log import read_steps

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
