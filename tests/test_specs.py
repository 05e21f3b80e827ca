"""Specs as plain JSON and back, on small specs made for it: every declared type, every kind of mistake."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepbilevel_lab.noise import NoiseSpec
from deepbilevel_lab.specs import SpecError, canonical_json, from_plain, spec_id, to_plain, validate, with_value


@dataclass(frozen=True)
class Circle:
    kind: ClassVar[str] = "circle"
    radius: float = 1.0

    def __post_init__(self):
        validate(self)
        if self.radius < 0:
            raise ValueError(f"radius must not be negative, got {self.radius}")


@dataclass(frozen=True)
class Square:
    kind: ClassVar[str] = "square"


@dataclass(frozen=True)
class Pen:
    name: str
    width: int = 1

    def __post_init__(self):
        validate(self)

    @classmethod
    def parse(cls, text):
        name, _, width = text.partition(":")
        return cls(name, int(width or 1))


@dataclass(frozen=True)
class Frame:
    kind: ClassVar[str] = "frame"
    width: int = 1

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True)
class Wall:
    frame: Frame | None = None

    def __post_init__(self):
        validate(self)


@dataclass(frozen=True)
class Drawing:
    title: str
    shape: Circle | Square = field(default_factory=Circle)
    pen: Pen | None = None
    colour: Literal["red", "green"] = "red"
    scale: float = 1.0
    copies: int = 1
    framed: bool = False
    note: str | None = None
    places: tuple[float, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self):
        validate(self)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**9), 10**9)
EXTRAS = st.recursive(
    st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
DRAWINGS = st.builds(
    Drawing,
    title=st.text(max_size=10),
    shape=st.just(Square()) | st.builds(Circle, st.floats(0, 1e300)),
    pen=st.none() | st.builds(Pen, st.text(max_size=5), st.integers()),
    colour=st.sampled_from(["red", "green"]),
    scale=NUMBERS,
    copies=st.integers(),
    framed=st.booleans(),
    note=st.none() | st.text(max_size=5),
    places=st.lists(NUMBERS, max_size=3),
    extras=st.dictionaries(st.text(max_size=3), EXTRAS, max_size=3),
)


@given(DRAWINGS)
def test_what_is_written_down_comes_back_as_the_same_value_with_the_same_id(drawing):
    plain = to_plain(drawing)
    assert from_plain(Drawing, plain) == drawing
    back = from_plain(Drawing, json.loads(json.dumps(plain, allow_nan=False)))
    assert back == drawing
    assert hash(back) == hash(drawing)
    assert spec_id(back) == spec_id(drawing)
    assert to_plain(back) == plain
    assert from_plain(Drawing, drawing) is drawing


def reversed_keys(plain):
    if isinstance(plain, dict):
        return {key: reversed_keys(plain[key]) for key in reversed(plain)}
    return plain


@given(DRAWINGS)
def test_the_order_of_keys_does_not_matter(drawing):
    assert spec_id(from_plain(Drawing, reversed_keys(to_plain(drawing)))) == spec_id(drawing)


@given(DRAWINGS)
def test_every_field_decides_about_the_id(drawing):
    changes = {
        "title": drawing.title + "x",
        "shape": Circle() if drawing.shape.kind == "square" else Square(),
        "pen": Pen("other") if drawing.pen is None else None,
        "colour": "green" if drawing.colour == "red" else "red",
        "scale": 1.0 if drawing.scale == 2.0 else 2.0,
        "copies": drawing.copies + 1,
        "framed": not drawing.framed,
        "note": "other" if drawing.note is None else None,
        "places": (*drawing.places, 1.0),
        "extras": {**drawing.extras, "longer": 1},
    }
    assert set(changes) == {each.name for each in fields(Drawing)}
    variants = [replace(drawing, **{name: value}) for name, value in changes.items()]
    assert len({spec_id(variant) for variant in [drawing, *variants]}) == 1 + len(changes)


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0.0, -0.0), ("1e-3", 0.001), ("2", 2)])
def test_equal_numbers_have_equal_ids(one, other):
    drawings = [Drawing("a", Circle(abs(float(number))), scale=number, places=[number]) for number in (one, other)]
    assert drawings[0] == drawings[1]
    assert spec_id(drawings[0]) == spec_id(drawings[1])


def test_the_plain_form_by_hand():
    drawing = Drawing("a", pen=Pen("ink"), places=(1, 2.5), extras={"b": (1, 2)})
    assert to_plain(drawing) == {
        "title": "a",
        "shape": {"kind": "circle", "radius": 1.0},
        "pen": {"name": "ink", "width": 1},
        "colour": "red",
        "scale": 1.0,
        "copies": 1,
        "framed": False,
        "note": None,
        "places": [1.0, 2.5],
        "extras": {"b": [1, 2]},
    }


def test_the_canonical_form_and_the_id_by_hand():
    text = '{"name":"\\u00e9","width":2}'
    assert canonical_json(Pen("é", 2)) == text
    assert spec_id(Pen("é", 2)) == hashlib.sha256(text.encode()).hexdigest()[:10]


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ({"title": "a"}, Drawing("a")),
        ({"title": "a", "shape": "square"}, Drawing("a", Square())),
        ({"title": "a", "shape": {"kind": "circle"}}, Drawing("a", Circle())),
        ({"title": "a", "shape": Square()}, Drawing("a", Square())),
        ({"title": "a", "pen": "ink:3"}, Drawing("a", pen=Pen("ink", 3))),
        ({"title": "a", "pen": {"name": "ink"}}, Drawing("a", pen=Pen("ink"))),
        ({"title": "a", "pen": None}, Drawing("a")),
        ({"title": "a", "places": (1, 2)}, Drawing("a", places=(1.0, 2.0))),
    ],
)
def test_what_people_write_by_hand_or_in_python(plain, expected):
    assert from_plain(Drawing, plain) == expected
    assert Drawing(**plain) == expected


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"titel": "a"}, "unknown key 'titel'; did you mean 'title'"),
        ({}, "title is missing; it has no default"),
        ([1], r"Drawing must be a table of settings, got \[1\]"),
        ({"title": 5}, "title must be text, got 5"),
        ({"title": None}, "title must be text, got None"),
        ({"title": "a", "copies": True}, "copies must be a whole number, got True"),
        ({"title": "a", "copies": 1.0}, "copies must be a whole number, got 1.0"),
        ({"title": "a", "copies": "1"}, "copies must be a whole number, got '1'"),
        ({"title": "a", "framed": 1}, "framed must be true or false, got 1"),
        ({"title": "a", "framed": "true"}, "framed must be true or false, got 'true'"),
        ({"title": "a", "scale": True}, "scale must be a number, got True"),
        ({"title": "a", "scale": float("nan")}, "scale must be a number, got nan"),
        ({"title": "a", "scale": "nan"}, "scale must be a number, got nan"),
        ({"title": "a", "scale": float("-inf")}, "scale must be a number, got -inf"),
        ({"title": "a", "scale": 10**400}, "scale must be a number, got 1000"),
        ({"title": "a", "scale": "wide"}, "scale must be a number, got 'wide'"),
        ({"title": "a", "scale": [1]}, r"scale must be a number, got \[1\]"),
        ({"title": "a", "colour": "gren"}, "unknown value of colour 'gren'; did you mean 'green'"),
        ({"title": "a", "colour": 1}, "colour must be one of red, green, got 1"),
        ({"title": "a", "colour": None}, "colour must be one of red, green, got None"),
        ({"title": "a", "places": 1}, "places must be a list, got 1"),
        ({"title": "a", "places": "12"}, "places must be a list, got '12'"),
        ({"title": "a", "places": [0, "x"]}, "places.1 must be a number, got 'x'"),
        ({"title": "a", "shape": "cirkle"}, "unknown shape 'cirkle'; did you mean 'circle'"),
        ({"title": "a", "shape": {"radius": 1}}, "shape must be one of circle, square or a table with that kind"),
        ({"title": "a", "shape": None}, "shape must be one of circle, square or a table with that kind, got None"),
        ({"title": "a", "shape": {"kind": "square", "radius": 1}}, "unknown key 'shape.radius'; there is none"),
        ({"title": "a", "shape": {"kind": "circle", "radus": 1}}, "key 'shape.radus'; did you mean 'shape.radius'"),
        ({"title": "a", "shape": {"kind": "circle", "radius": "x"}}, "shape.radius must be a number, got 'x'"),
        ({"title": "a", "shape": {"kind": "circle", "radius": -1}}, "shape: radius must not be negative, got -1.0"),
        ({"title": "a", "pen": {}}, "pen.name is missing; it has no default"),
        ({"title": "a", "pen": 3}, "pen must be a table of settings, got 3"),
        ({"title": "a", "pen": {"name": "ink", "width": 1.5}}, "pen.width must be a whole number, got 1.5"),
        ({"title": "a", "extras": [1]}, r"extras must be a table of names and values, got \[1\]"),
        ({"title": "a", "extras": {"b": float("nan")}}, "extras.b must be a finite number, .* got nan"),
        ({"title": "a", "extras": {"b": [1, {"c": None}]}}, "extras.b.1.c must be a finite number, .* got None"),
        ({"title": "a", "extras": {"b": np.float64(1)}}, "extras.b must be a finite number, .* got np.float64"),
    ],
)
def test_a_mistake_is_named_with_its_key_its_value_and_the_nearest(plain, message):
    with pytest.raises(ValueError, match=message):
        from_plain(Drawing, plain)


def test_a_choice_is_text_and_not_what_looks_like_it():
    @dataclass(frozen=True)
    class Place:
        device: Literal["cpu", "cuda"] = "cpu"

        def __post_init__(self):
            validate(self)

    with pytest.raises(SpecError, match=r"device must be one of cpu, cuda, got device\(type='cpu'\)"):
        Place(torch.device("cpu"))


def test_specs_are_frozen_and_do_not_follow_what_they_were_made_of():
    inner = [1, 2]
    extras = {"b": inner}
    drawing = Drawing("a", extras=extras)
    with pytest.raises(FrozenInstanceError):
        drawing.title = "b"
    before = spec_id(drawing)
    inner.append(3)
    extras["c"] = 1
    assert spec_id(drawing) == before
    plain = to_plain(drawing)
    plain["extras"]["b"].append(4)
    plain["shape"]["radius"] = 9
    assert spec_id(drawing) == before


BASE = Drawing("a", Circle(2.0), Pen("ink", 3), extras={"b": {"c": 1}})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("title", "b", {"title": "b"}),
        ("title", '"5"', {"title": "5"}),  # text that looks like a number is quoted
        ("scale", "1e-3", {"scale": 0.001}),
        ("scale", 2, {"scale": 2.0}),
        ("copies", "7", {"copies": 7}),
        ("framed", "true", {"framed": True}),
        ("places", "[1, 2]", {"places": [1.0, 2.0]}),
        ("pen", "null", {"pen": None}),
        ("pen", None, {"pen": None}),
        ("pen", "chalk:5", {"pen": {"name": "chalk", "width": 5}}),
        ("pen.width", "5", {"pen": {"name": "ink", "width": 5}}),
        ("shape", "square", {"shape": {"kind": "square"}}),
        ("shape", Square(), {"shape": {"kind": "square"}}),
        ("shape", "circle", {}),  # naming the kind that is there keeps its settings
        ("shape.kind", "circle", {}),
        ("shape.kind", "square", {"shape": {"kind": "square"}}),
        ("shape", '{"kind": "circle"}', {"shape": {"kind": "circle", "radius": 1.0}}),
        ("shape.radius", 3, {"shape": {"kind": "circle", "radius": 3.0}}),
        ("extras.b.c", "2", {"extras": {"b": {"c": 2}}}),
        ("extras.d", "x", {"extras": {"b": {"c": 1}, "d": "x"}}),
    ],
)
def test_a_value_is_changed_at_its_dotted_key_and_nothing_else(key, value, expected):
    before = to_plain(BASE)
    assert to_plain(with_value(BASE, key, value)) == before | expected
    assert to_plain(BASE) == before


def test_a_kind_that_is_an_ordinary_field_keeps_its_neighbours():
    assert with_value(NoiseSpec("uniform", 0.3), "kind", "pair") == NoiseSpec("pair", 0.3)

    @dataclass(frozen=True)
    class Holder:
        noise: NoiseSpec

    assert with_value(Holder(NoiseSpec("uniform", 0.3)), "noise.kind", "pair") == Holder(NoiseSpec("pair", 0.3))
    assert with_value(Holder(NoiseSpec("uniform", 0.3)), "noise", "pair:0.4") == Holder(NoiseSpec("pair", 0.4))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("titel", "b", "unknown key 'titel'; did you mean 'title'"),
        ("pn.width", 5, "unknown key 'pn'; did you mean 'pen'"),
        ("pen.widht", 5, "unknown key 'pen.widht'; did you mean 'pen.width'"),
        ("pen.width.more", 5, "pen.width is 3 and has no key 'more'; set pen.width itself"),
        ("note.a.b", 5, "note is None and has no key 'a.b'; set note itself"),
        ("places.0", 5, r"places is \[\] and has no key '0'; set places itself"),
        ("shape.kind", "cirkle", "unknown shape 'cirkle'; did you mean 'circle'"),
        ("shape.radius", "-1", "shape: radius must not be negative, got -1.0"),
        ("shape.radius", "NaN", "shape.radius must be a number, got nan"),
        ("copies", "1.5", "copies must be a whole number, got 1.5"),
        ("", "1", "unknown key ''"),
        ("pen.", "1", "unknown key 'pen.'"),
        (".pen", "1", "unknown key ''"),
    ],
)
def test_a_change_that_cannot_be_is_named(key, value, message):
    with pytest.raises(ValueError, match=message):
        with_value(BASE, key, value)


@pytest.mark.parametrize("spec", [Wall(), Wall(Frame()), Wall(Frame(3))])
def test_a_union_of_one_kind_and_nothing_comes_back(spec):
    assert from_plain(Wall, to_plain(spec)) == spec


def test_a_kind_that_has_no_siblings_is_named_like_any_other():
    assert with_value(Wall(), "frame", "frame") == Wall(Frame())
    assert with_value(Wall(Frame(3)), "frame", "frame") == Wall(Frame(3))
    assert with_value(Wall(Frame()), "frame.width", "3") == Wall(Frame(3))
    assert with_value(Wall(Frame()), "frame", "null") == Wall()
    with pytest.raises(ValueError, match="unknown frame 'fram'; did you mean 'frame'"):
        with_value(Wall(), "frame", "fram")
    with pytest.raises(SpecError, match="frame is None and has no key 'width'; set frame itself"):
        with_value(Wall(), "frame.width", "3")
