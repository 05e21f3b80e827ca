"""`deepbilevel report` as its user runs it: files that are whole, the same every time, and harmless."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deepbilevel_lab.cli.app import app
from deepbilevel_lab.drawing.pictures import write_drawing
from deepbilevel_lab.report import make_report, page
from tests.report.written import (
    HOSTILE,
    not_done,
    run,
    write_ablations,
    write_comparison,
    write_everything,
    write_run,
    write_sweep,
    write_whole_table,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = write_everything(tmp_path_factory.mktemp("records"))
    return make_report(folder)


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


class Reader(HTMLParser):
    """What a browser would make of a page: tags with their attributes, ids, and the text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_every_figure_and_table_is_a_file(made):
    out = made.page.parent
    assert made.page.name == "index.html"
    svg = {path.stem for path in (out / "figures").glob("*.svg")}
    assert len(svg) == made.num_figures == 14
    assert svg >= {"table1-results-1", "table1-results-2", "noise-results-1", "compare-training-1"}
    assert {p.stem for p in (out / "figures").glob("*.png")} == {p.stem for p in (out / "figures").glob("*.pdf")} == svg
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (out / "figures").glob("*.png"))
    assert all(p.read_bytes().startswith(b"%PDF") for p in (out / "figures").glob("*.pdf"))
    assert {p.name for p in (out / "tables").iterdir()} == {
        *(f"{name}{part}.csv" for name in ("table1", "noise", "compare") for part in ("", "-runs")),
        *("cost.csv", "memory.csv"),
    }


def test_the_same_records_give_the_same_bytes(made, tmp_path):
    again = make_report(made.page.parents[1], tmp_path / "again")
    assert contents(again.page.parent) == contents(made.page.parent)


def test_the_page_needs_nothing_but_itself(made):
    page = Reader(made.page.read_text(encoding="utf-8"))
    loading = {"link", "img", "iframe", "object", "embed", "source", "video", "audio", "base"}
    assert not loading & {tag for tag, _ in page.tags}
    assert not [attributes for tag, attributes in page.tags if tag == "script" and attributes]
    text = made.page.read_text(encoding="utf-8")
    assert "url(" not in text
    assert "@import" not in text
    targets = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    for target in targets:
        if target.startswith("#"):
            assert target[1:] in ids
        else:
            assert (made.page.parent / target).is_file()


def test_ids_are_unique_and_headers_say_what_they_head(made):
    page = Reader(made.page.read_text(encoding="utf-8"))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert all(attributes.get("scope") for tag, attributes in page.tags if tag == "th")
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in page.tags}
    named = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert named
    assert all(attributes["aria-label"] for attributes in named)


def test_a_strangers_text_stays_text(tmp_path):
    record = write_run(tmp_path, HOSTILE, 0, 90, 60, 4, "bilevel")
    published = {"train": 1, "test": 2, "gap": 3, "note": HOSTILE}
    done = {**not_done(0, "done"), "id": record["id"], "figures": {"test": 1.0, "train": 2.0, "best": 3.0}}
    cell = {"row": HOSTILE, "column": HOSTILE, "published": published, "runs": [done, not_done(1, "failed", HOSTILE)]}
    changes = {"title": HOSTILE, "about": HOSTILE, "scale": HOSTILE, "reduced": HOSTILE, "updated": HOSTILE}
    write_sweep(tmp_path, "table", cells=[{**cell, "x": None}], **changes)
    write_sweep(tmp_path, "curve", cells=[{**cell, "x": 1}], axis={"name": HOSTILE, "unit": HOSTILE}, **changes)
    write_sweep(tmp_path, "kind", kind=HOSTILE)
    write_run(tmp_path, HOSTILE + "2", 0, 90, 60, 4)
    page = Reader(make_report(tmp_path).page.read_text(encoding="utf-8"))
    assert "img" not in {tag for tag, _ in page.tags}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert page.text.count(HOSTILE) > 10


def test_names_of_sweeps_lead_nowhere_else(tmp_path):
    for file, name in (("a", "../../up"), ("b", "UP"), ("c", "Ünï/code"), ("d", ""), ("e", "problems")):
        path = write_sweep(tmp_path, file, name=name)
        assert path.parent == tmp_path
    made = make_report(tmp_path)
    assert {p.name for p in (made.page.parent / "tables").iterdir()} == {
        f"{slug}.csv" for slug in ("up", "up-2", "n-code", "sweep", "problems-2")
    }
    assert {path.name for path in tmp_path.iterdir()} == {*(f"sweep-{file}.json" for file in "abcde"), "report"}


