# %% [markdown]
# # Treatment effects
#
# What did a training programme do to earnings, and to whose? A model of Y given X answers by a
# thought experiment: give everybody the treatment, then nobody, and compare the two distributions
# of responses. That is a causal effect only under assumptions that no data can show. The result
# prints them every time.
#
# The data are famous because the truth is known. 185 men took part in the NSW programme, drawn by
# lot from those who wanted to. In LDW-CPS, their controls by lot are replaced by men of a survey.
# We estimate from the survey, then look at the experiment.

# %%
import pandas as pd
from causaldata import nsw_mixtape

import gentle

data = gentle.datasets.load("ldw-cps")
parts = (data.train, data.val, data.test)
X = pd.concat([part.X for part in parts], ignore_index=True)
y = pd.concat([pd.Series(part.y) for part in parts], ignore_index=True)
trained = X["treat"] == 1
print(f"{trained.sum()} trainees, {(~trained).sum():,} men of the survey")
print(f"trainees minus survey: {y[trained].mean() - y[~trained].mean():,.0f} dollars")

# %% [markdown]
# ## Compare like with like
#
# Taken as they are, trainees earn far less: the programme was for men in trouble. Most men of the
# survey could never have been trainees. We keep those whose age and earlier earnings lie in the
# range of the trainees' bulk. What we learn is about them.

# %%
alike = (X["re74"] < 10_000) & (X["re75"] < 8_000) & (X["age"] < 50)
X, y = X[alike].reset_index(drop=True), y[alike].reset_index(drop=True).rename("re78")
trained = X["treat"] == 1
print(f"{trained.sum()} trainees, {(~trained).sum():,} men of the survey")
print(f"trainees minus survey: {y[trained].mean() - y[~trained].mean():,.0f} dollars")

# %% [markdown]
# ## Fit, and ask for effects
#
# The model learns earnings given all covariates, the treatment among them. Training is shorter than
# by default because it is repeated for the intervals: the bootstrap refits the model to resampled
# rows. (Ten refits are for this page; use a hundred.)

# %%
model = gentle.GENTLE(n_steps=100, random_state=0, verbose=0).fit(X, y)
effects = gentle.effects.treatment_effects(
    model,
    X,
    y,
    "treat",
    population="treated",
    levels=[0.1, 0.25, 0.5, 0.75, 0.9],
    thresholds=[0, 5_000, 10_000],
    n_boot=10,
    confidence=0.9,
    verbose=0,
)
print(effects)

# %% [markdown]
# Read it from the top. *Mean* is the average effect on the trainees. *Quantiles* says what the
# programme did to the poorest and the best paid of them as groups; it is not the effect on any one
# man. The last table says by how much more of them earn anything at all. *Overlap* tells how many
# trainees have no counterpart in the survey; the effect is not about them.

# %% Quantile effects of the programme with their intervals
axis = effects.plot(unit="1978 US dollars")

# %% [markdown]
# ## Beside the experiment

# %%
lots = nsw_mixtape.load_pandas().data
by_lot = lots.groupby("treat")["re78"]
difference = by_lot.mean().diff().iloc[-1]
error = (by_lot.var() / by_lot.size()).sum() ** 0.5
mean = effects.mean.iloc[0]
print(f"experiment:    {difference:6,.0f} ± {1.645 * error:,.0f} dollars")
print(f"from a survey: {mean['effect']:6,.0f} ({mean['lower']:,.0f} to {mean['upper']:,.0f})")

# %% [markdown]
# Agreement here would not prove the method, and disagreement would not refute it: the survey lacks
# what made men apply, the trainees left out above count in the experiment, and both numbers are
# uncertain. What the interval does not contain: other models and other choices of men, which give
# other numbers from the same rows. Try them before you believe one:

# %%
for name, other in {
    "forest": gentle.QuantileForest(random_state=0),
    "100 neighbours": gentle.KNN(n_neighbors=100),
}.items():
    found = gentle.effects.treatment_effects(
        other.fit(X, y), X, y, "treat", population="treated", uncertainty=None
    )
    print(f"{name:15}{found.mean['effect'].iloc[0]:7,.0f} dollars")

# %% [markdown]
# The models differ by as much as the interval is wide, and nothing in the interval warned of it.
#
# ## A policy instead of a treatment
#
# `policy_effects` changes covariates by any rule. Suppose nobody had left school before grade 12.
# (That changes `nodegree`, too, and assumes that schooling causes what goes along with it.)

# %%
finish = {"education": lambda years: years.clip(lower=12), "nodegree": 0}
policy = gentle.effects.policy_effects(
    model, X, y, finish, levels=[0.1, 0.5, 0.9], uncertainty=None
)
print(policy.population)
print(policy.quantiles.round({"as_is": 0, "policy": 0, "effect": 0}).to_string(index=False))
