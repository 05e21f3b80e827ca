"""Figures show what the records say, in the paper's form."""

import re
from dataclasses import replace
from statistics import mean, stdev
from xml.etree import ElementTree

import pytest

from deepbilevel_lab.drawing.figures import along, linear, over_values
from deepbilevel_lab.drawing.looks import DARK, LIGHT, NUM_COLOURS, colour_class, dash
from deepbilevel_lab.drawing.svg import draw_figure, draw_panel, marker, panel_height
from deepbilevel_lab.records import CellRun, Row
from deepbilevel_lab.report import run_figures
from deepbilevel_lab.report.records import read_records
from deepbilevel_lab.report.result_figures import result_figures
from deepbilevel_lab.report.run_figures import MOST_SHOWN, Setting, run_figure, settings_of
from tests.report.written import HOSTILE, not_done, write_everything, write_mu_figure, write_run, write_sweep

NETWORKS = ("CifarNet", "Inception")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return read_records(write_everything(tmp_path_factory.mktemp("records")))


def figures_of(records, name):
    return result_figures(sweep_of(records, name), name, "accuracy")


def sweep_of(records, name):
    return next(sweep for sweep in records.sweeps if sweep.name == name)


def training_of(records, name, number=0):
    sweep = sweep_of(records, name)
    series = list(dict.fromkeys(cell.row for cell in sweep.cells))
    return run_figure(settings_of(sweep, records.runs)[number], series, "t", "t")


def test_accuracy_is_drawn_against_what_was_varied(records):
    (figure,) = figures_of(records, "noise")
    assert figure.series == ("SGD", "bilevel")
    train, test = figure.panels
    assert (train.key, test.key) == ("train", "test")
    assert train.y == test.y
    sgd, bilevel = test.curves
    assert sgd.xs == (0, 20, 40, 50, 60)
    assert bilevel.xs == (0, 20, 40, 50, 60, 80)
    runs = sweep_of(records, "noise").cells[1].runs
    dot = next(dot for dot in test.dots if dot.series == 1 and dot.x == 0 and dot.look == "full")
    assert (dot.y, dot.y_deviation) == (
        mean(run.figures["test"] for run in runs),
        stdev(run.figures["test"] for run in runs),
    )


def test_published_points_are_drawn_where_there_are_any(records):
    train, test = figures_of(records, "noise")[0].panels
    assert not [dot for dot in train.dots if dot.look == "paper"]
    assert [dot.x for dot in test.dots if dot.look == "paper"] == [0, 20, 40, 50, 60, 80]
    assert all(dot.series == 1 for dot in test.dots if dot.look == "paper")


def test_a_point_that_is_missing_is_told(records):
    assert " Not drawn: SGD at 80 % (not run)." in figures_of(records, "noise")[0].about
    noisy = figures_of(records, "table1")[1]
    assert noisy.panels[0].row_labels[0] == "SGD: failed"
    assert not [dot for dot in noisy.panels[0].dots if dot.series == 0 and dot.look != "paper"]


def test_points_that_are_missing_are_told_together(tmp_path):
    done = {**not_done(0, "done"), "figures": {"test": 50.0, "train": 60.0}}
    absent = {(row, x): not_done(0, "missing") for row in "ab" for x in (0.1, 0.3)}
    absent["c", 0.3] = not_done(0, "failed", "no disk")
    cells = [
        {"row": row, "column": "", "x": x, "published": None, "runs": [absent.get((row, x), done)]}
        for row in "abc"
        for x in (0.0, 0.1, 0.3)
    ]
    write_sweep(tmp_path, "x", axis={"name": "the share of wrong labels"}, cells=cells)
    (figure,) = figures_of(read_records(tmp_path), "x")
    assert figure.about.endswith("Not drawn: a and b at 0.1, 0.3 (not run); c at 0.3 (failed).")
    assert figure.about.count("the share of wrong labels") == 1


