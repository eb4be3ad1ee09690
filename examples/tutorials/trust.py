# %% [markdown]
# # Calibration and trust
#
# A predicted distribution is a claim: *nine of ten such responses lie in this interval.* Claims can
# be checked on rows that the model has not seen. This tutorial checks a model in four ways, repairs
# it, and shows what it says when it is asked about something it knows nothing of.
#
# The data: weekly earnings of 5,634 married women in 1991. Two fifths do not work for pay.

# %%
import warnings

import numpy as np
from sklearn.frozen import FrozenEstimator

import gentle
from gentle import diagnostics

data = gentle.datasets.load("cps91")
model = gentle.GENTLE(random_state=0, verbose=0).fit(*data.train)
print(f"CRPS skill on unseen rows: {model.score(*data.test):.3f} (1 is perfect, 0 ignores x)")

# %% [markdown]
# ## 1. Levels
#
# The level of a response in its predicted distribution (its PIT) is uniform if predictions are
# right. A hollow in this histogram means distributions that are too narrow, a hill too wide ones,
# a slope that they are shifted. The band holds all bars of right predictions 95 % of the time.

# %% Histogram of the levels of unseen responses, flat within its band
axis = gentle.plots.pit(model, *data.test)

# %% [markdown]
# ## 2. Calibration, by subgroup
#
# Right on average can be wrong for some. `by` takes a column, and returns a verdict for each
# subgroup; all verdicts together raise a false alarm at most once in twenty tables.

# %%
table = diagnostics.calibration(model, *data.test, by="educ")
print(table.groupby(level="group", sort=False)[["n", "verdict"]].first().to_string())

# %% [markdown]
# The more rows, the smaller a fault that is found: of all rows together a verdict may be harsher
# than of each subgroup. How large it is, the picture shows.

# %% Observed against nominal shares for each level of schooling
axis = gentle.plots.reliability(model, *data.test, by="educ")

# %% [markdown]
# ## 3. Coverage
#
# How many responses lie in central intervals. `observed` counts a response that sits on an atom at
# the interval's end by its share inside; `inside` counts it whole, and is larger where many are
# zero.

# %%
print(diagnostics.coverage(model, *data.test).round(3).to_string())

# %% [markdown]
# ## 4. A model that is wrong
#
# To see what a fault looks like, ask five nearest neighbours. Among five responses lie two thirds
# of all new ones, so intervals from them are too narrow.

# %%
narrow = gentle.KNN(n_neighbors=5).fit(*data.train)
print(diagnostics.calibration(narrow, *data.test)["verdict"].iloc[0])
print(diagnostics.coverage(narrow, *data.test, coverages=[0.9]).round(3).to_string())

# %% [markdown]
# ## Repair: conformal recalibration
#
# `ConformalGenerator` corrects the levels of any model on rows that it has not seen. Its intervals
# then hold a new response with at least the probability asked for, whatever the model: on average
# over covariates, not at each of them. It is still a distribution to sample from. Here a fitted
# model is frozen and corrected by the validation rows; without `FrozenEstimator`, it splits the
# training rows itself.

# %%
mended = gentle.ConformalGenerator(FrozenEstimator(narrow), random_state=0).fit(*data.val)
low, high = mended.predict_interval(data.test.X, coverage=0.9).T
inside = np.mean((low <= data.test.y) & (data.test.y <= high))
chance = np.sqrt(0.9 * 0.1 / len(data.test))
print(f"90 % intervals of the repaired neighbours hold {inside:.1%}, ± {chance:.1%} by chance")
print(f"CRPS skill: {narrow.score(*data.test):.3f} before, {mended.score(*data.test):.3f} after")

# %% [markdown]
# It repairs the levels, not the model: a wrong shape in a subgroup stays wrong there.
#
# ## Rows unlike any seen
#
# Models remember the ranges of their columns and warn of rows far outside them.

# %%
stranger = data.test.X.iloc[[0]].assign(husearns=50_000)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model.predict(stranger)
print(f"{said[0].category.__name__}: {said[0].message}")

# %% [markdown]
# `diagnostics.support` tells for many rows at once, and `spread()` says how far the parts of
# GENTLE's average disagree. Large disagreement means that the model has little to go by.

# %%
far = diagnostics.support(model, data.test.X, data.train.X)
print("unlike the training data:", int(far["far"].sum()), "of", len(far), "rows")
usual = model.predict_dist(data.test.X).spread()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    odd = model.predict_dist(stranger).spread()
print(f"disagreement in dollars: {np.median(usual):.0f} as a rule, {odd[0]:.0f} for the stranger")

# %% [markdown]
# ## All of it on one page
#
# `gentle report` does all this, and more, for a saved model: one HTML file to send to a colleague.
# The [ten-minute start](../start.md) shows it.
