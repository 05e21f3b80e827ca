"""Pickles of plain values, read without ever calling what they ask for.

A pickle is a program. Even ``numpy.dtype`` is too much to give it: a forged state turns bytes into pointers. So the
opcodes are interpreted here. They make numbers, texts, lists, tuples and dictionaries; an array of integers is
recognised by the pattern in which numpy writes it, and made from its bytes by us. Nothing else can be expressed.
"""

import io
import math
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "array",
    ("numpy._core.multiarray", "_reconstruct"): "array",
    ("numpy", "ndarray"): "ndarray",
    ("numpy", "dtype"): "dtype",
    ("_codecs", "encode"): "encode",  # how Python 3 writes bytes in the protocols of Python 2
}
_INTEGERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}


class _Name:
    """A function or class that the file names; it is never looked up."""

    def __init__(self, module: str, name: str) -> None:
        if (module, name) not in _NAMES:
            raise ValueError(f"it asks for {module}.{name}")
        self.meaning = _NAMES[module, name]


class _Unfilled:
    """An array or a type of integers, before its content was given."""

    def __init__(self, integers: str | None = None) -> None:
        self.integers = integers
        self.filled: Any = None


def read_pickle(file: io.BytesIO) -> Any:
    """Return the next value of a file: numbers, texts, bytes, lists, tuples, dictionaries and arrays of integers.

    Texts of Python 2 become bytes. Whatever is not such a value raises, with any exception.

    >>> import pickle
    >>> read_pickle(io.BytesIO(pickle.dumps({b"labels": [6, 9], b"data": np.arange(3)}, protocol=4)))
    {b'labels': [6, 9], b'data': array([0, 1, 2])}
    """
    stack: list[Any] = []
    outer: list[list[Any]] = []  # stacks below a mark
    memo: dict[int, Any] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(file):
        match opcode.name:
            case "PROTO" | "FRAME":
                pass
            case "STOP":
                (value,) = stack
                return value
            case "MARK":
                outer.append(stack)
                stack = []
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                known = memo[argument]
                stack.append(known.filled if isinstance(known, _Unfilled) and known.filled is not None else known)
            case "TUPLE" | "LIST" | "DICT" | "APPENDS" | "SETITEMS" as name:
                items, stack = stack, outer.pop()
                _MARKED[name](stack, items)
            case "TUPLE1" | "TUPLE2" | "TUPLE3" as name:
                count = int(name[-1])
                stack[-count:] = [tuple(_last(stack, count))]
            case "APPEND":
                item = stack.pop()
                _extend(stack, [item])
            case "SETITEM":
                items = _last(stack, 2)
                del stack[-2:]
                _update(stack, items)
            case "REDUCE":
                function, arguments = _last(stack, 2)
                stack[-2:] = [_call(function, arguments)]
            case "BUILD":
                unfilled, state = _last(stack, 2)
                stack[-2:] = [_fill(unfilled, state)]
            case "GLOBAL":
                stack.append(_Name(*argument.split(" ", 1)))
            case "STACK_GLOBAL":
                module, name = _last(stack, 2)
                stack[-2:] = [_Name(_text(module), _text(name))]
            case name if name in _PLAIN:
                stack.append(_PLAIN[name](argument))
            case name:
                raise ValueError(f"it holds the instruction {name}, which plain values do not need")
    raise ValueError("it ends too early")


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "EMPTY_TUPLE": lambda _: (),
    **dict.fromkeys(("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"), lambda number: number),
    **dict.fromkeys(("STRING", "BINSTRING", "SHORT_BINSTRING"), lambda text: text.encode("latin-1")),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"), lambda content: content),
    **dict.fromkeys(("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"), lambda text: text),
}


def _last(stack: list[Any], count: int) -> list[Any]:
    if len(stack) < count:
        raise ValueError("it takes more values than it made")
    return stack[-count:]


def _extend(stack: list[Any], items: list[Any]) -> None:
    if not isinstance(stack[-1], list):
        raise TypeError("it adds to what is not a list")
    stack[-1].extend(items)


def _update(stack: list[Any], items: list[Any]) -> None:
    keys = items[::2]
    if not isinstance(stack[-1], dict) or len(items) % 2 or not all(isinstance(key, bytes | str | int) for key in keys):
        raise TypeError("it sets the items of what is not a dictionary, or under other keys than texts and numbers")
    stack[-1].update(zip(keys, items[1::2], strict=True))


def _push_dict(stack: list[Any], items: list[Any]) -> None:
    stack.append({})
    _update(stack, items)


_MARKED: dict[str, Callable[[list[Any], list[Any]], None]] = {
    "TUPLE": lambda stack, items: stack.append(tuple(items)),
    "LIST": lambda stack, items: stack.append(items),
    "DICT": _push_dict,
    "APPENDS": _extend,
    "SETITEMS": _update,
}


def _text(value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise TypeError("it gives another value where a text belongs")
    return value if isinstance(value, str) else value.decode("latin-1")


def _call(function: Any, arguments: Any) -> Any:
    """Recognise the three calls with which numpy and Python 3 begin an array, a type and bytes."""
    match getattr(function, "meaning", None), arguments:
        case "encode", (str() as text, "latin1"):
            return text.encode("latin-1")
        case "array", (_Name(meaning="ndarray"), (0,), b"b"):
            return _Unfilled()
        case "dtype", (str() | bytes() as integers, int(), int()) if _text(integers) in _INTEGERS:
            return _Unfilled(_text(integers))
        case _:
            raise ValueError("it makes something else than an array of integers")


def _fill(unfilled: Any, state: Any) -> Any:
    """Recognise the states that numpy gives to a type of integers and to an array of them."""
    if not isinstance(unfilled, _Unfilled) or unfilled.filled is not None:
        raise TypeError("it gives a state to what has none")
    if unfilled.integers is not None:
        match state:
            case (3, str() | bytes() as order, None, None, None, -1, -1, 0) if _text(order) in {"<", ">", "|"}:
                unfilled.filled = np.dtype(_text(order).replace("|", "<") + unfilled.integers)
            case _:
                raise ValueError("its type of integers is none that numpy writes")
    else:
        match state:
            case (1, tuple() as shape, np.dtype() as integers, int() as by_columns, bytes() as content):
                unfilled.filled = _make_array(shape, integers, content, "F" if by_columns else "C")
            case _:
                raise ValueError("its array is none that numpy writes")
    return unfilled.filled


def _make_array(shape: tuple[Any, ...], integers: np.dtype[Any], content: bytes, order: Any) -> Any:
    if not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ValueError("its array has sides that are not numbers")
    if math.prod(shape) * integers.itemsize != len(content):
        raise ValueError("its array has more or fewer bytes than its sides ask for")
    return np.frombuffer(content, integers).reshape(shape, order=order)
