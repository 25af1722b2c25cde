from pathlib import Path

import pytest

from hsakit.ffi import generate


@pytest.mark.parametrize("name", generate.DECLARATIONS)
def test_committed_module_is_what_the_declarations_generate(name):
    committed = (Path(generate.__file__).parent / f"{name}.py").read_text()
    assert committed == generate.module_source(name), "run: python -m hsakit.ffi.generate"