def test_the_command_names_what_it_could_not_read_and_makes_the_rest(tmp_path):
    write_ablations(tmp_path)
    (tmp_path / "sweep-cut.json").write_text("{")
    result = CliRunner().invoke(app, ["report", str(tmp_path), "--out", str(tmp_path / "elsewhere")])
    assert result.exit_code == 0, result.output
    assert "not read: sweep-cut.json: Expecting property name" in result.stderr
    assert "1 sweep and 20 runs" in result.stdout
    page = (tmp_path / "elsewhere" / "index.html").read_text(encoding="utf-8")
    assert "Files that could not be read" in page
    assert "sweep-cut.json" in page
    assert "Ablations on CIFAR-10" in page
    assert not (tmp_path / "report").exists()


def test_loose_runs_are_one_line_per_setting_and_seeds_lie_together(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path, "alone", seed, 90, 60, 4)
    write_run(tmp_path, "shared", 0, 90, 60, 4)
    write_run(tmp_path / "more", "shared", 1, 90, 60, 6)
    page = Reader(make_report(tmp_path).page.read_text(encoding="utf-8"))
    curves = [attributes["data-label"] for _, attributes in page.tags if "data-x" in attributes]
    assert {"alone, seed 0", "alone, seed 1", "shared, epochs 6, seed 1"} < set(curves)
    boxes = [attributes for _, attributes in page.tags if attributes.get("name") == "series"]
    assert len(boxes) == 3


def test_a_run_is_counted_once_and_a_planned_one_as_missing(tmp_path):
    shared = {**not_done(0, "done"), "id": "shared", "figures": {"test": 1.0}}
    lost = {**shared, "status": "missing", "figures": None}
    runs = {"a": [shared, not_done(1, "missing"), not_done(2, "failed", "no disk")], "b": [lost, {**lost, "id": "b"}]}
    for name, members in runs.items():
        cells = [{"row": "sgd", "column": "", "x": None, "published": None, "runs": members}]
        write_sweep(tmp_path, name, kind="comparison", cells=cells)
    write_sweep(tmp_path, "of the paper", cells=[{**cells[0], "runs": [not_done(0, "missing")]}])
    write_run(tmp_path, "loose", 0, 90, 60, 4)
    page = Reader(make_report(tmp_path).page.read_text(encoding="utf-8"))
    assert "3 runs were made (2 done, 1 failed); 2 more are planned." in page.text


def test_experiments_stand_in_the_order_of_the_paper_after_ones_own_comparisons(tmp_path):
    for name, about in (("a", "section 4.3, table 3"), ("b", "section 4.1, table 1"), ("c", "section 4.2, table 2")):
        write_sweep(tmp_path, name, about=about)
    write_sweep(tmp_path, "0", kind="comparison", about="")
    page = make_report(tmp_path).page.read_text()
    places = [page.index(f'<section id="{slug}"') for slug in ("0", "b", "c", "a")]
    assert places == sorted(places)


def test_a_table_of_which_nothing_was_run_is_folded(tmp_path):
    missing = {"row": "SGD", "column": "", "x": None, "published": None, "runs": [not_done(0, "missing")]}
    printed = {**missing, "published": {"train": None, "test": 50.0, "gap": None, "note": None}}
    write_sweep(tmp_path, "nothing", cells=[missing])
    write_sweep(tmp_path, "printed", cells=[printed])
    page = make_report(tmp_path).page.read_text()
    nothing, printed = page[page.index('<section id="nothing"') :].split('<section id="printed"')
    for section in (nothing, printed):
        assert section.index("<h2") < section.index("<details><summary>Not run</summary>") < section.index("<dl")
        assert section.count("<table") == 1
    assert "50.00" in printed  # what the paper prints can be unfolded


