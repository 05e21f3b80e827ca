"""A report opened in a real browser, which may complain about nothing."""

import pytest

from tests.report.written import HOSTILE, make_page_only, not_done, write_everything, write_run, write_sweep


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A report with everything in it, a damaged file, a hostile sweep, long names and a loose run included."""
    folder = write_everything(tmp_path_factory.mktemp("records"))
    (folder / "sweep-cut.json").write_text("{")
    write_run(folder, HOSTILE, 0, 90, 60, 4, "bilevel")
    long = "a method whose name is far longer than any figure is wide, and goes on and on"
    cells = [
        {"row": row, "column": HOSTILE, "x": x, "published": None, "runs": [run]}
        for row in (HOSTILE, long)
        for x in (0.0001, 0.0002, 0.00025, 0.001, 0.0015, 0.01, 0.025, 0.1, 1.25, 1000.5, 1250.5, 123456.0)
        for run in [{**not_done(0, "done"), "figures": {"test": 50.0 + x / 1e4, "train": 60.0}}]
    ]
    write_sweep(folder, "hostile", title=HOSTILE, axis={"name": long, "unit": HOSTILE}, cells=cells)
    return make_page_only(folder)


@pytest.fixture
def open_page(browser, report):
    """Open the page without a network; whatever the browser complains about fails the test."""
    complaints, contexts = [], []

    def open_it(width=1280, scheme="light", of=report, **settings):
        window = {"width": width, "height": 800}
        context = browser.new_context(viewport=window, color_scheme=scheme, offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url == of.as_uri() or complaints.append(request.url))
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        page.goto(of.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