@pytest.mark.parametrize("name", ["noise", "table1"])
@pytest.mark.parametrize(
    ("run", "said"),
    [
        (None, "Nothing of it has been run yet"),
        (CellRun(0, None, "missing", None, {}), "Nothing of it has been run yet"),
        (CellRun(0, None, "failed", "no disk", {}), "None of its runs has a result: "),
    ],
)
def test_a_figure_without_a_result_is_one_sentence(records, name, run, said):
    sweep = sweep_of(records, name)
    cells = tuple(replace(cell, runs=() if run is None else (run,)) for cell in sweep.cells)
    figures = result_figures(replace(sweep, cells=cells), name, "accuracy")
    assert len(figures) == (1 if name == "noise" else 2)
    for figure in figures:
        assert figure.about.startswith(said)
        assert figure.about.endswith("; the paper's numbers stand in the table.")
        assert not figure.panels


def test_a_comparison_shows_last_and_best_and_what_was_memorised(records):
    (figure,) = figures_of(records, "compare")
    test, train, scatter = figure.panels
    assert [dot.look for dot in test.dots[:2]] == ["full", "hollow"]
    assert all(dot.x_deviation is not None for dot in test.dots)
    assert len(test.dots) == 2 * len(train.dots) == 2 * len(scatter.dots) == 28
    assert not [key for key in figure.keys if key[0] == "paper"]


def test_training_curves_are_those_of_the_records(records):
    figure = training_of(records, "noise", 3)
    panels = {panel.key: panel for panel in figure.panels}
    assert list(panels) == ["test", "train", "train_clean", "negative_share", "loss", "weights"]
    run = records.runs[sweep_of(records, "noise").cells[7].runs[1].id]
    curve = next(c for c in panels["test"].curves if c.series == 1 and c.seed == 1)
    assert curve.xs == (2, 4, 6, 8, 10)
    assert curve.ys == tuple(row.test for row in run.history if row.test is not None)
    assert {c.series for c in panels["negative_share"].curves} == {1}
    assert panels["negative_share"].curves[1].ys == tuple(100 * row.negative_share for row in run.history)
    wide = next(b for b in panels["weights"].bands if b.seed == 1 and b.look == "wide")
    assert wide.lows == tuple(row.weight_p5 for row in run.history)
    assert wide.highs == tuple(row.weight_p95 for row in run.history)


def test_of_many_methods_the_first_and_the_best_are_shown_first(records):
    figure = training_of(records, "compare")
    assert figure.shown == {0, *range(14 - MOST_SHOWN + 1, 14)}
    assert [panel.key for panel in figure.panels if panel.key == "shared"] == ["shared"]


def test_a_figure_with_a_column_per_point_is_one_figure(tmp_path):
    runs = [{**not_done(0, "done"), "figures": {"test": 50.0, "train": 60.0}}]
    cells = [{"row": "a", "column": f"mu {x}", "x": x, "published": None, "runs": runs} for x in (0, 0.001, 0.1, 10)]
    write_sweep(tmp_path, "mu", axis={"name": "mu", "unit": ""}, cells=cells)
    (figure,) = figures_of(read_records(tmp_path), "mu")
    assert figure.panels[1].curves[0].xs == (0, 0.001, 0.1, 10)
    assert figure.panels[1].x_label == "mu"
    assert ">mu, not to scale</text>" in draw_panel(figure.panels[1])
    long = replace(figure.panels[1], x_label="mu, which evens out the weights of mini-batches")
    assert words_of(long).endswith("mu, which evens out the weights of mini-batches, not to scale")
    assert panel_height(long) > panel_height(figure.panels[1])
    assert "not to scale" not in words_of(replace(long, x=linear([0.0, 10.0])))
    endless = words_of(replace(long, x_label="mu and so on " * 99))
    assert "…" in endless
    assert endless.endswith("not to scale")


def words_of(panel):
    return " ".join(re.findall(r">([^<>]+)</text>", draw_panel(panel))).replace("- ", "-")  # where a line ends


def test_a_long_title_is_told_whole_above_a_plot_that_keeps_its_size(records):
    panel = figures_of(records, "noise")[0].panels[1]
    long = replace(panel, title="Weights: digits-digit-cnn-bilevel-uniform-0.5, limit 5000")
    assert "Weights: digits-digit-cnn-bilevel-uniform-0.5, limit 5000" in words_of(long)
    assert panel_height(long) == panel_height(panel) + 18


