# %% [markdown]
# # Incomes with zeros and top-codes
#
# Survey incomes are not smooth. Many people earn nothing. Many more sit at one highest value,
# because the survey does not print what lies above it: the top-code. A model of the mean hides
# both, and a model with normal errors predicts negative incomes. This tutorial learns the whole
# distribution of earnings and asks it about people.
#
# The data are the survey part of LDW-CPS: earnings in 1978 of 15,992 American men, with their
# earlier earnings, schooling, age and family. To save time we learn from 5,000 of them.

# %%
import numpy as np
import pandas as pd
from sklearn.linear_model import LinearRegression

import gentle

data = gentle.datasets.load("ldw-cps")
table = data.train.X.assign(earnings=data.train.y)
table = table[table["treat"] == 0].drop(columns="treat")  # without the trainees of a programme
table = table.sample(min(5000, len(table)), random_state=0)
X, y = table.drop(columns="earnings"), table["earnings"].rename("earnings in 1978 ($)")
top = y.max()
print(f"{np.mean(y == 0):.0%} earn nothing, {np.mean(y == top):.0%} are at {top:,.2f}")

# %% [markdown]
# ## Fit
#
# No setting says that there are zeros or a top-code. `GENTLE()` finds values that many rows share
# (we call them *atoms*) and gives them a probability of their own; it also sees that no response
# is negative, and never goes below zero.

# %%
model = gentle.GENTLE(random_state=0, verbose=0).fit(X, y)
print("\n".join(model.summary().splitlines()[-3:]))

# %% [markdown]
# ## Ask about people
#
# Three men, who differ in what they earned before. `predict_dist` returns their distributions.

# %%
people = pd.DataFrame(
    {
        "age": 30,
        "education": 12,
        "re74": [0.0, 8_000.0, 24_000.0],
        "re75": [0.0, 9_000.0, 24_000.0],
        "black": 0,
        "hispanic": 0,
        "married": 1,
        "nodegree": 0,
    },
    index=["none before", "some before", "much before"],
)
earnings = model.predict_dist(people)
low, median, high = earnings.quantile([0.1, 0.5, 0.9]).T
answers = pd.DataFrame(
    {
        "P(nothing)": earnings.cdf(0.0),
        "P(top-code)": 1 - earnings.cdf(top - 0.01),
        "10 %": low,
        "median": median,
        "90 %": high,
        "mean": earnings.mean(),
    },
    index=people.index,
)
print(answers.round(2).to_string())

# %% [markdown]
# `cdf(0)` is P(Y ≤ 0), and since nothing is negative, the probability of exactly zero. All values
# with a probability of their own, row by row:

# %%
for name, (values, probabilities) in zip(people.index, earnings.atoms(min_probability=0.02)):
    listed = ", ".join(f"{v:,.0f}: {p:.0%}" for v, p in zip(values, probabilities))
    print(f"{name:12} {listed}")

# %% [markdown]
# The picture shows both parts: lines for what is continuous, stems for the atoms (their scale is on
# the right).

# %% Three predicted distributions of earnings, with stems at zero and at the top-code
axes = gentle.plots.densities(model, people)
for axis, name in zip(axes.flat, people.index):
    axis.set_title(name, fontsize=8)

# %% [markdown]
# ## What a normal model would say
#
# The usual regression has one spread for everybody and no atoms.

# %%
line = LinearRegression().fit(X, y)
spread = np.std(y - line.predict(X))
normal_low = line.predict(people) - 1.645 * spread
print("5 % quantiles")
print("  normal errors:", normal_low.round(0))
print("  GENTLE:       ", model.predict_quantiles(people, 0.05).round(0))

# %% [markdown]
# Negative earnings, and no probability at all for exactly zero.
#
# ## Is it true?
#
# The benchmark's test part holds the twelve kinds of men that occur more than 30 times in the data,
# none of whom the model has seen. For each of them the share of zeros and top-codes can be counted
# and compared with what was predicted.

# %%
X_test, y_test = data.test.X.drop(columns="treat"), data.test.y
predicted = model.predict_dist(X_test)
test = X_test.assign(
    zero=y_test == 0,
    predicted_zero=predicted.cdf(0.0),
    top=y_test >= top - 0.01,
    predicted_top=1 - predicted.cdf(top - 0.01),
)
kinds = test.groupby(list(X_test)).mean().reset_index()
shown = kinds[["age", "re75", "zero", "predicted_zero", "top", "predicted_top"]]
print(shown.round(2).to_string(index=False))

# %% Predicted distributions beside bars of held-out earnings, for six kinds of men
axes = gentle.plots.densities(model, X_test, y_test)

# %% [markdown]
# About 35 men of a kind are few, so shares differ from the truth by 5 to 8 points by chance alone.
# Boys of 16 are another matter: they earn nothing less often than the model thinks. It has seen 80
# of that age. `gentle.metrics.noise_floor` says what a perfect model would score on these rows:

# %%
score = gentle.metrics.evaluate(model, X_test, y_test).summary()
floor = gentle.metrics.noise_floor(None, X_test, y_test)["mean"]
print(f"Wasserstein distance to the held-out responses: {score['wd']:,.0f} dollars")
print(f"a perfect model would score, give or take:      {floor['wd']:,.0f} dollars")

# %% [markdown]
# ## Along a covariate
#
# Median and central intervals along earnings in 1975, all else as for a typical man. The upper ends
# lie flat at the top-code, the lower ends at zero.

# %% Median and intervals of earnings in 1978 along earnings in 1975
axis = gentle.plots.fan(model, X, "re75")

# %% [markdown]
# ## What a top-code does not tell
#
# A top-coded response means *at least* that much. The model repeats what the data say: an atom at
# the top-code, nothing above. So every quantile that equals the top-code is a lower bound, and so
# is every mean of a distribution that touches it. GENTLE does not guess what lies above; no model
# can learn it from these rows. Say "at least", and prefer medians and probabilities to means.
#
# Three settings change this part of the model:
#
# - `atoms=False` looks for no atoms. For responses that are rounded but continuous in spirit.
# - `bounds=(0, None)` forbids negative values although some are in the data's reach. `"auto"`, the
#   default, does so where no response is negative.
# - `tails="observed"` never goes beyond the smallest and largest response seen.

# %%
draws = model.sample(people, n_samples=10_000, random_state=0)
print(f"smallest draw: {draws.min():,.2f}, largest draw: {draws.max():,.2f}")
