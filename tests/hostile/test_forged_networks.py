"""Networks of tables whose encoding a stranger forged, and networks that a stranger's file would fetch or look for."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from deepbilevel_lab.networks.catalog import NetworkSpec
from deepbilevel_lab.networks.making import make_model
from deepbilevel_lab.networks.named_code import check_named, name_code, needs_naming
from deepbilevel_lab.networks.timm_networks import make_timm
from tests.cli.trained import run_in_process

QUICK = ("--epochs", "1", "--threads", "1", "--quiet", "--set", "group.num_batches=2", "--set", "group.batch_size=4")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    lines = [f"{row % 7}.5,{'uvw'[row % 3]},some words of {'uvw'[row % 3]},k{row % 3}" for row in range(60)]
    path.write_text("\n".join(["number,word,said,kind", *lines]))
    return path


def train(table, out, *options):
    result = run_in_process("train", "--data", table, "--target", "kind", *options, *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    [run] = out.iterdir()
    return run


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return {
        "rows": train(table, out / "rows", "--ignore", "said"),
        "text": train(table, out / "text", "--text", "said"),
    }


FORGERIES = {
    "a text without weight": ("text", {"idf": [0.0] * 2**13}),
    "a text of endless weight": ("text", {"idf": [1e308] * 2**13}),
    "a text of negative weight": ("text", {"idf": [-1.0] * 2**13}),
    "a text of no place": ("text", {"idf": []}),
    "tokens without a tokenizer": ("text", {"kind": "tokens", "length": 5, "idf": None}),
    "too many tokens": ("text", {"kind": "tokens", "length": 10**6, "idf": None}),
    "another width": ("rows", {"has_missing": True}),
    "no spread": ("rows", {"std": 0.0}),
    "no number": ("rows", {"std": float("nan")}),
    "another kind": ("rows", {"kind": "python"}),
    "a list as a name": ("rows", {"name": ["number"]}),
    "the target as a column": ("text", {"name": "kind"}),
    "a column that is not there": ("rows", {"name": "../../number"}),
}


@pytest.mark.parametrize(("name", "changes"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_encoding_predicts_nothing(name, changes, runs, table, tmp_path):
    with safe_open(runs[name] / "model.safetensors", "pt") as file:
        about = json.loads(file.metadata()["deepbilevel"])
    column = about["encoding"]["columns"][0]
    about["encoding"]["columns"][0] = {key: each for key, each in {**column, **changes}.items() if each is not None}
    path = tmp_path / "model.safetensors"
    save_file(load_file(runs[name] / "model.safetensors"), path, metadata={"deepbilevel": json.dumps(about)})
    result = run_in_process("predict", path, table)
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


def test_what_would_be_fetched_from_a_strangers_page_must_be_named():
    name = "timm:hf-hub:somebody/forged"
    with pytest.raises(ValueError, match="is used only if you name it: add --network timm:hf-hub:somebody/forged"):
        make_model(NetworkSpec(name, side=32), 2)
    assert needs_naming(name)
    assert name_code(name) is None
    assert check_named(name, None) == name
    assert not needs_naming("timm:resnet18")


@pytest.mark.parametrize("name", ["local-dir:/x", "Local-Dir:/x", "LOCAL-DIR:/x", "hf-hub:local-dir:/x"])
def test_timm_reads_no_files_of_this_machine(name):
    with pytest.raises(ValueError, match="names files of this machine"):
        make_timm(f"timm:{name}", 2, pretrained=False, arguments={})
