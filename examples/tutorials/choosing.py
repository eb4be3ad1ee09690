# %% [markdown]
# # Choosing among models
#
# Is GENTLE the right model for your table? Do not believe its authors; compare. `compare`
# cross-validates several models on the same folds and says in words who wins, and whether that is
# more than noise. On the command line it is `gentle compare data.csv --target y`.
#
# The data: birth weights of 1,832 children, with what is known of parents, care, smoking and
# drinking.

# %%
import gentle
from gentle.comparison import compare

data = gentle.datasets.load("bwght2", n_train=None)
print(data.train.X.head(3).to_string(index=False))

# %% [markdown]
# ## Compare
#
# Without a list, `compare` takes GENTLE and what one would try first. Here with three folds, to
# save time; the default is five. Rows with equal covariates always stay in one fold, so that no
# model can look answers up; `groups` keeps families or firms together.

# %%
result = compare(*data.train, n_folds=3, random_state=0)
print(result.verdict())

# %%
columns = ["model", "crps", "difference", "difference_se", "skill", "coverage_90", "fit_seconds"]
print(result.table()[columns].round(3).to_string(index=False))

# %% [markdown]
# - `crps` is the prediction error of whole distributions, in units of the response (grams). It is
#   the absolute error for a point prediction, and rewards an honest spread.
# - `difference` to the best, row by row on the same rows, with its standard error. Less than two
#   standard errors is a tie.
# - `skill` is the share by which the error is smaller than that of a forecast that ignores the
#   covariates. Birth weight is hard to foresee: small skills are no fault of the models.
# - `coverage_90` should be near 0.9.
# - `fit_seconds` are by the clock, on a machine with much else to do: look at their relation only.

# %% CRPS of each model with its error bar, the best on top
axis = gentle.plots.comparison(result)

# %% [markdown]
# ## A tie is an answer
#
# Where models tie, choose by what you need. Forests and neighbours answer with training responses:
# they never invent a value, and never go beyond what was seen. GENTLE has smooth densities, exact
# atoms and bounds, and tails that go on. `QRGMM` is linear and easy to explain.
#
# ## Small tables
#
# With few rows simple models are hard to beat. Spending on food of 141 Belgian households in 1857,
# by income:

# %%
engel = gentle.datasets.load("engel", n_train=None)
small = compare(
    *engel.train,
    {
        "GENTLE": gentle.GENTLE(),
        "linear quantiles": gentle.QRGMM(),
        "forest": gentle.QuantileForest(),
    },
    n_folds=3,
)
print(small.verdict())
print(small.table()[["model", "crps", "difference", "difference_se", "skill"]].round(2).to_string())

# %% [markdown]
# A line is nearly all that these data need: linear quantiles and GENTLE tie, and the forest is too
# coarse. On other small tables it is the other way round; [What it is not good at](../limits.md)
# has one.
#
# ## Own models and settings
#
# Labels with estimators compare settings, too. Anything with `fit` and `predict_dist` may take
# part, also [a model of your own](../adding_a_model.md).

# %%
settings = compare(
    *data.train,
    {
        "10 neighbours": gentle.KNN(n_neighbors=10),
        "100 neighbours": gentle.KNN(n_neighbors=100),
        "leaves of 20": gentle.QuantileForest(min_samples_leaf=20),
    },
    n_folds=3,
)
print(settings.verdict())

# %% [markdown]
# ## Then tune, if it is worth it
#
# `gentle tune data.csv --target y --out model/ --trials 30` searches the settings of one model by
# validation, keeps every trial, and goes on after an interruption. Choose the model first: between
# models there is as a rule more to gain than between settings.
#
# Two cautions. The winner of a comparison looks a little better than it is, because it was chosen
# by these rows: keep a test part that chooses nothing. And CRPS averages over everybody; if a
# subgroup matters to you, look at it by itself ([Calibration and trust](trust.md)).
