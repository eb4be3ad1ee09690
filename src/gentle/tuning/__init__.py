"""Settings chosen by validation: the paper's grid, and a search that learns where to look."""

from gentle.tuning.grid import PAPER_GRID, grid_search
from gentle.tuning.problem import TuningResult
from gentle.tuning.smart import search

__all__ = ["search", "grid_search", "PAPER_GRID", "TuningResult"]
