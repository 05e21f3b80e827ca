"""The picture of the house in ARCHITECTURE.md is drawn from the import graph, so it cannot lie."""

import runpy
from pathlib import Path

DRAW = Path(__file__).parents[1] / "docs" / "draw_house.py"


def test_the_picture_is_that_of_the_code():
    drawn = runpy.run_path(str(DRAW))
    assert drawn["PICTURE"].read_text() == drawn["draw"](), f"run: python {DRAW.relative_to(DRAW.parents[1])}"


def test_no_room_imports_one_above_it():
    drawn = runpy.run_path(str(DRAW))
    _, doors = drawn["rooms_and_doors"]()
    levels = drawn["levels_of"](doors)
    assert all(levels[room] > levels[other] for room, others in doors.items() for other in others)
    assert not any(
        other.startswith("deepbilevel_") for room in doors if "_" not in room.split(".")[0] for other in doors[room]
    )