def test_of_a_figure_that_varied_nothing_there_is_none(tmp_path):
    done = {**not_done(0, "done"), "figures": {"test": 50.0, "train": 60.0}}
    cells = [
        {"row": "a", "column": column, "x": x, "published": None, "runs": [run]}
        for column, wanted in (("one", {1}), ("two", {1, 2}), ("none", set()))
        for x in (1, 2, 3)
        for run in [done if x in wanted else not_done(0, "missing")]
    ]
    write_sweep(tmp_path, "x", axis={"name": "mu"}, cells=cells)
    (figure,) = figures_of(read_records(tmp_path), "x")
    assert figure.title == "x: two"
    assert [value for value, _ in figure.panels[0].x.ticks] == [1, 2], "no place for what nobody ran"


def test_what_was_evaluated_once_has_no_curve(tmp_path):
    write_run(tmp_path, "short", 0, 90, 60, 2)
    (run,) = read_records(tmp_path).loose
    figure = run_figure(Setting("", ((0, run),)), ["short"], "t", "t")
    assert {panel.key for panel in figure.panels} == {"loss"}


def test_the_bars_of_last_and_best_epoch_lie_beside_each_other(records):
    last, best = figures_of(records, "compare")[0].panels[0].dots[:2]
    assert last.y > best.y


def test_columns_that_differ_after_their_last_comma_share_a_plot(tmp_path):
    write_mu_figure(tmp_path)
    cifarnet, inception = figures_of(read_records(tmp_path), "mu")
    assert (cifarnet.slug, inception.slug) == ("mu-results-1", "mu-results-2")
    assert (cifarnet.title, inception.title) == ("The parameter mu: CifarNet", "The parameter mu: Inception")
    assert cifarnet.series == inception.series == ("clean", "50 % noise")
    assert "a line per setting" in cifarnet.about
    clean, noisy = cifarnet.panels[1].curves
    assert clean.xs == noisy.xs == (0.001, 0.01, 0.1)
    assert min(clean.ys) > max(noisy.ys)


def test_lines_are_named_by_what_differs(tmp_path):
    write_mu_figure(tmp_path, rows=("SGD", "Bilevel"))
    sweep = sweep_of(read_records(tmp_path), "mu")
    assert result_figures(sweep, "mu", "accuracy")[0].series == (
        *("SGD, clean", "Bilevel, clean", "SGD, 50 % noise", "Bilevel, 50 % noise"),
    )
    # Nothing to group by: what stands before the comma is there once.
    alone = replace(sweep, cells=tuple(cell for cell in sweep.cells if cell.column.endswith("clean")))
    figures = result_figures(alone, "mu", "accuracy")
    assert [figure.title for figure in figures] == [f"The parameter mu: {name}, clean" for name in NETWORKS]
    assert [figure.slug for figure in figures] == ["mu-results-1", "mu-results-2"]
    assert all(figure.series == ("SGD", "Bilevel") for figure in figures)


@pytest.mark.parametrize("values", [[], [50.0], [0.0], [0.0, 100.0], [99.99, 100.0], [-1e-7, 1e-7], [50, 50 + 1e-11]])
def test_a_scale_holds_its_values(values):
    scale = linear(values)
    assert len(scale.ticks) >= 2
    assert all(0 <= scale.share(value) <= 1 for value in values)
    assert len({label for _, label in scale.ticks}) == len(scale.ticks)


@pytest.mark.parametrize("make", [along, over_values])
@pytest.mark.parametrize("values", [[1.0], [1.0, 2.0], [1.0, 200.0], [0.0, 0.01, 1.0, 1000.0]])
def test_every_value_has_a_place(make, values):
    shares = [make(values).share(value) for value in values]
    assert shares == sorted(set(shares))
    assert all(0 <= share <= 1 for share in shares)


