"""The page in a real browser: drawn, quiet, readable at any size, and every control does something."""

import shutil
import sys

import pytest

from deepbilevel.report import make_report
from tests.report.written import HOSTILE, not_done, write_everything, write_run, write_sweep

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser; run: apt-get install -y --no-install-recommends chromium"
)

FIGURES = """() => [...document.querySelectorAll(".panel svg")].filter((svg) => svg.checkVisibility()).map((svg) => ({
    figure: svg.closest("figure").id, panel: svg.closest(".panel").dataset.panel,
    width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
    marks: [...svg.querySelectorAll(".line, .dot")].filter((mark) => mark.getBoundingClientRect().width > 0).length,
    bare: [...svg.querySelectorAll("path, circle")].filter((m) => /NaN|Infinity/.test(m.outerHTML)).length,
}))"""

# Pairs of labels in one figure that touch, and labels that leave their figure.
COLLISIONS = """() => [...document.querySelectorAll(".panel svg")].flatMap((svg) => {
    const outer = svg.getBoundingClientRect();
    const boxes = [...svg.querySelectorAll("text")].filter((t) => t.checkVisibility())
        .map((t) => ({ text: t.textContent, ...t.getBoundingClientRect().toJSON() }));
    const out = boxes.filter((b) => b.left < outer.left - 1 || b.right > outer.right + 1 || b.bottom > outer.bottom + 1)
        .map((b) => `outside: ${b.text}`);
    boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
        const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (wide > 1 && high > 2) out.push(`${a.text} / ${b.text}`);
    }));
    return out;
})"""

# Everything that is drawn, so that a change can be seen.
DRAWN = """() => [...document.querySelectorAll(".panel svg :is(.line, .wide, .full, .hollow, .cross)")]
    .map((mark) => (mark.getBoundingClientRect().width > 0 ? "1" : "0")).join("")"""

