"""The page in a real browser: keys, fingers, decisions that survive a reload, and 50,000 rows."""

import csv
import io
import re
from base64 import b64decode

import numpy as np
import pytest

from deepbilevel_lab.audit import write_findings
from deepbilevel_lab.data import load_data
from tests.audit_command.found import (
    HOSTILE,
    QUICK,
    SMALL_GROUPS,
    make_findings,
    make_multi_label_findings,
    read_table,
    write_flipped,
    write_page,
)
from tests.cli.trained import run_in_process

NUM_NODES = "document.querySelectorAll('*').length"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    files = [f"animals/{number}.jpg" for number in range(200)]
    return write_page(tmp_path_factory.mktemp("small"), files=files)


@pytest.fixture
def open_page(browser):
    """Open a page; whatever the browser complains about, and any request but for itself, fails the test."""
    complaints, contexts = [], []

    def open_it(path, width=1280, **settings):
        context = browser.new_context(viewport={"width": width, "height": 800}, offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url == path.as_uri()
                or request.url.startswith(("data:image/webp;base64,", "blob:"))
                or complaints.append(request.url)
            ),
        )
        page.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        page.goto(path.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []


def saved(page):
    with page.expect_download() as download:
        page.click("#save")
    assert download.value.suggested_filename == "corrected.csv"
    return list(csv.DictReader(io.StringIO(download.value.path().read_text())))


def worst(num_images=200):
    """Return what the page shows first, as the table has it."""
    findings = make_findings(num_images)
    names = findings.class_names
    return [(row.index, names[row.given_label], names[row.predicted_label]) for row in findings.issues][:20]


def press(page, keys):
    for key in keys:
        page.keyboard.press(key)


def test_counts_and_noise_rate_stand_on_top(open_page, small):
    header = open_page(small).locator("header").inner_text()
    assert "200 images, 3 classes." in header
    assert "20 are more probably wrong than right." in header
    assert "of the labels are wrong (95 % interval" in header


def test_keys_decide_and_move_on_and_the_file_says_so(open_page, small):
    page = open_page(small)
    press(page, ["a", "k", "d", "ArrowRight", "a"])
    first, second, third, _, fifth = worst()[:5]
    expected = [
        (*first, "accept", first[2]),
        (*second, "keep", second[1]),
        (*third, "drop", ""),
        (*fifth, "accept", fifth[2]),
    ]
    rows = [
        {
            "index": str(index),
            "path": f"animals/{index}.jpg",
            "given_label": given,
            "decision": decision,
            "new_label": new,
        }
        for index, given, _, decision, new in sorted(expected)
    ]
    assert saved(page) == rows
    assert page.locator(".badge:visible").all_inner_texts() == ["accepted", "kept", "dropped", "accepted"]


def test_the_other_arrows_move_by_rows(open_page, small):
    page = open_page(small)
    columns = page.evaluate(
        "new Set([...document.querySelectorAll('.tile')].map((tile) => tile.getBoundingClientRect().left)).size"
    )
    for key, place in (
        ("ArrowDown", columns),
        ("ArrowLeft", columns - 1),
        ("ArrowUp", columns - 1),
        ("ArrowRight", columns),
    ):
        page.keyboard.press(key)
        assert page.locator(".selected").get_attribute("id") == f"tile-{place}"


def test_undo_takes_back_one_decision_after_another_also_after_a_reload(open_page, small):
    page = open_page(small)
    press(page, ["a", "a", "ArrowLeft", "d"])  # the second was accepted, then dropped
    page.reload()
    assert page.locator(".badge:visible").all_inner_texts() == ["accepted", "dropped"]
    assert page.locator("#status").inner_text() == "2 decided"
    page.keyboard.press("u")
    assert page.locator(".badge:visible").all_inner_texts() == ["accepted", "accepted"]
    assert page.locator(".selected").get_attribute("id") == "tile-1"
    press(page, ["u", "u", "u"])
    assert page.locator(".badge:visible").count() == 0
    assert page.locator("#undo").is_disabled()
    page.reload()
    assert page.locator("#status").inner_text() == "0 decided"


def test_decisions_of_one_audit_are_not_those_of_another(open_page, small, tmp_path):
    page = open_page(small)
    press(page, "aa")
    page.goto(small.as_uri())
    assert page.locator("#status").inner_text() == "2 decided"
    other = write_page(tmp_path, num_images=100)
    page = open_page(other)
    assert page.locator("#status").inner_text() == "0 decided"


def test_a_cell_of_the_matrix_shows_its_pair(open_page, small):
    page = open_page(small)
    cells = page.locator("#matrix button")
    assert sum(map(int, cells.all_inner_texts())) == 20
    label = cells.first.get_attribute("aria-label")
    cells.first.click()
    pair, number = label.split(": ")
    shown = page.locator(".tile .words div:first-child").all_inner_texts()
    assert shown == [pair.replace(" to ", " → ")] * int(number)
    cells.first.click()
    assert page.locator("#view").input_value() == "suspicious"


def test_everything_and_what_was_decided_can_be_looked_at(open_page, small):
    page = open_page(small)
    press(page, "ad")
    page.select_option("#view", "decided")
    assert page.locator(".tile").count() == 2
    page.select_option("#view", "all")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator("#tile-199").click()
    assert page.locator(".selected").get_attribute("id") == "tile-199"


def test_another_label_can_be_chosen(open_page, small):
    page = open_page(small)
    index, given, suggested = worst()[0]
    third = next(name for name in ("cat", "dog", "cow") if name not in (given, suggested))
    page.select_option("#other", label=third)
    (row,) = saved(page)
    assert (row["index"], row["decision"], row["new_label"]) == (str(index), "relabel", third)


@pytest.mark.parametrize("width", [390, 360])
def test_a_finger_is_enough_on_a_phone(open_page, small, width):
    page = open_page(small, width, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".tile").nth(2).tap()
    for name in ("Accept", "Keep", "Drop"):
        page.get_by_role("button", name=name).tap()
    page.get_by_role("button", name="Undo").tap()
    assert page.locator(".badge:visible").all_inner_texts() == ["accepted", "kept"]
    assert len(saved(page)) == 2
    sizes = page.locator("#bar button, #bar select").evaluate_all("(all) => all.map((each) => each.offsetHeight)")
    assert min(sizes) >= 40


def test_the_selected_picture_is_never_behind_the_bar(open_page, small):
    page = open_page(small, 390)
    for _ in range(19):
        page.keyboard.press("k")
        picture, bar = (page.locator(each).bounding_box() for each in (".selected", "#bar"))
        assert picture["y"] >= -1
        assert picture["y"] + picture["height"] <= bar["y"] + 1


def test_pictures_are_those_of_their_rows(open_page, small):
    page = open_page(small)
    page.wait_for_load_state("networkidle")
    names = make_findings().class_names
    colours = page.evaluate(
        """async () => Promise.all([...document.querySelectorAll(".tile")].slice(0, 8).map(async (tile) => {
            const picture = tile.querySelector(".picture");
            return [picture.ariaLabel, picture.style.backgroundImage];
        }))"""
    )
    assert [name for name, _ in colours] == [f"animals/{index}.jpg" for index, _, _ in worst()[:8]]
    # Every image has the colour of its true class: red, green or blue for cat, dog or cow.
    from PIL import Image

    for (name, address), (index, _, suggested) in zip(colours, worst(), strict=False):
        content = b64decode(address.removeprefix('url("data:image/webp;base64,').removesuffix('")'))
        pixel = Image.open(io.BytesIO(content)).getpixel((4, 4))
        assert names[pixel.index(max(pixel))] == suggested, (name, index)


def test_50_000_rows_open_with_few_nodes_and_few_pictures(open_page, tmp_path):
    path = write_page(tmp_path, num_images=50_000)
    page = open_page(path)
    assert "50,000 images" in page.locator("header").inner_text()
    page.select_option("#view", "all")
    assert page.evaluate(NUM_NODES) < 1500
    for share in (0.3, 0.6, 1):
        page.evaluate(f"scrollTo(0, {share} * document.body.scrollHeight)")
        page.wait_for_timeout(100)
        assert page.evaluate(NUM_NODES) < 1500
        assert all(page.locator(".picture").evaluate_all("(all) => all.map((each) => each.style.backgroundImage)"))
    page.locator("#tile-49999").click()
    page.keyboard.press("c")
    assert "at first" in page.locator("#lines").get_attribute("aria-label")
    press(page, "k")
    assert len(saved(page)) == 1


def test_the_page_is_there_before_all_of_its_pictures(open_page, tmp_path):
    whole = write_page(tmp_path, num_images=2000).read_bytes()
    parts = [match.start() for match in re.finditer(rb'<script type="text/plain" id="pictures-', whole)]
    cut = tmp_path / "cut.html"
    cut.write_bytes(whole[: parts[3] + 500])  # within a sheet: what is still on its way looks the same
    page = open_page(cut)
    assert page.locator(".picture").first.evaluate("(each) => each.style.backgroundImage").startswith('url("data:')
    page.select_option("#view", "all")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.locator("#tile-1999").click()
    page.keyboard.press("k")
    assert len(saved(page)) == 1


def curve_of(page):
    """Return the two lines that are drawn: places from 0 to 1, and probabilities."""
    drawn = [page.locator(f"#lines .line-{line}:not(.dots)") for line in range(2)]
    lines = [[tuple(map(float, each.split())) for each in path.get_attribute("d")[1:].split("L")] for path in drawn]
    return [[(x / 100, 1 - y / 100) for x, y in line] for line in lines]


def assert_same_curve(drawn, curve):
    for line, points in enumerate(drawn):
        known = ~np.isnan(curve[:, line])
        places = (np.arange(len(curve)) + 0.5) / len(curve)
        assert points == [pytest.approx(each, abs=3e-3) for each in zip(places[known], curve[known, line], strict=True)]


def test_a_key_shows_the_curve_of_the_selected_image(open_page, small):
    page, findings = open_page(small), make_findings()
    assert page.locator("#curve").is_hidden()
    page.keyboard.press("c")
    for place, (index, given, _) in enumerate(worst()[:3]):
        assert page.locator(".selected").get_attribute("id") == f"tile-{place}"
        assert_same_curve(curve_of(page), findings.curves[index])
        assert page.locator("#line-0").inner_text() == given
        assert page.locator("#line-1").inner_text() == "strongest other class"
        page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    assert page.locator("#curve").is_hidden()


@pytest.mark.parametrize("width", [390, 1280])
def test_a_finger_shows_the_curve_and_the_image_stays_in_sight(open_page, small, width):
    page = open_page(small, width, has_touch=True, is_mobile=width < 600)
    page.locator(".tile").nth(2).tap()
    page.get_by_role("button", name="Curve").tap()
    assert page.locator("#curve").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    picture, bar, curve = (page.locator(each).bounding_box() for each in (".selected", "#bar", "#lines"))
    assert picture["y"] >= -1
    assert picture["y"] + picture["height"] <= bar["y"] + 1
    assert bar["y"] <= curve["y"]
    assert bar["height"] < 400


def test_the_curve_of_one_of_several_labels_is_its_own(open_page, tmp_path):
    findings = make_multi_label_findings()
    page = open_page(write_findings(findings, tmp_path).page)
    page.keyboard.press("c")
    first = next(iter(findings.issues))
    present = findings.curves[first.index, :, first.class_index]
    given = present if first.given_label else 1 - present
    assert_same_curve(curve_of(page), np.stack([given, 1 - given], axis=1))
    names = {page.locator("#line-0").inner_text(), page.locator("#line-1").inner_text()}
    about = ("cat", "dog")[first.class_index]
    assert names == {about, f"not {about}"}


def test_images_with_several_labels_have_a_row_per_class(open_page, tmp_path):
    page = open_page(write_findings(make_multi_label_findings(), tmp_path).page)
    assert "of the given labels are wrong" in page.locator("header").inner_text()
    assert "of the absent labels are missing" in page.locator("header").inner_text()
    pairs = set(page.locator(".tile .words div:first-child").all_inner_texts())
    assert pairs <= {f"{a} → {b}" for name in ("cat", "dog") for a, b in ((name, f"not {name}"), (f"not {name}", name))}
    assert page.locator("#other").is_hidden()
    press(page, "akd")
    first, second, third, *_ = make_multi_label_findings().issues
    expected = [
        (first, "accept", str(first.predicted_label)),
        (second, "keep", str(second.given_label)),
        (third, "drop", ""),
    ]
    assert sorted(tuple(row.values()) for row in saved(page)) == sorted(
        (str(issue.index), "", ("cat", "dog")[issue.class_index], str(issue.given_label), decision, new)
        for issue, decision, new in expected
    )


def test_what_the_page_saves_is_what_training_reads(open_page, tmp_path):
    write_flipped(tmp_path / "photos")
    out = tmp_path / "audit"
    done = run_in_process("audit", tmp_path / "photos", "--epochs", 4, "--out", out, *QUICK, *SMALL_GROUPS)
    assert done.exit_code == 0, done.output
    page = open_page(out / "index.html")
    page.select_option("#view", "all")
    page.locator("#grid").focus()
    press(page, "adk")
    with page.expect_download() as download:
        page.click("#save")
    download.value.save_as(out / "corrected.csv")
    rows = read_table(out / "issues.csv")[:3]
    before = load_data("folder", tmp_path / "photos")
    after = load_data("folder", tmp_path / "photos", labels=str(out / "corrected.csv"))
    expected = {int(row["index"]): row for row in rows}
    accepted, dropped, kept = expected
    assert after.numbers.tolist() == [number for number in range(80) if number != dropped]
    labels = dict(zip(after.numbers.tolist(), after.labels.tolist(), strict=True))
    assert after.class_names[labels.pop(accepted)] == expected[accepted]["predicted_label"]
    assert after.class_names[labels[kept]] == expected[kept]["given_label"]
    assert all(label == before.labels[number] for number, label in labels.items())


def test_strangers_names_are_text(open_page, tmp_path):
    files = [f"{number}{HOSTILE}" for number in range(200)]
    path = write_page(tmp_path, class_names=(HOSTILE, "=cmd", '"quoted", and\nbroken'), files=files)
    page = open_page(path)
    title = page.title()
    press(page, "aaaaaaaaaa")
    assert page.locator("img").count() == 0
    assert page.title() == title
    rows = saved(page)
    assert len(rows) == 10
    assert {row["new_label"] for row in rows} <= {HOSTILE, "'=cmd", '"quoted", and\nbroken'}
    assert all(row["path"] == files[int(row["index"])] for row in rows)


def test_many_classes_have_a_list_instead_of_a_matrix(open_page, tmp_path):
    path = write_page(tmp_path, num_images=2000, class_names=tuple(f"class {number}" for number in range(100)))
    page = open_page(path)
    assert page.locator("#matrix-part").is_hidden()
    assert page.locator("#view option").count() > 3


def test_a_browser_that_keeps_nothing_says_so(open_page, small):
    page = open_page(small)
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error('full'); }; }")
    press(page, "a")
    assert "save corrected.csv before you leave" in page.locator("#problem").inner_text()


def test_where_labels_cannot_be_told_apart_the_ranking_is_still_shown(open_page, tmp_path):
    page = open_page(write_page(tmp_path, told_apart=False))
    assert "cannot be told" in page.locator("header").inner_text()
    assert page.locator(".tile").count() > 0
    assert "score" in page.locator(".tile").first.inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_colours_of_the_system(open_page, small, scheme):
    page = open_page(small, color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
