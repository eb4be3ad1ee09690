"""Experiments as data: what is fitted, on what, how often, and what is shown of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from gentle.models.registry import model_class

_SPECS = files("gentle.experiments") / "specs"


@dataclass(frozen=True)
class Profile:
    """How much work a reproduction does.

    Attributes:
        name: "quick" or "full".
        seeds: Repetitions of every cell, with seeds 0, 1, ...
        draws: Draws per test covariate.
        floor_repeats: Repetitions of the noise floor.
        datasets: Options of `gentle.datasets.load` by data set.
    """

    name: str
    seeds: int
    draws: int
    floor_repeats: int
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """One fit of one method to one data set: the unit of work, stored under its own name."""

    dataset: str
    options: Mapping[str, Any]
    method: str
    model: str
    from_paper: bool
    settings: Mapping[str, Any]
    seed: int
    draws: int

    @property
    def name(self) -> str:
        """The name of its files, such as ``ecm/wgan-gp-3``."""
        return f"{self.dataset}/{_slug(self.method)}-{self.seed}"

    def estimator(self) -> Any:
        """The model, unfitted."""
        kind: Any = model_class(self.model)
        settings = {
            **{name: tuple(v) if isinstance(v, list) else v for name, v in self.settings.items()},
            "random_state": self.seed,
            "device": "cpu",
            "verbose": 0,
        }
        return kind.from_paper(self.dataset, **settings) if self.from_paper else kind(**settings)

    def facts(self) -> dict[str, Any]:
        """All that the result depends on, as it is stored."""
        parameters = self.estimator().get_params()
        return {
            "dataset": self.dataset,
            "options": dict(self.options),
            "method": self.method,
            "model": self.model,
            "settings": {k: list(v) if isinstance(v, tuple) else v for k, v in parameters.items()},
            "seed": self.seed,
            "draws": self.draws,
        }

    def agrees(self, stored: Mapping[str, Any]) -> bool:
        """Whether stored facts are of this very cell.

        A setting that only one of the two knows is no disagreement: models gain settings, whose
        defaults leave things as they were.
        """
        own = self.facts()
        now, then = own.pop("settings"), stored["settings"]
        return all(stored[name] == value for name, value in own.items()) and all(
            now[name] == then[name] for name in now.keys() & then.keys()
        )


@dataclass(frozen=True)
class Experiment:
    """A table or a figure of the paper.

    Attributes:
        name: "table1", ..., "figure8".
        kind: Table or figure.
        title: What it shows.
        datasets: Names of data sets.
        methods: Names of methods, in the order in which they appear.
        metrics: Columns of a table, names in `gentle.metrics.Scores.summary`.
        plot: What a figure draws: "responses", "lipschitz", "densities" or "monotonicity".
        published: The paper's mean and ± by data set, method and metric.
    """

    name: str
    kind: Literal["table", "figure"]
    title: str
    datasets: Sequence[str]
    methods: Sequence[str]
    metrics: Sequence[str] = ()
    plot: str = ""
    published: Mapping[str, Any] = field(default_factory=dict)


def names() -> list[str]:
    """The experiments, tables first.

    Example:
        >>> names()[:2]
        ['table1', 'table2']
    """
    found = [path.name.removesuffix(".toml") for path in _SPECS.iterdir()]
    return sorted((n for n in found if re.fullmatch(r"(table|figure)\d+", n)), key=_in_order)


def load(name: str) -> Experiment:
    """An experiment by name.

    Example:
        >>> load("table2").methods
        ['GENTLE', 'GENTLE w/o reg', 'GENTLE w/o smo']
    """
    if name not in names():
        raise ValueError(f"there is no experiment {name!r}; there are {', '.join(names())}")
    return Experiment(name, **_toml(name))


def profile(name: str) -> Profile:
    """A profile by name."""
    known = _toml("profiles")
    if name not in known:
        raise ValueError(f"there is no profile {name!r}; there are {', '.join(known)}")
    return Profile(name, **known[name])


def cells(
    experiments: Sequence[Experiment],
    profile: Profile,
    n_seeds: int | None = None,
    methods: Sequence[str] | None = None,
) -> list[Cell]:
    """The work behind some experiments, each cell once, all methods of a seed before the next.

    Args:
        experiments: The tables and figures wanted.
        profile: How much work to do.
        n_seeds: Repetitions, in place of the profile's.
        methods: Only these methods, None for all.
    """
    wanted = dict.fromkeys(
        (method, dataset)
        for experiment in experiments
        for method in experiment.methods
        for dataset in experiment.datasets
    )
    unknown = sorted(set(methods or ()) - {method for method, _ in wanted})
    if unknown:
        known = ", ".join(dict.fromkeys(method for method, _ in wanted))
        raise ValueError(f"no method {', '.join(unknown)} here; the methods are {known}")
    return [
        _cell(dataset, method, seed, profile)
        for seed in range(profile.seeds if n_seeds is None else n_seeds)
        for method, dataset in wanted
        if methods is None or method in methods
    ]


def note(method: str) -> str:
    """What there is to say about a method's rows in the full profile, if anything."""
    return _toml("methods")[method].get("note", "")


def _cell(dataset: str, method: str, seed: int, profile: Profile) -> Cell:
    entry = _method(method)
    settings = {**entry["settings"], **entry["datasets"].get(dataset, {})}
    if profile.name == "quick":
        settings |= entry["quick"]
    return Cell(
        dataset=dataset,
        options=profile.datasets.get(dataset, {}),
        method=method,
        model=entry["model"],
        from_paper=entry["from_paper"],
        settings=settings,
        seed=seed,
        draws=profile.draws,
    )


def _method(name: str) -> dict[str, Any]:
    entry = _toml("methods")[name]
    base = {"from_paper": False, "settings": {}, "quick": {}, "datasets": {}}
    if "based_on" in entry:
        base = _method(entry["based_on"])
    settings = {**base["settings"], **entry.get("settings", {})}
    return base | entry | {"settings": settings}


@cache
def _toml(name: str) -> dict[str, Any]:
    return tomllib.loads((_SPECS / f"{name}.toml").read_text(encoding="utf-8"))


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("/", "")).strip("-")


def _in_order(name: str) -> tuple[bool, int]:
    return name.startswith("figure"), int(re.sub(r"\D", "", name))