def test_a_figure_of_runs_that_another_section_shows_is_folded(tmp_path):
    shared = run(tmp_path, "shared", 0, 90.0, 50.0, 4, "Bilevel")
    cell = {"row": "Bilevel", "column": "CifarNet", "x": None, "published": None, "runs": [shared]}
    planned = {**cell, "x": 0.1, "runs": [not_done(0, "missing")]}
    axis = {"name": "mu", "unit": ""}
    write_sweep(tmp_path, "table", about="section 1", cells=[cell])
    write_sweep(tmp_path, "figure", about="section 2", axis=axis, cells=[{**cell, "x": 0.01}, planned])
    page = make_report(tmp_path).page.read_text()
    figure = page[page.index('<section id="figure"') :]
    assert figure.index("<details><summary>1 done, all of them shown above</summary>") < figure.index("<table")
    own = [{**cell, "x": 0.01}, {**planned, "runs": [run(tmp_path, "own", 0, 80.0, 40.0, 4, "Bilevel")]}]
    write_sweep(tmp_path, "figure", about="section 2", axis=axis, cells=own)
    assert "shown above" not in make_report(tmp_path).page.read_text()


def test_rows_of_which_nothing_was_run_are_folded_and_not_red(tmp_path):
    write_whole_table(tmp_path)
    page = make_report(tmp_path).page.read_text()
    seen, _, folded = page[page.index("<main") :].partition("<details><summary>Not run: 10 of 24</summary>")
    assert "missing" not in seen
    assert "absent" not in seen + folded
    assert "b) weights per layer" in folded
    assert "28 runs were made." in page


def test_of_made_up_images_nothing_is_compared_with_the_paper(tmp_path):
    write_whole_table(tmp_path)
    path = tmp_path / "sweep-whole.json"
    path.write_text(path.read_text().replace('"reduced": null', '"reduced": "1 epoch, on synthetic images"'))
    made = make_report(tmp_path)
    page = made.page.read_text()
    assert "<h1>Results on synthetic images</h1>" in page
    assert "The images are synthetic" in page
    assert "paper" not in page[page.index("<main") :].partition("<footer")[0].lower()
    lines = (made.page.parent / "tables" / "whole.csv").read_text().splitlines()
    assert "75.68" not in lines[1].split(",")


def test_runs_beside_a_comparison_are_folded_and_alone_they_are_the_result(tmp_path):
    write_run(tmp_path, "only", 0, 90, 60, 4)
    page = make_report(tmp_path).page.read_text()
    assert page.index("only ends at ") < page.index("<main")
    assert "<h2" in page
    assert "<details" not in page
    assert "<nav" not in page, "there is one section"
    write_comparison(tmp_path)
    page = make_report(tmp_path).page.read_text()
    runs = page[page.index('<section id="runs"') :]
    assert runs.index("Other runs") < runs.index("<details>") < runs.index("<table")


def test_no_line_of_a_verdict_ends_between_a_number_and_its_unit(made):
    page = made.page.read_text(encoding="utf-8")
    verdict = page[page.index('class="verdict"') :].partition("</p>")[0]
    assert re.search(r"\d\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}\d+\.\d\N{NO-BREAK SPACE}%", verdict)


def test_where_only_the_loss_was_recorded_over_epochs_it_is_shown(tmp_path):
    write_run(tmp_path / "once", "once", 0, 90, 60, 2)
    write_run(tmp_path / "often", "often", 0, 90, 60, 4)
    pages = [make_report(tmp_path / name).page.read_text() for name in ("once", "often")]
    assert ['value="loss" checked' in page for page in pages] == [True, False]


def test_only_a_long_list_of_runs_is_cut_to_a_window(tmp_path):
    for number in range(20):
        write_run(tmp_path, f"run {number}", 0, 90, 60, 4)
    assert 'class="choices many"' not in make_report(tmp_path).page.read_text()
    write_run(tmp_path, "one more", 0, 90, 60, 4)
    assert 'class="choices many"' in make_report(tmp_path).page.read_text()


def test_advice_is_told_once_and_first(tmp_path):
    write_sweep(tmp_path, "recommend-1", kind="comparison", about="Use SGD.")
    page = make_report(tmp_path).page.read_text()
    assert page.count("Use SGD.") == 1
    assert page.index("Use SGD.") < page.index("<main")


