"""The documentation site, built once for all tests of it."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="sphinx is missing; run: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("site")
    docs = Path(__file__).parents[2] / "docs"
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", str(docs), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder
