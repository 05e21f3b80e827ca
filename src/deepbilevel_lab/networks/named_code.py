"""Networks that are code or files of the user: run only if the user of this process has named them.

Specs and networks travel, and a stranger's must never run code. So the name in a spec alone loads nothing. Whoever runs
a command names the code again (``--network file.py:make``). It is read from where they say, and its content must be
what the spec was made with: its hash is a part of the spec, and so of the run's id.
"""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

TIMM, TRANSFORMERS = "timm:", "transformers:"
HUB = "hf-hub:"
_LENGTH = 16
_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens_map.json", "*.model")

_named: dict[tuple[str, str], str] = {}  # what is called, and the hash of its content -> where the user says it is


def is_own_code(name: str) -> bool:
    """Whether a network is code: ``file.py:make`` or ``package.module:make``."""
    return ":" in name and not name.startswith((TIMM, TRANSFORMERS))


def needs_naming(name: str) -> bool:
    """Whether a network is taken from this machine or somebody's page, and so must be named by who runs the command."""
    return is_own_code(name) or name.startswith((TRANSFORMERS, TIMM + HUB))


def name_code(name: str) -> str | None:
    """Allow this process to use a network that is code or a folder; return the hash of its content.

    What needs no permission is left alone; where there is no content, None is returned.
    """
    if not needs_naming(name):
        return None
    if name.startswith(TIMM):  # no file here decides what it is
        _named[_called(name), ""] = name
        return None
    content = hashlib.sha256(b"".join(file.read_bytes() for file in _source_files(name))).hexdigest()[:_LENGTH]
    _named[_called(name), content] = name
    return content


def check_named(name: str, content: str | None) -> str:
    """Return where the user says that a network of a spec is; refuse it if they did not, or if it has changed."""
    if (place := _named.get((_called(name), content or ""))) is not None:
        return place
    others = [place for called, place in ((key[0], value) for key, value in _named.items()) if called == _called(name)]
    if others:
        raise ValueError(
            f"{others[-1]} is not what network {name!r} was when this spec was made (content {content}); bring the "
            "file as it was, or train what it is now as a new run with --data and --network"
        )
    raise ValueError(
        f"network {name!r} is not part of deepbilevel, and is used only if you name it: add --network {name} (from "
        f"Python: deepbilevel_lab.networks.name_code({name!r})), and only if you trust it"
    )


def make_own(name: str, content: str | None, num_classes: int, arguments: dict[str, Any]) -> nn.Module:
    """Call the user's function and return the network it makes."""
    place = check_named(name, content)
    make = _find_function(place, content)
    try:
        network = make(num_classes=num_classes, **arguments)
    except TypeError as error:
        raise ValueError(
            f"network {place}: {error}; it is called with num_classes and with what network.arguments holds, "
            f"{arguments}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"network {place} must return a torch.nn.Module, got {type(network).__name__}")
    return network


def _called(name: str) -> str:
    return TRANSFORMERS if name.startswith(TRANSFORMERS) else name.rpartition(":")[2]


def _source_files(name: str) -> list[Path]:
    """Return the files whose content decides what the network is, and how it reads text."""
    file = _source_file(name)
    if not name.startswith(TRANSFORMERS):
        return [file]
    return [file, *(each for each in tokenizer_files(file.parent) if each != file)]


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files beside a network of transformers that say how text is cut into tokens."""
    return sorted({each for pattern in _TOKENIZER_FILES for each in folder.glob(pattern) if each.is_file()})


def _source_file(name: str) -> Path:
    if name.startswith(TRANSFORMERS):
        place = Path(name.removeprefix(TRANSFORMERS))
        file = place / "config.json" if place.is_dir() else place
        if not file.is_file():
            raise FileNotFoundError(
                f"network {name}: {file} is no file; give a folder with a config.json, or such a file. With a network "
                "at hand: huggingface-cli download MODEL --local-dir FOLDER"
            )
        return file
    module, _, function = name.rpartition(":")
    if not function.isidentifier():
        raise ValueError(f"network {name!r} must end in the name of a function, as in file.py:make")
    if module.endswith(".py"):
        if not Path(module).is_file():
            raise FileNotFoundError(f"network {name}: {module} is no file; it should define {function}(num_classes)")
        return Path(module)
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError) as error:
        raise ValueError(f"network {name!r}: {error}; the module must be importable from here (PYTHONPATH)") from error
    if found is None or found.origin is None or not Path(found.origin).is_file():
        raise ValueError(
            f"network {name!r}: there is no module {module}; it must be importable from here (PYTHONPATH), or be a "
            "file as in file.py:make"
        )
    return Path(found.origin)


def _find_function(place: str, content: str | None) -> Callable[..., Any]:
    module_name, _, function = place.rpartition(":")
    if module_name.endswith(".py"):
        module = _load_file(Path(module_name), content)
    else:
        module = importlib.import_module(module_name)
    make = getattr(module, function, None)
    if not callable(make):
        raise ValueError(f"network {place}: {module_name} has no function called {function!r}")
    return make


def _load_file(path: Path, content: str | None) -> ModuleType:
    name = f"deepbilevel_named_{content}"
    if name in sys.modules:
        return sys.modules[name]
    source = path.read_bytes()
    if hashlib.sha256(source).hexdigest()[:_LENGTH] != content:
        raise ValueError(f"{path} was changed while it was read; run the command again")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))  # modules beside it are found, as when Python runs the file
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module