SMALLEST_LETTERS = """() => Math.min(...[...document.querySelectorAll(".panel svg text")]
    .filter((t) => t.checkVisibility()).map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"""


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
    with pytest.MonkeyPatch.context() as without:
        without.setitem(sys.modules, "vl_convert", None)  # pictures take seconds, and nobody looks at them here
        return make_report(folder).page


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser, report):
    """Open the page without a network; whatever the browser complains about fails the test."""
    complaints, contexts = [], []

    def open_it(width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: request.url == report.as_uri() or complaints.append(request.url))
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        page.goto(report.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []


def check_figures(page):
    figures = page.evaluate(FIGURES)
    assert len(figures) > 15
    for figure in figures:
        assert figure["width"] > 200, figure
        assert figure["height"] > 80, figure
        assert figure["marks"] > 0, figure
        assert figure["bare"] == 0, figure
    assert page.evaluate(COLLISIONS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_figure_is_drawn_and_no_label_touches_another(open_page, width, scheme):
    page = open_page(width, scheme)
    check_figures(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(SMALLEST_LETTERS) >= 10
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]


def test_figures_of_every_setting_are_drawn(open_page):
    page = open_page()
    for select in page.locator("select[name=setting]").all():
        for option in select.locator("option").all():
            before = page.evaluate(DRAWN)
            chosen = select.input_value()
            select.select_option(option.get_attribute("value"))
            assert (page.evaluate(DRAWN) != before) == (select.input_value() != chosen)
            check_figures(page)


def test_every_box_changes_what_is_drawn_and_back(open_page):
    page = open_page()
    changed = page.evaluate(
        f"""() => {{
        const drawn = {DRAWN};
        return [...document.querySelectorAll(".controls input")].map((box) => {{
            const before = drawn();
            box.click();
            const between = drawn();
            box.click();
            return [box.closest(".explorer").querySelector("figure").id + " " + box.name + " " + box.value,
                between !== before, drawn() === before];
        }});
    }}"""
    )
    assert {name.split()[1] for name, _, _ in changed} == {"series", "seed", "panel"}
    assert [name for name, does, undoes in changed if not (does and undoes)] == []


def test_all_and_none_do_what_they_say(open_page):
    page = open_page()
    explorer = page.locator(".explorer", has=page.locator("#compare-training-1"))
    marks = explorer.locator("[data-panel=test] .line:not(.off)")
    assert marks.count() == 2 * 7
    explorer.get_by_role("button", name="all").click()
    assert marks.count() == 2 * 14
    explorer.get_by_role("button", name="none").click()
    assert marks.count() == 0


def test_the_theme_can_be_switched(open_page):
    page = open_page(scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.get_by_label("Theme").select_option("light")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_label("Theme").select_option("system")
    assert page.evaluate(ground) == dark


def test_pointing_at_a_figure_shows_run_epoch_and_value(open_page):
    page = open_page()
    tip = page.locator("#tip")
    assert tip.is_hidden()
    svg = page.locator("#table1-training-1 [data-panel=test] svg")
    curve = svg.locator(".line[data-label='bilevel, seed 1']")
    svg.scroll_into_view_if_needed()
    place = curve.evaluate(
        """(mark) => {
        const [x, y] = mark.getAttribute("d").split("L").at(-1).split(",").map(Number);
        const at = new DOMPoint(x, y).matrixTransform(mark.getScreenCTM());
        return [at.x, at.y];
    }"""
    )
    page.mouse.move(*place)
    value = float(curve.get_attribute("data-y").split()[-1])
    assert tip.inner_text() == f"bilevel, seed 1 · epoch 12 · Test {value:.4g} %"
    page.mouse.move(0, 0)
    assert tip.is_hidden()


def test_a_figure_is_read_with_the_keyboard(open_page):
    page = open_page()
    svg = page.locator("#noise-training-1 [data-panel=test] svg")
    svg.focus()
    read = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
        read.append(page.locator("#tip").inner_text().split(" · ")[:2])
    assert read == [
        ["SGD, seed 0", "epoch 2"],
        ["SGD, seed 0", "epoch 4"],
        ["SGD, seed 1", "epoch 4"],
        ["SGD, seed 1", "epoch 2"],
    ]
    before = page.locator("#tip").bounding_box()["y"]
    page.evaluate("new Promise((done) => { addEventListener('scroll', done); scrollBy(0, -40); })")
    assert page.locator("#tip").bounding_box()["y"] == pytest.approx(before + 40, abs=1), "it stays at its point"
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()
    dots = page.locator("#noise-results-1 [data-panel=test] svg")
    dots.focus()
    page.keyboard.press("ArrowRight")
    assert "SGD · label noise 0 % · Test, last epoch" in page.locator("#tip").inner_text()


def test_every_control_is_reached_by_tab_and_has_a_name(open_page):
    page = open_page()
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, svg[tabindex], [role=region]")]
            .filter((e) => !(e.ariaLabel || e.textContent.trim() || e.labels?.[0]?.textContent.trim()) ||
                e.tabIndex < 0).map((e) => e.outerHTML.slice(0, 200))"""
    )
    assert nameless == []


def test_tables_show_the_papers_numbers_and_what_is_missing(open_page):
    page = open_page()
    rows = page.locator("#table1 table").first.locator("tbody tr")
    texts = [row.inner_text().split("\t") for row in rows.all()]
    doubtful = next(text for text in texts if text[0] == "bilevel, weights per layer" and text[1].startswith("49.62"))
    assert doubtful[5].startswith("81.60")
    assert next(text for text in texts if text[0] == "SGD" and "failed" in text)[1] == "40.20"
    page.get_by_label("note 1").first.click()
    assert page.locator("#table1-note-1").inner_text() == "doubtful: repeats the numbers of another network"
    assert "sweep-cut.json" in page.locator("#problems").inner_text()


def test_a_strangers_text_is_shown_and_does_nothing(open_page):
    page = open_page()
    assert page.title() == "Deep bilevel learning: results"
    assert page.locator("img").count() == 0
    assert page.locator("h2", has_text="onerror").inner_text() == HOSTILE


def test_on_paper_it_is_light_whole_and_without_controls(open_page):
    page = open_page(width=794, scheme="dark")
    page.get_by_label("Theme").select_option("dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    check_figures(page)
    assert page.locator("select:visible, button:visible, nav:visible, input:visible").count() == 0
    assert page.get_by_text("Every run; percent.").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
