"""What every test can rely on."""

import os
import shutil

import pytest
import torch
from hypothesis import settings

# A busy machine must not fail a property; examples are the measure, not milliseconds.
settings.register_profile("deepbilevel", deadline=None)
settings.load_profile("deepbilevel")


# Everything else is numerical, so that no new test can be forgotten.
_NOT_NUMERICAL = (
    *("src/", "benchmarks/", "tests/audit_command/", "tests/bench/", "tests/cli/", "tests/hostile/", "tests/records/"),
    *("tests/report/", "tests/test_documents.py", "tests/test_house.py", "tests/test_specs.py"),
)


def pytest_collection_modifyitems(items):
    """Mark the tests whose outcome may depend on how a machine rounds."""
    for item in items:
        if not item.nodeid.startswith(_NOT_NUMERICAL):
            item.add_marker("numerical")


# What would run tests that were skipped, by words of their reasons.
_REMEDIES = {
    "DEEPBILEVEL_DATA": ("real data", "deepbilevel data fetch cifar10, and set DEEPBILEVEL_DATA"),
    "Ray": ("Ray", "pip install 'deepbilevel[ray]'"),
    "is missing; run: pip install '.[": ("trainers of others", "pip install -e '.[dev]'"),
    "pip install": ("packages to compare with", "pip install -e '.[bench]'"),
    "GPU": ("a GPU", None),
    "browser": ("a browser", "apt-get install chromium"),
    "administrator": ("a user who is not root", None),
}


def pytest_terminal_summary(terminalreporter):
    """Say in one line what would run the tests that were skipped; ``-rs`` says it of each."""
    kinds = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        kind = next((remedy for words, remedy in _REMEDIES.items() if words in reason), ("another machine", reason))
        kinds.setdefault(kind, []).append(report)
    if kinds:
        listed = ", ".join(
            f"{what} ({len(reports)}{f': {how}' if how else ''})" for (what, how), reports in kinds.items()
        )
        terminalreporter.write_line(f"{sum(map(len, kinds.values()))} skipped; to run them takes {listed}")


@pytest.fixture(autouse=True)
def _one_thread_and_a_fixed_seed():
    """Tests run side by side, one per core; each starts from the same random numbers whatever ran before it.

    Both can be varied, to see that no test rests on the order of a sum or on one draw of numbers.
    """
    torch.set_num_threads(int(os.environ.get("DEEPBILEVEL_TEST_THREADS", "1")))
    torch.manual_seed(int(os.environ.get("DEEPBILEVEL_TEST_SEED", "0")))


_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    if _BROWSER is None:
        pytest.skip("no browser; run: apt-get install -y --no-install-recommends chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox"])
        yield running
        running.close()
