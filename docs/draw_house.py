"""Draws the house from its import graph: ``python docs/draw_house.py`` writes ``docs/images/house.svg``.

Rooms are the modules and packages one level below the library and the laboratory; the paper is one room. A room stands
above everything it imports, and a line leads from a room to each room it imports, unless the way through another room
says the same. Dashed: a door that is opened only when somebody asks. A test fails if the picture is not that of the
code.
"""

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from html import escape
from pathlib import Path

import grimp

PACKAGES = {
    "deepbilevel": "the library: torch and numpy",
    "deepbilevel_lab": "the laboratory: what the command needs",
    "deepbilevel_paper": "the paper as data",
}
PICTURE = Path(__file__).parent / "images" / "house.svg"
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN, _TITLE = 116, 28, 14, 34, 16, 44
_HIDDEN = {"__main__"}
_ON_DEMAND = {("deepbilevel.step", "deepbilevel.one_pass")}


def rooms_and_doors() -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """Return the rooms of each package, and for every room the rooms it imports."""
    graph = grimp.build_graph(*PACKAGES)
    rooms = {"deepbilevel_paper": ["deepbilevel_paper"]} | {
        package: sorted(room for room in graph.find_children(package) if room.rpartition(".")[2] not in _HIDDEN)
        for package in PACKAGES
        if package != "deepbilevel_paper"
    }
    rooms = {package: rooms[package] for package in PACKAGES}
    known = [room for of_package in rooms.values() for room in of_package]
    doors: dict[str, set[str]] = {room: set() for room in known}
    for module in graph.modules:
        room = _room_of(module, known)
        if room is not None:
            found = (_room_of(each, known) for each in graph.find_modules_directly_imported_by(module))
            doors[room] |= {each for each in found if each is not None and each != room}
    for room, other in _ON_DEMAND:
        doors[room].remove(other)
    return rooms, doors


def _room_of(module: str, rooms: Iterable[str]) -> str | None:
    return next((room for room in rooms if module == room or module.startswith(f"{room}.")), None)


def levels_of(doors: Mapping[str, set[str]]) -> dict[str, int]:
    """Return how high each room stands: above every room it imports."""
    order = TopologicalSorter(doors).static_order()  # raises if rooms import each other in a circle
    levels: dict[str, int] = {}
    for room in order:
        levels[room] = max((levels[each] + 1 for each in doors[room]), default=0)
    return levels


def _direct(doors: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Return the lines to draw: those that no other room stands between."""

    def reachable(room: str, seen: set[str]) -> set[str]:
        for each in doors[room] - seen:
            seen.add(each)
            reachable(each, seen)
        return seen

    beyond = {room: {far for near in below for far in reachable(near, set())} for room, below in doors.items()}
    return sorted((room, each) for room, below in doors.items() for each in below if each not in beyond[room])


def draw() -> str:
    """Return the picture as SVG."""
    rooms, doors = rooms_and_doors()
    levels = levels_of(doors)
    places: dict[str, tuple[float, float]] = {}
    boxes: list[str] = []
    top = max(levels.values())
    left = _MARGIN
    for package, members in rooms.items():
        by_level = {level: [room for room in members if levels[room] == level] for level in range(top + 1)}
        columns = max(len(row) for row in by_level.values())
        width = columns * (_WIDTH + _GAP_X) - _GAP_X
        boxes.append(f'<text class="name" x="{left}" y="18">{package}</text>')
        boxes.append(f'<text class="about" x="{left}" y="34">{escape(PACKAGES[package])}</text>')
        for level, row in by_level.items():
            y = _TITLE + (top - level) * (_HEIGHT + _GAP_Y)
            start = left + (width - len(row) * (_WIDTH + _GAP_X) + _GAP_X) / 2
            for number, room in enumerate(row):
                x = start + number * (_WIDTH + _GAP_X)
                places[room] = (x + _WIDTH / 2, y)
                boxes.append(f'<rect class="{package}" x="{x:g}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4"/>')
                label = room.rpartition(".")[2]
                boxes.append(f'<text class="room" x="{x + _WIDTH / 2:g}" y="{y + 18}">{label}</text>')
        left += width + 3 * _GAP_X
    lines = [
        f'<path d="M{places[a][0]:g} {places[a][1] + _HEIGHT} L{places[b][0]:g} {places[b][1]}"/>'
        for a, b in _direct(doors)
    ]
    lines += [
        f'<path class="on-demand" d="M{places[a][0]:g} {places[a][1]} L{places[b][0]:g} {places[b][1] + _HEIGHT}"/>'
        for a, b in sorted(_ON_DEMAND)
    ]
    height = _TITLE + (top + 1) * (_HEIGHT + _GAP_Y)
    style = (
        "text { font-family: sans-serif; fill: #222 } .name { font-size: 15px; font-weight: bold } .about, .room "
        "{ font-size: 12px } .room { text-anchor: middle } rect { stroke: #555 } .deepbilevel { fill: #dbe9f6 } "
        ".deepbilevel_lab { fill: #e6f2dd } .deepbilevel_paper { fill: #f7ecd5 } path { stroke: #999; fill: none } "
        ".on-demand { stroke-dasharray: 4 3 }"
    )
    size = f'width="{left:g}" height="{height}" viewBox="0 0 {left:g} {height}"'
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>Which package imports which: imports point downward only</title>",
            f"<style>{style}</style>",
            f'<rect width="{left:g}" height="{height}" style="fill: #fff; stroke: none"/>',
            *lines,
            *boxes,
            "</svg>\n",
        )
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(f"wrote {PICTURE}")
