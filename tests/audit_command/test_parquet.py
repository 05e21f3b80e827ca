"""The findings of an audit as Parquet: the same table, names as they are."""

import pytest

from deepbilevel_lab.audit import write_findings
from tests.audit_command.found import make_findings, make_multi_label_findings, read_table

parquet = pytest.importorskip("pyarrow.parquet", reason="pip install pyarrow")


@pytest.mark.parametrize("names", [("007", "08", "9"), ("null", "true", "nan"), ("a,b", 'c"d', "e\nf")])
def test_classes_keep_their_names(tmp_path, names):
    files = [f"{number:03}" for number in range(200)]
    written = write_findings(make_findings(class_names=names, files=files), tmp_path)
    columns = parquet.read_table(written.parquet).to_pydict()
    rows = read_table(written.table)
    for name in ("path", "given_label", "predicted_label"):
        assert columns[name] == [row[name] for row in rows]
    assert set(columns["given_label"]) == set(names)
    assert columns["index"] == [int(row["index"]) for row in rows]
    assert columns["is_label_issue"] == [row["is_label_issue"] == "True" for row in rows]


def test_classes_that_are_numbers_are_numbers(tmp_path):
    columns = parquet.read_table(
        write_findings(make_findings(class_names=("0", "1", "2")), tmp_path).parquet
    ).to_pydict()
    assert set(columns["given_label"]) == {0, 1, 2}


def test_several_labels_have_a_column_for_the_class(tmp_path):
    columns = parquet.read_table(write_findings(make_multi_label_findings(), tmp_path).parquet).to_pydict()
    assert set(columns["class_index"]) == {"cat", "dog"}
    assert set(columns["given_label"]) == {0, 1}
