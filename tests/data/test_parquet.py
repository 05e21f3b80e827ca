"""Parquet files are read as the CSV files they could have been."""

import datetime

import pytest

pyarrow = pytest.importorskip("pyarrow", reason="pip install 'deepbilevel[tables]'")
parquet = pytest.importorskip("pyarrow.parquet")

from deepbilevel_lab.data.table import ColumnsSpec, load_table, read_columns  # noqa: E402


def write(path, **columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_cells_are_those_of_the_same_table_as_text(tmp_path):
    path = write(
        tmp_path / "table.parquet",
        x=[1.5, None, float("nan")],
        n=[1, 2, 3],
        flag=[True, False, None],
        day=[datetime.date(2020, 1, 2)] * 3,
        kind=pyarrow.array(["a", "b", "a"]).dictionary_encode(),
    )
    assert read_columns(path) == {
        "x": ["1.5", "", ""],
        "n": ["1", "2", "3"],
        "flag": ["true", "false", ""],
        "day": ["2020-01-02"] * 3,
        "kind": ["a", "b", "a"],
    }
    table = load_table(path, ColumnsSpec("kind"))
    assert table.labels.tolist() == [0, 1, 0]


def test_cells_that_are_no_text_and_files_that_are_no_parquet_are_refused(tmp_path):
    with pytest.raises(ValueError, match="column 'x' holds a list in a cell; remove it"):
        read_columns(write(tmp_path / "lists.parquet", x=[[1], [2]]))
    (tmp_path / "text.parquet").write_text("x,y\n1,a\n")
    with pytest.raises(ValueError, match="is damaged, or no Parquet file"):
        read_columns(tmp_path / "text.parquet")
