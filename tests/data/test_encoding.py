"""What columns become: numbers, categories and text, fitted on some rows and applied to others."""

import json

import numpy as np
import pytest

from deepbilevel_lab.data.encoding import CategoryColumn, NumberColumn, TableEncoding, fit_encoding
from deepbilevel_lab.data.table import ColumnsSpec, load_table
from deepbilevel_lab.data.text_features import TextColumn
from deepbilevel_lab.specs import SpecError, from_plain, to_plain
from tests.data.tables import write_notes, write_patients, write_table


def table_of(tmp_path, columns, **spec):
    """Return a table of these columns, with two classes in turn."""
    cells = list(columns.values())
    rows = [[*row, "ab"[number % 2]] for number, row in enumerate(zip(*cells, strict=True))]
    return load_table(write_table(tmp_path / "table.csv", rows, [*columns, "y"]), ColumnsSpec("y", **spec))


def encoded(encoding, tmp_path, columns):
    return encoding.encode(table_of(tmp_path, columns)).read(range(len(next(iter(columns.values()))))).numpy()


def test_kinds_are_found_and_useless_columns_left_out(tmp_path):
    encoding = fit_encoding(load_table(write_patients(tmp_path / "table.csv"), ColumnsSpec("state")))
    assert [(column.name, column.kind) for column in encoding.columns] == [("pulse", "number"), ("cough", "category")]
    assert encoding.left_out == {
        "patient_id": "looks like an id or free text: 240 different texts in 240 training rows",
        "place": "constant",
    }
    assert encoding.width == 2 + 3  # a number and whether it is missing; two values and the missing one


def test_numbers_are_scaled_and_missing_ones_are_the_median(tmp_path):
    encoding = fit_encoding(table_of(tmp_path, {"x": ["1", "2", "", "9"]}))
    rows = encoded(encoding, tmp_path, {"x": ["1", "2", "", "9", "1e300"]})
    scaled = (np.array([1, 2, 2, 9]) - 4) / np.std([1, 2, 9])
    assert rows[:4, 0] == pytest.approx(scaled, rel=1e-6)
    assert rows[:4, 1].tolist() == [0, 0, 1, 0]
    assert rows[4, 0] == 10  # not infinite, and not more than ten standard deviations


@pytest.mark.parametrize("cells", [["0.1"] * 299 + [""], ["0.1", "0.10"] * 150, ["0.3", repr(0.1 + 0.2)] * 150])
def test_constant_numbers_are_not_divided_by_rounding(tmp_path, cells):
    encoding = fit_encoding(table_of(tmp_path, {"x": cells}))
    assert encoding.columns[0].std == 1
    first, *_, last = encoded(encoding, tmp_path, {"x": [*cells[:2], "0.4"]})[:, 0]
    assert last - first == pytest.approx(0.4 - float(cells[0]))


def test_a_value_missing_for_the_first_time_is_the_median_alone(tmp_path):
    encoding = fit_encoding(table_of(tmp_path, {"x": ["1", "2", "9"], "c": ["a", "a", "b"]}))
    rows = encoded(encoding, tmp_path, {"x": ["", "2"], "c": ["", "a"]})
    assert rows.shape == (2, 2)
    assert rows[0, 0] == rows[1, 0]
    assert rows[:, 1].tolist() == [0, 1]


def test_unknown_and_rare_categories_are_no_category(tmp_path):
    encoding = fit_encoding(table_of(tmp_path, {"c": ["red", "red", "blue", "blue", "once", ""]}))
    assert encoding.columns == (CategoryColumn("c", ("blue", "red"), has_missing=True),)
    rows = encoded(encoding, tmp_path, {"c": ["red", "blue", "once", "green", ""]})
    assert rows.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("customer_id", [7 * number % 97 + 1 for number in range(60)], "looks like an id"),
        ("", list(range(60)), "looks like an id"),
        ("order", list(range(5, 65)), "looks like an id"),
        ("name", [f"somebody {number}" for number in range(60)], "looks like an id or free text"),
        ("same", ["x"] * 60, "constant"),
        ("zero", [0] * 60, "constant"),
        ("nothing", [""] * 60, "empty"),
    ],
)
def test_columns_that_cannot_help_are_left_out_with_the_reason(tmp_path, name, cells, why):
    encoding = fit_encoding(table_of(tmp_path, {name: cells, "x": np.random.RandomState(0).rand(60)}))
    assert [column.name for column in encoding.columns] == ["x"]
    assert encoding.left_out[name or "column 1"].startswith(why)