def test_a_dot_plot_of_one_method_is_not_drawn(tmp_path):
    runs = [{**not_done(0, "done"), "figures": {"test": 50.0, "train": 60.0}}]
    write_sweep(tmp_path, "x", cells=[{"row": "a", "column": "", "x": None, "published": None, "runs": runs}])
    made = make_report(tmp_path)
    assert made.num_figures == 0
    assert "Point at a figure" not in made.page.read_text()


def test_comparisons_come_before_experiments_and_all_are_named(made):
    page = Reader(made.page.read_text(encoding="utf-8"))
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections == ["compare", "table1", "noise", "cost", "memory"]
    assert "Methods side by side (compare; 28 done)" in page.text
    assert "Experimentnoise" in page.text
    assert "Comparisoncompare" in page.text


def test_of_what_was_not_run_there_is_neither_control_nor_file(tmp_path):
    runs = [not_done(0, "missing")]
    cells = [{"row": "sgd", "column": "", "x": x, "published": None, "runs": runs} for x in (1, 2)]
    write_sweep(tmp_path, "x", axis={"name": "mu"}, cells=cells)
    made = make_report(tmp_path)
    page = Reader(made.page.read_text(encoding="utf-8"))
    assert "Not run" in page.text
    assert not {"form", "input", "button"} & {tag for tag, _ in page.tags}
    assert made.num_figures == 0
    assert not list((made.page.parent / "figures").iterdir())


def test_an_empty_folder_gives_a_page_that_says_so(tmp_path):
    page = make_report(tmp_path).page.read_text(encoding="utf-8")
    assert "There are no records here yet." in page
    assert "<nav" not in page
    assert "Point at a figure" not in page


def test_a_folder_that_is_not_there_is_an_error_with_a_remedy(tmp_path):
    result = CliRunner().invoke(app, ["report", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "is not a folder; name one that holds" in result.stderr


def test_a_file_in_the_way_is_refused_and_left_alone(tmp_path):
    (tmp_path / "report").write_text("mine")
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "report is a file; name a folder" in result.stderr
    assert (tmp_path / "report").read_text() == "mine"


def test_without_the_converter_the_command_says_what_to_install(tmp_path, monkeypatch):
    write_run(tmp_path, "only", 0, 90, 60, 4)
    monkeypatch.setitem(sys.modules, "vl_convert", None)  # how Python itself says that a module cannot be imported
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "for PNG and PDF run: pip install 'deepbilevel[cli]'" in result.stderr
    assert [path.suffix for path in (tmp_path / "report" / "figures").iterdir()] == [".svg"]
    assert ".png" not in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


def test_a_picture_that_cannot_be_made_says_what_to_install_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ModuleNotFoundError, match=r"run: pip install 'deepbilevel\[cli\]'"):
        write_drawing("<svg/>", tmp_path / "picture.png")
    assert not list(tmp_path.iterdir())


def test_no_template_says_that_something_need_not_be_escaped():
    templates = sorted((Path(page.__file__).parent / "page_files").glob("*.html"))
    assert [path.name for path in templates] == ["figures.html", "page.html", "tables.html"]
    for template in templates:
        assert not re.search(r"\|\s*safe|autoescape|Markup", template.read_text(encoding="utf-8"))


def test_the_command_never_loads_torch(tmp_path):
    write_run(tmp_path, "only", 0, 90, 60, 4)
    code = f"""
import sys
from typer.testing import CliRunner
from deepbilevel_lab.cli.app import app
result = CliRunner().invoke(app, ["report", {str(tmp_path)!r}])
assert result.exit_code == 0, result.output
assert not {{"torch", "numpy"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_page_is_called_after_its_data_or_its_folder(tmp_path):
    write_sweep(tmp_path / "one", "a", base={"data": {"name": "folder", "path": "my/photos"}})
    write_sweep(tmp_path / "two", "a", base={"data": {"name": "digits"}})
    write_sweep(tmp_path / "two", "b", base={"data": {"name": "cifar10"}})
    titles = [
        make_report(tmp_path / name).page.read_text().split("<title>")[1].split("<")[0] for name in ("one", "two")
    ]
    assert titles == ["Results on photos", "Results in two"]


def test_the_page_begins_with_what_was_found(made):
    page = made.page.read_text(encoding="utf-8")
    assert page.index("ends with the highest") < page.index("<nav")
    assert "2026-11-16T" not in page
