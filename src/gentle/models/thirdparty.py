"""What models of other packages share: import, isolation, held-out rows, why they are not saved."""

from __future__ import annotations

import io
import logging
import random
import threading
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch

from gentle.data import Grouped, Rows
from gentle.distribution import ConditionalDistribution, QuantileTable
from gentle.models import checks
from gentle.models.base import ConditionalGenerator, Floats
from gentle.models.checks import is_count
from gentle.models.neural import is_device


class Adapter(ConditionalGenerator):
    """A model that another package fits and that answers as all models do.

    A model names the package in ``_package``, fits it in `_train` and turns its predictions into a
    table in `_table`. The package's random numbers, threads, warnings and messages stay inside.
    Where covariates do not vary, there is nothing to condition on and the answer is the marginal.
    """

    _package: ClassVar[str]
    _counts: ClassVar[str]  # constructor arguments that are integers of at least 1
    _counts_above_one: ClassVar[str] = ""  # or of at least 2

    n_jobs: int = 1  # a constructor argument where the package can use several threads
    validation_fraction: float
    model_: Any

    @abstractmethod
    def _train(self, package: Any, rows: Rows, held_out: Rows | None, seed: int) -> Any:
        """The package's fitted model."""

    @abstractmethod
    def _table(self, x: Floats) -> QuantileTable:
        """Its answer at encoded covariates ``(n, d)``; a row's must not depend on the others."""

    def _check_parameters(self) -> None:
        require = partial(checks.require, self)
        require(self._counts, is_count, "an integer of at least 1")
        require(self._counts_above_one, lambda v: is_count(v, 2), "an integer of at least 2")
        require("learning_rate", lambda v: v > 0, "positive")
        require("validation_fraction", lambda v: 0 < v < 1, "between 0 and 1")
        require("device", is_device, "'auto', 'cpu', 'cuda' or 'mps'")

    def _fit(
        self, train: Grouped, validation: Grouped | None, rng: np.random.Generator
    ) -> dict[str, Any]:
        if len(train) == 1:
            return {"model_": QuantileTable.of_sample(train.y, train.weight)}
        rows, held_out = Rows.of(train), None
        if validation is not None:
            held_out = Rows.of(validation)
        else:
            parts = [Rows.of(part) for part in train.split(self.validation_fraction, rng)]
            if parts[0].varies():  # else the table is too small to be split
                rows, held_out = parts
        rows = rows.take(rng.permutation(len(rows.y)))  # not every package shuffles sorted rows
        seed = int(rng.integers(2**31))
        with isolated(seed, self.n_jobs):
            return {"model_": self._train(self._imported(), rows, held_out, seed)}

    def _conditional(self, x: Floats) -> ConditionalDistribution:
        if isinstance(self.model_, QuantileTable):
            return self.model_.repeat(len(x))
        with isolated(0, self.n_jobs):
            return self._table(x)

    def _imported(self) -> Any:
        try:
            return import_module(self._package)
        except ImportError as error:
            raise ImportError(
                f"{type(self).__name__} needs the package {self._package!r}: "
                "pip install 'gentle-ot[bench]'"
            ) from error

    def _get_state(self) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} models hold an object of the package {self._package}, which "
            "cannot be saved without pickle; use joblib, or fit again"
        )

    def _set_state(self, arrays: dict[str, Any], facts: dict[str, Any]) -> NoReturn:
        self._get_state()


_alone = threading.RLock()


@contextmanager
def isolated(seed: int, n_threads: int) -> Iterator[None]:
    """Seed the global generators, silence everything, limit torch's threads; undo it at the end.

    All of this belongs to the whole process, and some packages mind company: one thread at a time.
    """
    with _alone:
        python, threads = random.getstate(), torch.get_num_threads()
        numpy = np.random.get_state()  # noqa: NPY002
        muted = logging.root.manager.disable
        with torch.random.fork_rng(), warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            logging.disable(logging.ERROR)
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            torch.set_num_threads(n_threads)
            try:
                yield
            finally:
                logging.disable(muted)
                random.setstate(python)
                np.random.set_state(numpy)  # noqa: NPY002
                torch.set_num_threads(threads)
