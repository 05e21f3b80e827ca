"""The tables of docs/results.md are those of the committed records, and the commands can be planned."""

import re
from pathlib import Path

from benchmarks.noisy_labels import METHODS, SETTINGS, command, tables
from tests.cli.trained import run_in_process

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def test_the_page_shows_the_committed_records():
    shown = re.search(r"<!-- noisy-labels -->\n(.*?)\n<!-- /noisy-labels -->", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    assert shown[1].strip() == tables(), "run: python -m benchmarks.noisy_labels --table"


def test_every_setting_can_be_planned(tmp_path):
    for setting in SETTINGS:
        words = command(setting, tmp_path, 1, "0-2")[3:]
        done = run_in_process(*words, "--dry-run")
        assert done.exit_code == 0, done.output
        assert len(done.output.splitlines()) == len(METHODS) * 3 * 3
