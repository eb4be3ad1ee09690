import subprocess
import sys
from pathlib import Path

import pytest

import gentle

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.slow
def test_the_demo_prints_its_comparison_and_leaves_a_figure_and_a_model(tmp_path):
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--steps", "30", "--out", str(tmp_path)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    for words in ("marginal", "neighbours", "GENTLE", "noise floor", "WD", "KS"):
        assert words in shown.stdout
    assert (tmp_path / "densities.png").stat().st_size > 10_000
    model = gentle.load(tmp_path / "model")
    assert model.sample(gentle.datasets.load("ldw-cps").test.X, 3).shape == (434, 3)
