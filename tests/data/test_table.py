"""Tables as files: what is read, and what is refused with the place and the remedy."""

import sys

import pytest
import torch

from deepbilevel_lab.data.subset import set_aside, take
from deepbilevel_lab.data.table import ColumnsSpec, load_table, read_columns
from deepbilevel_lab.specs import SpecError
from tests.data.tables import write_patients, write_table


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_cells_and_labels_are_those_of_the_file(tmp_path):
    table = load_table(write(tmp_path, "x,kind,y\n 1.5 ,a b,no\n\n?,,yes\nNaN,n/a,no\n"), ColumnsSpec("y"))
    assert table.class_names == ("no", "yes")
    assert table.labels.tolist() == [0, 1, 0]
    assert table.columns == {"x": ["1.5", "", ""], "kind": ["a b", "", ""]}


def test_classes_that_are_numbers_are_in_the_order_of_numbers(tmp_path):
    table = load_table(write(tmp_path, "x,y\n1,10\n2,9\n3,2\n"), ColumnsSpec("y"))
    assert table.class_names == ("2", "9", "10")


@pytest.mark.parametrize("mark", [";", "\t"])
def test_semicolons_and_tabs_separate_where_there_is_no_comma(tmp_path, mark):
    columns = read_columns(write(tmp_path, f"x{mark}y\n1,5{mark}a\n"))
    assert columns == {"x": ["1,5"], "y": ["a"]}


def test_a_byte_order_mark_and_quotes_over_several_lines_are_read(tmp_path):
    columns = read_columns(write(tmp_path, '\ufeffx,y\n"two\nlines, and a ""quote""",a\n'))
    assert columns == {"x": ['two\nlines, and a "quote"'], "y": ["a"]}


def test_a_column_without_name_is_called_by_its_place(tmp_path):
    assert list(read_columns(write(tmp_path, ",x\n0,1\n"))) == ["column 1", "x"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,x,y\n1,2,a\n", "several columns called 'x'; give each its own name"),
        ("x,y\n1,a\n1,2,a\n", r"line 3: 3 cells, but the header has 2"),
        ("x,y\n1\n", r"line 2: 1 cells, but the header has 2"),
        ("x,y\n", "no rows below its header"),
        ("", "no rows below its header"),
        ("x,y\n1,a\n2,\n3,nan\n", r"row 1: the target 'y' is missing \(''\), in 2 rows altogether"),
        (f"x,y\n{'1' * 200_000},a\n", r"line 2: field larger than field limit .* 131,072 characters"),
        ("x,z\n1,a\n", "unknown target in table.csv, which has the columns 'y'"),
        ("x,y\n\0,a\n", "zero bytes"),
        (b"x,y\n\xff\xfe,a\n", "not UTF-8"),
    ],
)
def test_what_is_no_table_with_that_target_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_table(write(tmp_path, text), ColumnsSpec("y"))


def test_columns_that_are_not_there_get_the_nearest_name(tmp_path):
    path = write(tmp_path, "age,note,y\n1,hello,a\n2,there,b\n")
    with pytest.raises(ValueError, match=r"unknown column of table.csv 'aeg'; did you mean 'age'"):
        load_table(path, ColumnsSpec("y", ignore=("aeg",)))
    with pytest.raises(ValueError, match=r"unknown column of table.csv 'notes'; did you mean 'note'"):
        load_table(path, ColumnsSpec("y", text="notes"))
    with pytest.raises(FileNotFoundError, match="is not a file"):
        load_table(tmp_path / "nowhere.csv", ColumnsSpec("y"))


@pytest.mark.parametrize(
    "settings",
    [{"target": "y", "text": "y"}, {"target": "y", "ignore": ("y",)}, {"target": "y", "text": "a", "ignore": ("a",)}],
)
def test_a_column_has_one_use(settings):
    with pytest.raises(SpecError, match="as well"):
        ColumnsSpec(**settings)


def check(tmp_path, target):
    rows = [[number, value] for number, value in enumerate(target)]
    load_table(write_table(tmp_path / "table.csv", rows, ["x", "y"]), ColumnsSpec("y")).check_target()


def test_targets_that_are_no_classes_are_refused(tmp_path):
    check(tmp_path, [0, 1] * 20)
    check(tmp_path, list(range(30)) * 10)  # classes by number
    with pytest.raises(ValueError, match=r"looks like a quantity: 40 different numbers in 40 rows.* into ranges"):
        check(tmp_path, [number / 7 for number in range(40)])
    with pytest.raises(ValueError, match="looks like a quantity"):
        check(tmp_path, range(100))
    with pytest.raises(ValueError, match="is 'a' in every row; two classes are needed"):
        check(tmp_path, ["a"] * 5)


def test_a_class_with_one_row_is_refused_by_name_and_row(tmp_path):
    with pytest.raises(ValueError, match=r"the class 'catt' in one row only \(row 2\).*typing error"):
        check(tmp_path, ["cat", "dog", "catt", "cat", "dog"])


def test_parts_of_a_table_keep_cells_and_labels_together(tmp_path):
    table = load_table(write_patients(tmp_path / "table.csv"), ColumnsSpec("state"))
    train, test = set_aside(table, 0.25)
    assert len(train) + len(test) == len(table)
    for part in (train, test, take(table, torch.tensor([5, 3]))):
        for row, number in enumerate(part.numbers.tolist()):
            assert part.labels[row] == table.labels[number]
            assert all(part.columns[name][row] == cells[number] for name, cells in table.columns.items())


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"pip install 'deepbilevel\[tables\]'"):
        read_columns(write(tmp_path, "PAR1", "table.parquet"))
