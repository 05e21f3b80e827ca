"""The page where there is less: no mouse, little width, no script on paper, no colours to tell apart."""

import pytest

from tests.report.drawn import check_figures
from tests.report.written import make_page_only, write_whole_table

WIDTHS = """() => [...document.querySelectorAll(".scroller")].filter((each) => each.checkVisibility())
    .map((each) => [each.ariaLabel, each.scrollWidth, each.clientWidth])"""

# Where the last point of a line stands on the screen.
END_OF_LINE = """(mark) => {
    const [x, y] = mark.getAttribute("d").split("L").at(-1).split(",").map(Number);
    const at = new DOMPoint(x, y).matrixTransform(mark.getScreenCTM());
    return [at.x, at.y];
}"""


@pytest.fixture(scope="module")
def whole_table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_whole_table(folder)
    return make_page_only(folder)


def tap_end_of_line(page, figure, label):
    svg = page.locator(f"#{figure} [data-panel=test] svg")
    svg.scroll_into_view_if_needed()
    page.touchscreen.tap(*svg.locator(f".line[data-label='{label}']").evaluate(END_OF_LINE))


def test_what_a_finger_asked_for_stays_when_it_is_lifted(open_page):
    page = open_page(390, has_touch=True)
    tip = page.locator("#tip")
    tap_end_of_line(page, "table1-training-1", "bilevel, seed 1")
    assert tip.inner_text().startswith("bilevel, seed 1 · epoch 12 · Test ")
    # The figure that was read before loses the focus; the new one keeps its value.
    tap_end_of_line(page, "noise-training-1", "bilevel, seed 0")
    assert tip.inner_text().startswith("bilevel, seed 0 · epoch 10 · Test ")
    page.locator("h2").last.tap()
    assert tip.inner_text() == ""
    tap_end_of_line(page, "noise-training-1", "bilevel, seed 0")
    page.keyboard.press("Escape")
    assert tip.inner_text() == ""
    tap_end_of_line(page, "noise-training-1", "bilevel, seed 0")
    page.evaluate("document.activeElement.blur()")
    assert tip.inner_text() == ""


def test_tables_fit_a_window_and_a_sheet(open_page, whole_table):
    page = open_page(1280, of=whole_table)
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert len(page.evaluate(WIDTHS)) == 3, "results, what was not run, and every run"
    assert [each for each in page.evaluate(WIDTHS) if each[1] > each[2]] == []
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    page.emulate_media(media="print")
    assert [each for each in page.evaluate(WIDTHS) if each[1] > each[2]] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_scrolls_has_a_shadow_beside_it_until_its_end(open_page, whole_table, scheme):
    page = open_page(390, scheme, of=whole_table)
    scroller = page.locator(".scroller").first
    box = scroller.bounding_box()
    row = scroller.locator("tbody tr:nth-child(2)").first.bounding_box()
    beside = {"x": box["x"] + box["width"] + 1, "y": row["y"] + 2, "width": 2, "height": 2}
    inside = {**beside, "x": box["x"] + box["width"] - 4}  # above the letters
    ground = {**beside, "x": 2}

    def look(clip):
        return page.screenshot(clip=clip, full_page=True)

    assert look(beside) != look(ground)
    assert look(inside) == look(ground)
    scroller.evaluate("(e) => new Promise((done) => { e.onscroll = done; e.scrollTo(e.scrollWidth, 0); })")
    assert look(beside) == look(ground)


def test_on_paper_it_is_light_whole_and_without_controls(open_page):
    page = open_page(width=794, scheme="dark")
    page.get_by_label("Theme").select_option("dark")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    check_figures(page)
    settings = page.locator("#noise figure[data-setting]", has=page.locator("[data-panel=test]"))
    assert [each.is_visible() for each in settings.all()] == [True] * 6
    assert page.locator("#noise-training-6 figcaption").inner_text().startswith("Label noise on CIFAR-10, training: ")
    assert page.locator("select:visible, button:visible, nav:visible, input:visible").count() == 0
    assert page.get_by_text("Every run; percent.").first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
