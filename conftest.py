"""Which files are looked at for doctests: not those of trainers that are not installed."""

from importlib.util import find_spec

_NEEDS = {
    "lightning": "lightning",
    "transformers": "transformers",
    "sklearn": "sklearn",
    "sklearn_files": "safetensors",
}
collect_ignore = [
    f"src/deepbilevel/integrations/{name}.py" for name, package in _NEEDS.items() if find_spec(package) is None
]
