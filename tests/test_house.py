"""The house itself: names resolve, a bare import is light, files stay small."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import gentle

SOURCE = Path(gentle.__file__).parent


@pytest.mark.parametrize(
    "module",
    [
        "gentle",
        "gentle.models",
        "gentle.datasets",
        "gentle.experiments",
        "gentle.tuning",
        "gentle.comparison",
        "gentle.cluster",
        "gentle.explorer",
    ],
)
def test_every_exported_name_resolves(module):
    loaded = importlib.import_module(module)
    for name in loaded.__all__:
        assert getattr(loaded, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        loaded.nonsense  # noqa: B018


def test_a_bare_import_loads_nothing_heavy():
    heavy = ["torch", "sklearn", "pandas", "scipy", "matplotlib", "rich", "typer"]
    code = f"import gentle, sys; print([m for m in sys.modules if m in {heavy}])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_data_sets_and_metrics_do_not_load_torch():
    code = (
        "import gentle.datasets, gentle.metrics, gentle.plots, sys;"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]


def test_files_stay_small_enough_to_read():
    limit = {"models/base.py": 250}
    for path in SOURCE.rglob("*.py"):
        n_lines = len(path.read_text().splitlines())
        assert n_lines <= limit.get(str(path.relative_to(SOURCE)), 400), path


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert version("gentle-ot") == gentle.__version__
