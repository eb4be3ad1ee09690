"""Every own model is a scikit-learn estimator like any other."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import BaggingRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import gentle
from budgets import OWN, make, table
from gentle.metrics import CoverageScorer, CRPSScorer, IntervalScorer, PinballScorer, interval_score

# Enough on top of the budgets for a training score above 0.5, which scikit-learn asks of every
# regressor that is not tagged as poor: the adversarial ones, the bridge, and the marginal.
SKILL = {
    "GENTLE": {"n_steps": 100, "hidden_widths": (16,), "lr_generator": 0.01},
    "GENTLE (paper)": {
        **{"n_epochs": 30, "early_stopping": False, "lr_generator": 0.02, "hidden_widths": (16,)},
        **{"reg_weight": 0.02, "bandwidth": 0.4},
    },
    "QRGMM (neural)": {"n_epochs": 20, "learning_rate": 0.02, "batch_size": 50},
    "KNN": {"n_neighbors": 3},
    "QuantileForest": {"n_estimators": 5, "min_samples_leaf": 1},
    "BoostedQuantiles": {"max_iter": 30, "max_features": 1.0, "learning_rate": 0.3},
}
POOR = {"CWGAN", "WGANGP", "MGAN", "CDSB", "Marginal"}


ESTIMATORS = [make(name, **SKILL.get(name, {})) for name in OWN]
CONFORMAL = gentle.ConformalGenerator(make("KNN", n_neighbors=2))
EQUIVALENCE = "check_sample_weight_equivalence_on_dense_data"


def expected_failures(estimator):
    """Coverage is guaranteed for rows that were drawn one by one, so copies of a row count."""
    reason = "a conformal guarantee counts calibration rows, and copies are no new ones"
    return {EQUIVALENCE: reason} if estimator is CONFORMAL else {}


@parametrize_with_checks([*ESTIMATORS, CONFORMAL], expected_failed_checks=expected_failures)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", OWN)
def test_only_games_of_few_rounds_and_the_marginal_may_score_poorly(name):
    tags = make(name).__sklearn_tags__()
    assert tags.regressor_tags.poor_score == (name in POOR)
    assert tags.input_tags.allow_nan


@pytest.fixture(params=OWN)
def model(request):
    return make(request.param)


def people(n=90):
    """A frame with a text column, and weights of its rows."""
    X, y = table(n)
    frame = pd.DataFrame(X, columns=["age", "income", "married"])
    frame["town"] = np.random.default_rng(0).choice(["Rome", "Oslo"], n)
    return frame, pd.Series(y, name="wage"), np.random.default_rng(1).integers(1, 4, n)


def test_models_stand_in_pipelines_with_column_transformers(model):
    frame, y, _ = people()
    columns = make_column_transformer(
        (StandardScaler(), ["age", "income"]),
        (OneHotEncoder(sparse_output=False), ["town"]),
        verbose_feature_names_out=False,
    ).set_output(transform="pandas")
    pipeline = make_pipeline(columns, model).fit(frame, y)
    assert list(pipeline[-1].feature_names_in_) == ["age", "income", "town_Oslo", "town_Rome"]
    assert pipeline.predict(frame).shape == (90,)
    expected = -pipeline[-1].predict_dist(columns.transform(frame)).crps(y).mean()
    assert CRPSScorer()(pipeline, frame, y) == pytest.approx(expected)


def test_models_clone_search_and_show_themselves(model):
    X, y = table(60)
    text = type(model).__name__
    assert text in repr(model)
    assert text in model._repr_html_()
    assert clone(model).get_params() == model.get_params()
    search = GridSearchCV(model, {"random_state": [0, 1]}, cv=2, scoring=CRPSScorer()).fit(X, y)
    assert text in search._repr_html_()
    again = cross_val_score(
        clone(model).set_params(random_state=1), X, y, cv=2, scoring=CRPSScorer()
    )
    assert search.cv_results_["mean_test_score"][1] == pytest.approx(again.mean())


def test_weights_are_routed_to_fit_and_score(model):
    frame, y, weight = people()
    half = np.arange(90) % 2 == 0
    folds = [(np.flatnonzero(half), np.flatnonzero(~half))]
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(model).set_fit_request(sample_weight=True)
        pipeline = make_pipeline(
            ColumnTransformer([("as they are", "passthrough", list(frame))]).set_output(
                transform="pandas"
            ),
            routed.set_score_request(sample_weight=True),
        )
        scorer = CRPSScorer().set_score_request(sample_weight=True)
        found = [
            cross_val_score(
                pipeline, frame, y, cv=folds, params={"sample_weight": weight}, scoring=s
            )
            for s in (scorer, None)
        ]
    fitted = clone(model).fit(frame[half], y[half], weight[half])
    crps = fitted.predict_dist(frame[~half]).crps(y[~half])
    assert found[0].item() == pytest.approx(-np.average(crps, weights=weight[~half]))
    assert found[1].item() == pytest.approx(fitted.score(frame[~half], y[~half], weight[~half]))


def test_scorers_are_minus_the_scores_that_evaluate_reports():
    frame, y, weight = people()
    model = make("KNN").fit(frame, y)
    new = frame.iloc[::-1].reset_index(drop=True)
    report = gentle.metrics.evaluate(model, new, y, weight).summary()
    scorers = {
        "crps": CRPSScorer(),
        "pinball": PinballScorer(np.arange(1, 10) / 10),
        "interval_score": IntervalScorer(0.9),
    }
    for name, scorer in scorers.items():
        assert scorer(model, new, y, sample_weight=weight) == pytest.approx(-report[name])
    gap = abs(report["coverage"] - 0.9)
    assert CoverageScorer()(model, new, y, weight) == pytest.approx(-gap)


def test_several_scorers_serve_a_search_inside_cross_validation():
    X, y = table()
    search = GridSearchCV(make("KNN"), {"n_neighbors": [2, 20]}, cv=3, scoring=CRPSScorer())
    pipeline = make_pipeline(search)
    scorers = {
        "crps": CRPSScorer(),
        "interval": IntervalScorer(0.8),
        "covered": CoverageScorer(0.8),
    }
    found = cross_validate(pipeline, X, y, cv=2, scoring=scorers, return_estimator=True)
    first, rows = found["estimator"][0][-1].best_estimator_, np.arange(60)
    lower, upper = first.predict_interval(X[rows], 0.8).T
    expected = interval_score(lower, upper, y[rows], 0.8).mean()
    assert found["test_interval"][0] == pytest.approx(-expected)
    assert np.all(found["test_crps"] < 0)
    with pytest.raises(TypeError, match=r"BaggingRegressor has no predict_dist\(X\)"):
        CRPSScorer()(BaggingRegressor().fit(X, y), X, y)
