"""Tables on a terminal: columns stand apart if there is room, and numbers stay in one piece if they can."""

import pytest

from deepbilevel_lab.cli.tables import print_table

TITLES = ["method", "seeds", "last", "best", "train", "clean", "seconds"]
ROWS = [["sgd", "3", *["74.1 ± 2.2"] * 5], ["cross-validated", "3", *["95.0 ± 2.1"] * 5]]


@pytest.mark.parametrize(("width", "gap"), [(80, " "), (100, "  ")])
def test_numbers_are_not_broken_where_they_fit(width, gap, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(TITLES, ROWS, caption="")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert gap.join(["74.1 ± 2.2"] * 5) in lines[3]
    assert gap.join(["95.0 ± 2.1"] * 5) in lines[4]