def test_whole_numbers_that_mean_something_are_kept(tmp_path):
    random = np.random.RandomState(0)
    columns = {"age": random.randint(1, 90, 60), "price": random.permutation(10_000)[:60], "x": random.rand(60)}
    assert fit_encoding(table_of(tmp_path, columns)).left_out == {}


def test_without_a_column_to_learn_from_the_reasons_are_told(tmp_path):
    with pytest.raises(ValueError, match=r"no column is left to predict 'y' from \(c: constant; x: ignored, as told\)"):
        fit_encoding(table_of(tmp_path, {"c": ["a"] * 4, "x": [1, 2, 3, 5]}, ignore=("x",)))


def test_words_among_numbers_are_refused(tmp_path):
    cells = [*map(str, np.random.RandomState(0).rand(60)), "12,5"]
    with pytest.raises(ValueError, match=r"column 'x' holds numbers, and words in 1 rows: '12,5' in row 60"):
        fit_encoding(table_of(tmp_path, {"x": cells}))
    encoding = fit_encoding(table_of(tmp_path, {"x": cells[:-1]}))
    with pytest.raises(ValueError, match="row 1: column 'x' must be a number, got 'tall'"):
        encoded(encoding, tmp_path, {"x": ["1", "tall"]})
    with pytest.raises(ValueError, match="row 0: column 'x' must be a number, got 'inf'"):
        encoded(encoding, tmp_path, {"x": ["inf", "2"]})
    with pytest.raises(ValueError, match="the table lacks the column 'x'; it needs x"):
        encoded(encoding, tmp_path, {"z": ["1", "2"]})


def test_numbers_too_large_to_be_scaled_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"column 'x' holds numbers as large as 1e\+308; scale or --ignore it"):
        fit_encoding(table_of(tmp_path, {"x": ["1e308", "-1e308", "0.5"]}))


def test_only_so_many_categories_are_kept(tmp_path):
    cells = [f"c{number % 150}" for number in range(400)] + ["c7"] * 100
    (column,) = fit_encoding(table_of(tmp_path, {"c": cells})).columns
    assert len(column.values) == 100
    assert "c7" in column.values


def test_text_is_weighted_by_rarity_and_has_one_length(tmp_path):
    table = load_table(write_notes(tmp_path / "notes.csv"), ColumnsSpec("kind", text="note"))
    encoding = fit_encoding(table)
    assert encoding.text == "note"
    rows = encoding.encode(table).read(range(len(table))).numpy()
    lengths = np.linalg.norm(rows, axis=1)
    is_empty = np.array([not text for text in table.columns["note"]])
    assert lengths[is_empty].tolist() == [0] * 4
    assert lengths[~is_empty] == pytest.approx(lengths[0], rel=1e-5)
    (column,) = encoding.columns
    common, rare = (np.flatnonzero(rows_of(column, word)) for word in ("the", "zebra"))
    assert np.array(column.idf)[common].max() < np.array(column.idf)[rare].min()


def rows_of(column, text):
    _, places, values = column.encode([text])
    row = np.zeros(column.width)
    row[places] = values
    return row


def test_text_without_words_is_refused(tmp_path):
    with pytest.raises(ValueError, match="text 'note' holds no words"):
        fit_encoding(table_of(tmp_path, {"note": ["...", "!"]}, text="note"))


def test_an_encoding_survives_as_json(tmp_path):
    for table in (
        load_table(write_patients(tmp_path / "patients.csv"), ColumnsSpec("state")),
        load_table(write_notes(tmp_path / "notes.csv"), ColumnsSpec("kind", text="note")),
    ):
        encoding = fit_encoding(table)
        again = from_plain(TableEncoding, json.loads(json.dumps(to_plain(encoding))))
        assert again == encoding
        assert (again.encode(table).features != encoding.encode(table).features).nnz == 0


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        {"columns": [{"kind": "number", "name": "x", "median": 0, "mean": 0, "std": 0, "has_missing": False}]},
        {"columns": [{"kind": "code", "name": "x"}]},
        {"columns": [{"kind": "text", "name": "x", "idf": []}]},
        {"columns": [{"kind": "category", "name": "x", "values": [1], "has_missing": False}]},
    ],
)
def test_a_strangers_encoding_is_read_strictly(change):
    with pytest.raises((SpecError, ValueError)):
        from_plain(TableEncoding, {"target": "y", "left_out": {}, **change})


def test_kinds_are_what_they_say():
    assert (NumberColumn.kind, CategoryColumn.kind, TextColumn.kind) == ("number", "category", "text")
