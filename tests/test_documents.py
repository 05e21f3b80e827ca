"""Every Python block of the documents runs, in the order of the page, as a reader would run it."""

import importlib
import re
from pathlib import Path
from types import FunctionType

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import deepbilevel

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

EXTRAS = {"integrations.md": ("lightning", "transformers", "accelerate", "sklearn", "safetensors")}


def readers_own_names():
    """Return what the documents assume a reader has: a data set, its labels, a model and an optimizer."""
    torch.manual_seed(0)
    images, labels = torch.randn(256, 1, 8, 8), torch.arange(256) % 4
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))
    return {
        "DataLoader": DataLoader,
        "torch": torch,
        "dataset": TensorDataset(images, labels),
        "labels": labels,
        "model": model,
        "criterion": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
    }


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
@pytest.mark.filterwarnings("ignore:.*(does not have many workers|LeafSpec|Checkpoint directory)")  # Lightning's own
def test_every_python_block_of_the_page_runs(page, tmp_path, monkeypatch):
    for package in EXTRAS.get(page.name, ()):
        pytest.importorskip(package, reason=f"{package} is missing; run: pip install '.[dev]'")
    monkeypatch.chdir(tmp_path)  # where trainers leave their files
    names = readers_own_names()
    before = [parameter.detach().clone() for parameter in names["model"].parameters()]
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), names)
    after = names["model"].parameters()
    trains = "optimizer.step()" in page.read_text()
    assert trains == any(not torch.equal(p, old) for p, old in zip(after, before, strict=True))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_line_is_taken_for_a_comment(page):
    """Such a line is missing on the site, and the paragraph ends there: "40 %" must not be broken."""
    assert not re.findall(r"^[ ]*%.*", page.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_to_a_file_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_test_and_code_name_on_the_page_exists(page):
    code = "\n".join(path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.py"))
    code += "\n".join(path.name for path in (ROOT / "tests").rglob("*.py"))
    for name in re.findall(r"`(test_\w+|\w+\.py)[^`]*`", page.read_text()):
        assert name in code or any(ROOT.rglob(f"src/**/{name}")), f"{page.name} names {name}"


@pytest.mark.parametrize(
    "name",
    [
        "deepbilevel",
        "deepbilevel.audit",
        "deepbilevel.distributed",
        "deepbilevel.integrations.lightning",
        "deepbilevel.integrations.sklearn",
        "deepbilevel.integrations.transformers",
    ],
)
def test_every_public_name_stands_in_the_reference(name):
    if ".integrations." in name:
        package = name.rpartition(".")[2]
        pytest.importorskip(package, reason=f"{package} is missing; run: pip install '.[dev]'")
    module = importlib.import_module(name)
    reference = (ROOT / "docs" / "reference.md").read_text()
    for public in module.__all__:
        if isinstance(value := getattr(module, public), type | FunctionType):
            assert f":: {name}.{public}\n" in reference, f"docs/reference.md lacks {name}.{public}"
            assert ">>>" in (value.__doc__ or ""), f"{public} has no example"


def test_every_page_can_be_reached_from_the_first_one():
    listed = set(re.findall(r"^[a-z/-]+$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE))
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages | {"decisions/index"} == listed


def test_files_that_others_read_name_this_version():
    version = deepbilevel.__version__.partition(".dev")[0]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
