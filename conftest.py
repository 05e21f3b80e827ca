"""Which files are looked at for doctests: not those of trainers that are not installed. Tests do not see each other."""

from importlib.util import find_spec

import pytest

_NEEDS = {
    "lightning": "lightning",
    "transformers": "transformers",
    "sklearn": "sklearn",
    "sklearn_files": "safetensors",
}
collect_ignore = [
    f"src/deepbilevel/integrations/{name}.py" for name, package in _NEEDS.items() if find_spec(package) is None
]


@pytest.fixture(autouse=True)
def no_sampler_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the sampler that began a pass last: a trainer may keep it alive, and steps without one would be warned."""
    from deepbilevel import guards

    monkeypatch.setattr(guards, "_latest", None)
