"""The paper's tables and figures, and those that it left out, as data that anyone can rerun."""

from __future__ import annotations

from gentle.experiments.run import Store, run
from gentle.experiments.spec import Cell, Experiment, Profile, cells, load, names, profile

__all__ = ["names", "load", "profile", "cells", "run", "Store", "Cell", "Experiment", "Profile"]