def luminance(colour):
    def channel(value):
        return value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4

    red, green, blue = (channel(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_contrast_is_that_of_wcag(colours):
    for name in ("ink", "soft", "accent", "bad"):
        assert min(contrast(colours[name], colours[ground]) for ground in ("paper", "raised")) >= 4.5
    for name in ("edge", *(f"s{i}" for i in range(NUM_COLOURS))):
        assert contrast(colours[name], colours["paper"]) >= 3


def test_series_differ_without_their_colour():
    def looks(numbers):
        return [(dash(n), marker(n, 0, 0, "full"), colour_class(n)) for n in numbers]

    for alone in zip(*looks(range(NUM_COLOURS)), strict=True):
        assert len(set(alone)) == NUM_COLOURS >= 7
    many = looks(range(49))
    assert len({(line, shape) for line, shape, _ in many}) == 49
    assert len({(line, colour) for line, _, colour in many}) == 49
    assert len({(shape, colour) for _, shape, colour in many}) == 49, "markers without lines"


def test_a_training_curve_ends_in_its_marker(records):
    figure = training_of(records, "compare")
    panel = figure.panels[0]
    ends = re.findall(r'end-mark" data-series="(\d+)" data-seed="\d">(.*?)</g>', draw_panel(panel))
    assert len(ends) == len(panel.curves) == 28
    for number, shape in ends:
        expected = marker(int(number), 0, 0, "full")
        assert (shape.split()[0], shape.count("L")) == (expected.split()[0], expected.count("L"))


def test_a_single_panel_takes_the_width_of_two(records):
    (figure,) = figures_of(records, "noise")
    one, two = (
        ElementTree.fromstring(draw_figure(replace(figure, panels=panels)))
        for panels in (figure.panels[1:], figure.panels)
    )
    assert int(one.get("width")) + 18 == int(two.get("width"))
    ends = [{path.get("d").partition("H")[2] for path in drawn.iter(f"{SVG}path")} - {""} for drawn in (one, two)]
    assert ("706" in ends[0], "346" in ends[0]) == (True, False)
    assert ("706" in ends[1], "346" in ends[1]) == (False, True)


def test_methods_that_are_named_where_they_stand_have_no_legend(records):
    (figure,) = figures_of(records, "compare")
    named = replace(figure, panels=tuple(panel for panel in figure.panels if panel.rows))
    assert draw_figure(figure).count(">label smoothing</text>") == 3
    assert draw_figure(named).count(">label smoothing</text>") == 2
    assert ">Test, best epoch</text>" in draw_figure(named)


def test_rows_that_several_series_share_have_a_legend(records):
    (figure,) = figures_of(records, "compare")
    shared = tuple(replace(panel, rows=(None,) * len(panel.rows)) for panel in figure.panels if panel.rows)
    assert draw_figure(replace(figure, panels=shared)).count(">label smoothing</text>") == 3


def test_the_rise_from_chance_leaves_a_test_figure_below(records):
    def run_of(*tests):
        history = tuple(Row(epoch, 0.1, 1.0, 0.0, test=test) for epoch, test in enumerate(tests, start=1))
        return replace(next(iter(records.runs.values())), history=history)

    runs = ((0, run_of(10, 40, 80, 90, 88)), (0, run_of(20, 60, 80, 92, 90)), (1, run_of(7)))
    (panel,) = run_figures.test_figure(Setting("", runs), ("rising", "ended early"), "t", "t").panels
    assert panel.y.low == 0  # what ended early is shown all the same
    (panel,) = run_figures.test_figure(Setting("", runs[:2]), ("rising",), "t", "t").panels
    (curve,), (band,) = panel.curves, panel.bands
    assert panel.y.low == 75
    # The mean rises from 50 in the second epoch to 80 in the third: it meets the lower edge on its way.
    assert curve.xs == pytest.approx((2 + 25 / 30, 3, 4, 5))
    assert curve.ys == pytest.approx((75, 80, 91, 89))
    assert min(band.lows) == 75
    assert band.highs[-3:] == (80, 92, 90)


def test_a_file_is_sound_xml_whatever_a_record_says(tmp_path):
    record = write_run(tmp_path, HOSTILE, 0, 90, 60, 4, "bilevel")
    run = {**not_done(0, "done"), "id": record["id"], "figures": {"test": 1.0, "train": 2.0}}
    cells = [{"row": HOSTILE, "column": HOSTILE, "x": None, "published": None, "runs": [run]}]
    write_sweep(tmp_path, "x", title=HOSTILE, cells=cells)
    records = read_records(tmp_path)
    for figure in (*figures_of(records, "x"), training_of(records, "x")):
        root = ElementTree.fromstring(draw_figure(figure))
        assert HOSTILE in root.find(f"{SVG}title").text
        assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
            *("svg", "title", "desc", "style", "rect", "g", "path", "text", "circle")
        }
