"""Specs as files people write: TOML or JSON, by their ending."""

import json
import sys
from pathlib import Path
from typing import Any

from deepbilevel_lab.replacement import write_text
from deepbilevel_lab.specs import SpecError, from_plain, to_plain
from deepbilevel_lab.training.spec import RunSpec

_INSTALL = "run: pip install 'deepbilevel[cli]'"


def load_spec(path: Path) -> RunSpec:
    """Read a spec; an error names the file, the key and the value."""
    plain = read_plain(path)
    try:
        return from_plain(RunSpec, plain)
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from error
    except RecursionError as error:
        raise SpecError(_too_deep(path)) from error


def read_plain(path: Path) -> Any:
    """Read a file of settings as it is."""
    if path.suffix not in {".toml", ".json"}:
        raise SpecError(f"a spec is a .toml or .json file, got {path}")
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else _parse_toml(text)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} does not exist; `deepbilevel train --dry-run` prints a spec to start from"
        ) from None
    except ValueError as error:
        raise SpecError(f"{path} is not valid {path.suffix[1:].upper()}: {error}") from error
    except RecursionError as error:
        raise SpecError(_too_deep(path)) from error


def save_spec(spec: RunSpec, path: Path) -> None:
    """Write a spec, whole or not at all."""
    if path.suffix == ".json":
        write_text(path, json.dumps(to_plain(spec), indent=2) + "\n")
    elif path.suffix == ".toml":
        write_text(path, to_toml(spec))
    else:
        raise SpecError(f"a spec is a .toml or .json file, got {path}")


def to_toml(spec: RunSpec) -> str:
    """Return a spec as TOML. It has no word for nothing: what is not there is left out, and read as the default."""
    try:
        import tomli_w
    except ImportError as error:
        raise ImportError(f"writing TOML needs tomli-w; {_INSTALL}") from error
    return tomli_w.dumps(_without_none(to_plain(spec)))


def _too_deep(path: Path) -> str:
    return f"{path} is nested too deeply for a spec; `deepbilevel train --dry-run` prints one to start from"


def _parse_toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(f"reading TOML needs tomli on Python 3.10; {_INSTALL}") from error
    return tomllib.loads(text)


def _without_none(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _without_none(value) for key, value in plain.items() if value is not None}
    return plain
