"""Every model with settings that train in no time, and a table for it."""

from importlib.util import find_spec

import numpy as np

from gentle.models.registry import model_class

BUDGETS = {
    "GENTLE": {"n_steps": 20, "hidden_widths": (8,), "n_trees": 6},
    "GENTLE (paper)": {
        **{"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"},
        **{"n_epochs": 2, "hidden_widths": (16, 16), "batch_size": 50, "n_levels": 51},
    },
    "CWGAN": {"n_epochs": 4, "n_critic": 2, "hidden_widths": (16, 16), "n_levels": 51},
    "WGANGP": {"n_epochs": 4, "n_critic": 2, "hidden_widths": (16, 16), "n_levels": 51},
    "MGAN": {"n_epochs": 2, "hidden_widths": (16, 16), "batch_size": 50, "n_levels": 51},
    "CDSB": {"n_iterations": 1, "n_updates": 3, "hidden_widths": (8,), "n_steps": 3, "n_paths": 64},
    "QRGMM": {"n_levels": 9},
    "QRGMM (neural)": {"regression": "neural", "n_levels": 9, "n_epochs": 4, "hidden_widths": (9,)},
    "QuantileForest": {"n_estimators": 20},
    "BoostedQuantiles": {"n_levels": 9, "max_iter": 10},
    "Engression": {"n_epochs": 2, "hidden_width": 16, "noise_width": 8, "n_draws": 50},
    "NGBoost": {"n_estimators": 5},
    "CatBoost": {"n_levels": 9, "n_estimators": 10, "max_depth": 3},
    "RealMLP": {"n_levels": 9, "n_epochs": 1, "hidden_widths": (16,)},
    "KernelCDE": {"bandwidth": 0.5},
    "KNN": {"n_neighbors": 10},
    "Marginal": {},
}
OWN = [name for name in BUDGETS if name not in ("Engression", "NGBoost", "CatBoost", "RealMLP")]
TINY = {  # on top of the budget, for many fits to tiny tables
    "CDSB": {"n_updates": 1, "batch_size": 100},
    "GENTLE": {"n_steps": 5, "hidden_widths": (4,)},
    "GENTLE (paper)": {"n_epochs": 1, "hidden_widths": (4,), "n_levels": 11},
}


def kind(name):
    """The class of a model; what stands in brackets names its settings."""
    return model_class(name.split(" (")[0])


def make(name, **changes):
    arguments = {"random_state": 0, "verbose": 0, "device": "cpu"} | BUDGETS[name] | changes
    return kind(name)(**arguments)


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(20, 60, n), rng.gamma(2, 1e4, n), rng.integers(0, 2, n)])
    X = X.astype(float)
    X[n // 2 :] = X[: n - n // 2]  # equal covariates with other responses
    return X, X[:, 0] / 10 + rng.normal(size=n)


def missing_package(name):
    """The package that a model adapts, if it is not installed."""
    package = getattr(kind(name), "_package", None)
    return package if package and find_spec(package) is None else None
