"""The page in a real browser: drawn, quiet, readable at any size, and every control does something."""

import pytest

from tests.report.drawn import check_figures
from tests.report.written import HOSTILE, make_page_only, not_done, run, write_sweep

# Everything that is drawn, so that a change can be seen.
DRAWN = """() => [...document.querySelectorAll(".panel svg :is(.line, .wide, .full, .hollow, .cross)")]
    .map((mark) => (mark.getBoundingClientRect().width > 0 ? "1" : "0")).join("")"""

SMALLEST_LETTERS = """() => Math.min(...[...document.querySelectorAll(".panel svg text")]
    .filter((t) => t.checkVisibility()).map((t) => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"""


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
        return [...document.querySelectorAll(".controls input:enabled")].map((box) => {{
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
    words = explorer.get_by_text("Nothing is chosen.")
    assert words.is_hidden()
    explorer.get_by_role("button", name="none").click()
    assert marks.count() == 0
    assert words.is_visible()
    explorer.get_by_role("button", name="all").click()
    assert words.is_hidden()


def test_boxes_without_anything_in_the_setting_shown_are_disabled(open_page, tmp_path):
    cells = [
        {"row": row, "column": column, "x": None, "published": None, "runs": runs}
        for column, row, seeds in (("clean", "SGD", (0,)), ("noisy", "bilevel", (0, 1)))
        for runs in [[run(tmp_path, f"{column} {row}", seed, 90, 60, 4, row) for seed in seeds]]
    ]
    lost = {"row": "lost", "column": "clean", "x": None, "published": None, "runs": [not_done(0, "failed")]}
    write_sweep(tmp_path, "apart", cells=[*cells, lost])
    page = open_page(of=make_page_only(tmp_path))
    explorer = page.locator(".explorer", has=page.locator("#apart-training-1"))

    def dead():
        return [box.inner_text() for box in explorer.locator("label:has(input:disabled)").all()]

    assert dead() == ["bilevel", "1", "Negative weights", "Weights of mini-batches"]
    assert explorer.locator("label:has(input:disabled)").first.evaluate("(e) => getComputedStyle(e).opacity") < "0.6"
    explorer.get_by_label("SGD").uncheck()
    assert explorer.locator("#apart-training-1 .nothing").inner_text() == "There is nothing here of what is chosen."
    explorer.get_by_label("Setting").select_option("noisy")
    assert dead() == ["SGD"]
    assert explorer.locator("#apart-training-2 [data-panel=test] .line:not(.off)").count() == 2
    assert page.get_by_label("lost").count() == 0, "it would do nothing"
    assert page.locator("#apart-results-1").locator("[data-panel=test]").get_by_text("lost: failed").last.is_visible()


def test_a_section_has_one_legend(open_page):
    page = open_page()
    legends = {
        section: page.locator(f"#{section} fieldset.legend").count() for section in ("table1", "noise", "compare")
    }
    assert legends == {"table1": 1, "noise": 1, "compare": 1}
    # That of the curve over noise is also that of its training, whose panels are chosen for themselves.
    noise = page.locator("#noise")
    results, training = (noise.locator(f"#noise-{name}-1 [data-panel=test]") for name in ("results", "training"))
    noise.get_by_label("Test", exact=True).uncheck()
    assert (results.is_visible(), training.is_visible()) == (True, False)
    noise.get_by_label("Test", exact=True).check()
    noise.get_by_label("SGD").uncheck()
    for panel in (results, training):
        assert panel.locator(".line:not(.off)").evaluate_all("(all) => all.map((e) => e.dataset.series)")[0] == "1"
    noise.get_by_label("Setting").select_option(label="CifarNet, label noise 50 %")
    assert results.is_visible()


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
    assert doubtful[4].startswith("81.60")
    assert next(text for text in texts if text[0] == "SGD" and "failed" in text)[1] == "40.20"
    page.get_by_label("note 1").first.click()
    assert page.locator("#table1-note-1").inner_text() == "doubtful: repeats the numbers of another network"
    assert "sweep-cut.json" in page.locator("#problems").inner_text()


def test_a_strangers_text_is_shown_and_does_nothing(open_page):
    page = open_page()
    assert page.title().startswith("Results in ")
    assert page.locator("img").count() == 0
    assert page.locator("h2", has_text="onerror").inner_text() == HOSTILE
