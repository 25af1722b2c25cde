import importlib

import pytest

import hsakit


@pytest.mark.parametrize("name", sorted(set(hsakit.__all__) - {"__version__"}))
def test_name_comes_from_its_module(name):
    value = getattr(hsakit, name)
    assert value.__name__ == name
    assert getattr(importlib.import_module(value.__module__), name) is value


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Kernel'"):
        hsakit.Kernel()
