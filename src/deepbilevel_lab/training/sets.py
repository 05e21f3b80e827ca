"""Which samples a run trains on, selects by and is tested on: loaded, set aside, made noisy and encoded."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from deepbilevel_lab.data import LabelledSet, load_data
from deepbilevel_lab.data.catalog import load_samples
from deepbilevel_lab.data.encoding import fit_encoding
from deepbilevel_lab.data.own_items import OwnSets
from deepbilevel_lab.data.spec import DataSpec
from deepbilevel_lab.data.subset import choose_in_proportion, set_aside, take, with_classes
from deepbilevel_lab.data.table import ColumnsSpec, Table
from deepbilevel_lab.data.text_tokens import Tokenizer
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.named_code import TRANSFORMERS, check_named
from deepbilevel_lab.networks.transformers_networks import load_tokenizer
from deepbilevel_lab.noise import NoiseSpec, NoisyLabels
from deepbilevel_lab.run_references import referred_run


class OtherRuns(Protocol):
    """What a run may take from runs before it."""

    def weights(self, run_id: str) -> str:
        """Return the file with the network of that run."""
        ...

    def labels(self, run_id: str, data: LabelledSet) -> NoisyLabels:
        """Return what the network of that run predicts for the images it was trained on, which must be these."""
        ...


def needed(runs: OtherRuns | None, run_id: str) -> OtherRuns:
    """Return the runs beside this one, or say that there must be some."""
    if runs is None:
        raise ValueError(f"run {run_id} is needed, but no folder of runs is at hand; `deepbilevel train` has one")
    return runs


class Sets(NamedTuple):
    """The images of a run.

    Attributes:
        train: to train on, labels made wrong where that is wanted.
        selection: set aside from these, with labels as wrong as theirs, if the spec wants it.
        test: to test on.
    """

    train: LabelledSet
    selection: LabelledSet | None
    test: LabelledSet


def load_sets(
    spec: DataSpec,
    data_dir: Path,
    *,
    noise: NoiseSpec | None,
    seed: int,
    runs: OtherRuns | None = None,
    own: OwnSets | None = None,
) -> Sets:
    """Return the images of a run, or the rows of its table, or the items given in Python."""
    directory = data_dir if spec.path is None else Path(spec.path)
    labeller = referred_run(spec.labels)
    labels = None if labeller else spec.labels
    test: LabelledSet | None = None
    if own is not None:
        train, test = own
    else:
        train = load_samples(spec.name, directory, spec.train_split, labels=labels, columns=spec.columns)
    if isinstance(train, Table):
        train.check_target()
    if spec.entry.test_split is not None:
        test = load_data(spec.name, directory, spec.entry.test_split)
    elif test is None and spec.test_path is not None:
        test = with_classes(_load_tested(spec, Path(spec.test_path)), train.class_names, "those to train on")
    elif test is None:
        train, test = set_aside(train, spec.test_rate)
    train, test = _limited(train, spec.limit), _limited(test, spec.test_limit)
    given = train.labels
    noisy = None if noise is None else noise.apply(train.labels.numpy(), train.num_classes, seed)
    if labeller is not None:
        noisy = needed(runs, labeller).labels(labeller, train)
    if noisy is not None:
        truth = train.labels if train.clean_labels is None else train.clean_labels
        train = replace(train, labels=torch.from_numpy(noisy.labels), clean_labels=truth)
    if spec.selection is None:
        return Sets(train, None, test)
    if not spec.selection_by_seed:
        return Sets(*set_aside(train, spec.selection, name="data.selection"), test)
    # By labels before noise, which is other noise for every seed: by noisy ones the parts of two seeds would overlap.
    return Sets(*set_aside(train, spec.selection, name="data.selection", part=seed, labels=given), test)


def _load_tested(spec: DataSpec, place: Path) -> LabelledSet:
    if spec.columns is not None:
        return load_samples("table", place, columns=replace(spec.columns, ignore=()))  # which need not be there
    return load_data("folder" if place.is_dir() else "csv", place)


def _limited(data: LabelledSet, limit: int | None) -> LabelledSet:
    return data if limit is None or limit >= len(data) else take(data, choose_in_proportion(data.labels, limit))


def encoded(sets: Sets, network: NetworkSpec) -> Sets:
    """Return the rows of a table as numbers, by what the training rows say of its columns; other sets as they are."""
    if not isinstance(sets.train, Table):
        return sets
    tokenizer = find_tokenizer(network, sets.train.spec)
    encoding = fit_encoding(sets.train, tokenizer)
    selection = encoding.encode(sets.selection, tokenizer) if isinstance(sets.selection, Table) else None
    assert isinstance(sets.test, Table)
    return Sets(encoding.encode(sets.train, tokenizer), selection, encoding.encode(sets.test, tokenizer))


def find_tokenizer(network: NetworkSpec, columns: ColumnsSpec | None) -> Tokenizer | None:
    """Return what cuts text into tokens, if the network wants them: it lies beside the network."""
    if columns is None or columns.text is None or not network.name.startswith(TRANSFORMERS):
        return None
    return load_tokenizer(check_named(network.name, network.code))
