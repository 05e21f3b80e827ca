"""Samples that are no images on their way into a run: rows of a table, and items of a data set in Python."""

from dataclasses import replace

from deepbilevel_lab.data import LabelledSet, OwnData
from deepbilevel_lab.data.encoding import EncodedRows, TableEncoding
from deepbilevel_lab.data.own_items import Items, OwnItems, OwnSets
from deepbilevel_lab.data.spec import GIVEN
from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.named_code import is_own_code
from deepbilevel_lab.training.spec import RunSpec


def with_own_data(spec: RunSpec, data: Items | OwnData | None) -> tuple[RunSpec, OwnSets | None]:
    """Return the run with the fingerprint of its data, unless it has a name for it, and the data itself."""
    if spec.data.entry.holds != "items":
        if data is not None:
            raise ValueError(
                f"data was given, but the spec trains on {spec.data.name!r}; begin with default_spec('dataset')"
            )
        return spec, None
    if data is None:
        raise ValueError("data is missing: the spec trains on a Dataset from Python; pass it, train(spec, data=...)")
    own = data if isinstance(data, OwnData) else OwnData(data)
    sets = own.load()
    path = own.fingerprint(sets) if spec.data.path is None else spec.data.path
    return replace(spec, data=replace(spec.data, path=path, test_path=None if sets[1] is None else GIVEN)), sets


def encoding_of(data: LabelledSet) -> TableEncoding | None:
    """Return how rows were encoded, if these are rows."""
    return data.encoding if isinstance(data, EncodedRows) else None


def describe_columns(data: LabelledSet) -> str:
    """Return which columns of a table are used and which are not, if these are rows."""
    encoding = encoding_of(data)
    if encoding is None:
        return ""
    kinds = ", ".join(f"{column.name} ({column.kind})" for column in encoding.columns[:20])
    more = f" and {len(encoding.columns) - 20} more" if len(encoding.columns) > 20 else ""
    left_out = "".join(f"; left out: {name} ({why})" for name, why in encoding.left_out.items())
    return f"predicts {encoding.target} from {kinds}{more}{left_out}"


def for_rows(network: NetworkSpec, encoding: TableEncoding | None) -> NetworkSpec:
    """Return the network with what the user's own code has to know of a table: how many numbers a row becomes."""
    if encoding is None or not is_own_code(network.name):
        return network
    return replace(network, arguments={"num_features": encoding.width, **network.arguments})


def input_shape(data: LabelledSet) -> tuple[int, ...] | None:
    """Return the shape of a sample where the network has to fit itself to it."""
    if isinstance(data, EncodedRows):
        return (data.encoding.width,)
    return tuple(data.read(0, seed=0).shape) if isinstance(data, OwnItems) else None
