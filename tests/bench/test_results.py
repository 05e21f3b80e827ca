"""The tables of the documents are those of the committed records, and the commands behind them can be planned."""

import pytest

from benchmarks.noisy_labels import PARTS, SETTINGS, command
from benchmarks.paper_size import METHODS as PAPER_SIZE_METHODS
from benchmarks.paper_size import command as paper_size_command
from benchmarks.rule_variants import SETTINGS as VARIANT_SETTINGS
from benchmarks.rule_variants import VARIANTS
from benchmarks.tables import PAGES, TABLES, filled
from tests.cli.trained import run_in_process


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_shows_the_committed_records(page):
    text = page.read_text()
    assert filled(text) == text, "run: make results"


def test_every_table_stands_on_a_page():
    pages = "\n".join(page.read_text() for page in PAGES)
    for name in TABLES:
        assert f"<!-- {name} -->\n|" in pages or f"<!-- {name} -->\n**" in pages


@pytest.mark.parametrize("part", PARTS)
def test_every_setting_can_be_planned(part, tmp_path):
    for setting in SETTINGS:
        words = command(setting, PARTS[part], f"{setting}{part}", tmp_path, 1, "0-2")[3:]
        done = run_in_process(*words, "--dry-run")
        assert done.exit_code == 0, done.output
        assert len(done.output.splitlines()) == len(PARTS[part]) * 3 * 3


@pytest.mark.parametrize("setting", VARIANT_SETTINGS)
def test_every_variant_of_the_rule_can_be_planned(setting, tmp_path):
    words = command(setting, tuple(VARIANTS), setting, tmp_path, 1, "0-2")[3:]
    done = run_in_process(*words, "--dry-run")
    assert done.exit_code == 0, done.output
    assert len(done.output.splitlines()) == len(VARIANTS) * 3 * 3


@pytest.mark.parametrize("method", PAPER_SIZE_METHODS)
def test_runs_at_the_size_of_the_paper_can_be_planned(method, tmp_path):
    ids = set()
    for images in (2500, 50000):
        done = run_in_process(*paper_size_command(method, images, tmp_path)[3:], "--dry-run")
        assert done.exit_code == 0, done.output
        assert "factor_per_epoch = 0.95" in done.output
        ids.add(done.output.splitlines()[0])
    assert len(ids) == 2
