# %% [markdown]
# # Replacing a simulator
#
# A stochastic simulator answers slowly, and only at the inputs at which it is run. A model learned
# from its runs answers at any input, at once: means, quantiles, risks, new draws. Here the
# simulator follows patients with Barrett's esophagus until they die and counts quality-adjusted
# life years (QALYs); two drugs, aspirin and statin, may slow the way to cancer.
#
# The steps: choose inputs, run, fit, **validate**, and only then ask.

# %%
import numpy as np
import pandas as pd

import gentle
from gentle import metamodel
from gentle.datasets import simulate_ecm


def simulator(inputs, rng):
    """One life per row, in QALYs."""
    return simulate_ecm(inputs, control_variate=False, random_state=rng)[:, 0]


# %% [markdown]
# Any function of this form will do: a table of inputs and a random generator in, one number per row
# out. A program that is run from the shell can be wrapped in the same way.
#
# ## Choose inputs and run
#
# A Sobol' design fills the space evenly. One run at each of many inputs teaches more than many runs
# at a few.

# %%
space = {
    "Barrett": (0.0, 0.1),  # yearly risk of cancer
    "aspirinEffect": (0.0, 1.0),  # by how much aspirin reduces it
    "statinEffect": (0.0, 1.0),
    "drugIndex": [1, 2],  # aspirin, statin
    "initialAge": range(55, 81),
}
inputs = metamodel.design(space, 4096)
runs = metamodel.replicate(simulator, inputs, random_state=1)
print(runs.X.head(3).round(3).to_string(index=False))
print("lives:", len(runs), " QALYs from", runs.y.min().round(2), "to", runs.y.max().round(2))

# %% [markdown]
# ## Fit

# %%
model = gentle.GENTLE(random_state=0, verbose=0).fit(runs.X, pd.Series(runs.y, name="QALYs"))

# %% [markdown]
# ## Validate
#
# Thirty new inputs are simulated 1,000 times each. The noise column is what the simulator itself
# would score against as many runs: no model can do better.

# %%
fresh = metamodel.design(space, 30, random_state=2)
found = metamodel.validate(model, simulator, fresh, n_replications=1000, random_state=3)
print(found.verdict())
print()
print(found.summary.round(3).to_string())

# %% [markdown]
# And where it is worst, which is what one should look at before trusting it:

# %%
print(found.worst(3).round(2).to_string(index=False))

# %% [markdown]
# ## Ask: which drug for this patient?
#
# A patient of 60 with a high risk. Small values are bad here, so the tail is the lower one: VaR is
# the QALYs that 1 of 20 lives falls short of, CVaR the mean of those lives.

# %%
patient = {"Barrett": 0.08, "aspirinEffect": 0.4, "statinEffect": 0.2, "initialAge": 60}
drugs = pd.DataFrame([patient | {"drugIndex": 1}, patient | {"drugIndex": 2}])[list(space)]
risk = metamodel.risk(model, drugs, level=0.95, tail="lower", thresholds=[5, 10])
table = risk.pivot(index="measure", columns="row", values="value")
table.columns = ["aspirin", "statin"]
lives = metamodel.replicate(simulator, drugs, 20_000, random_state=4).y.reshape(2, -1)
table["aspirin, simulated"], table["statin, simulated"] = (
    [np.mean(np.sort(life)[:1000]), np.mean(life > 10), np.mean(life > 5), np.quantile(life, 0.05)]
    for life in lives
)
print(table.round(3).to_string())

# %% [markdown]
# ## Compare on common random numbers
#
# `contrast` gives both drugs the same levels u. The difference of their means is then known from
# far fewer draws than with independent ones.

# %%
versus = metamodel.contrast(model, drugs[:1], drugs[1:], n_draws=1000)
print(f"statin minus aspirin: {versus.difference[0]:.3f} ± {versus.standard_error[0]:.3f} QALYs")
print(f"with independent draws: ± {versus.independent_error[0]:.3f}")
print(f"from 20,000 simulated lives each: {lives[1].mean() - lives[0].mean():.3f}")

# %% [markdown]
# The ± above is the chance of 1,000 draws from the model, not its error: compare the last line.
#
# ## The picture

# %% Distribution functions of QALYs for the two drugs
both = gentle.plots.cdfs(model, drugs, label="QALYs")

# %% [markdown]
# ## What is gained

# %%
print(metamodel.speed_up(model, simulator, fresh, n_draws=1000))

# %% [markdown]
# Nothing, with so few outputs: this simulator is unusually fast, it draws whole stays instead of
# months. (With 10,000 outputs each, `examples/replace_a_simulator.py` finds the model ahead.) Yours
# may take seconds per run; `speed_up` measures it. Count the seconds spent on training runs and on
# fitting, too. `model.distilled(runs.X)` is one network in place of the average, for answers that are
# several times quicker; with more than 5,000 runs `fit` makes such a network by itself.
#
# **Beware.** A model knows nothing outside the design: it warns of inputs beyond it. It repeats the
# simulator, with all of its mistakes. And it has no opinion on things that it was not given, such
# as outputs measured together: one response at a time.
