"""The fast simulator of ECM against a slow one that steps through the months, and known values."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare, ks_2samp

from gentle.datasets import Truth, draw_covariates, load, simulate_ecm

DEATH = np.fromstring(
    """.007779 .008415 .009074 .009727 .010371 .011034 .011738 .012489 .013335 .014319 .015482
    .016824 .018330 .019900 .021539 .023396 .025476 .027794 .030350 .033204 .036345 .039788 .043720
    .048335 .053650 .059565 .065848 .072956 .080741 .089357 .099650 .110901 .123146 .136412 .150710
    .166038 .182374 .199676 .217880 .236903 .256636 .276954 .297713 .318755 .339914 1.0""",
    sep=" ",
)  # ages 55, ..., 100
STATE_WEIGHT = np.array([1, 0.5, 0.5, 0.97, 0.5, 0, 1, 1])
DEAD, COMPLICATION = 5, 7

PATIENT = {"Barrett": 0.08, "aspirinEffect": 0.4, "statinEffect": 0.2, "initialAge": 55}


def transition_matrix(risk, effects, drug, age):
    """Monthly transition probabilities (8, 8), entered state by state as the model is published."""
    p1, p3 = 1 - (1 - risk) ** (1 / 12), 1 - (1 - 0.29) ** (1 / 12)
    p2 = 1.1035 - 0.0023 * age
    P = np.zeros((8, 8))
    P[0, 1], P[0, 0] = p1, 1 - p1
    P[1, 2], P[1, 3] = p2, 1 - p2
    P[2, 3], P[2, 4], P[2, 5] = 0.80, 0.16, 0.04
    P[3, 3] = 1
    P[4, 5], P[4, 4] = p3, 1 - p3
    P[5, 5] = 1
    if drug:
        c, p5 = {1: (0.0024, 0.9576), 2: (0.001, 0.998)}[drug]
        f = 1 - effects[drug - 1]
        k = risk * f / c
        p4 = (1 - (1 - risk * f - c) ** (1 / 12)) / (1 + k)
        P[6, 1], P[6, 7], P[6, 6] = k * p4, p4, 1 - k * p4 - p4
        P[7, 0], P[7, 5] = p5, 1 - p5
    return P


def step_through_months(
    n, rng, *, Barrett, aspirinEffect, statinEffect, drugIndex, initialAge, control_variate
):
    """n lives of one patient, month by month, ``(n,)``."""
    state = np.full(n, 6 if drugIndex else 0)
    naturally_alive = np.ones(n, bool)
    health, weighted, natural_life = np.ones(n), np.zeros(n), np.zeros(n)
    for year, death in enumerate(DEATH[initialAge - 55 :]):
        P = transition_matrix(Barrett, (aspirinEffect, statinEffect), drugIndex, initialAge + year)
        thresholds = P.cumsum(axis=1)
        for transition in range(1, 13):
            weighted += np.where(naturally_alive, STATE_WEIGHT[state] * health, 0)
            following = (rng.random((n, 1)) >= thresholds[state]).sum(axis=1).clip(max=7)
            survived = (state == COMPLICATION) & (following != DEAD)
            if drugIndex == 1:
                health[survived & (rng.random(n) < 0.058)] = 0.61
            state = following
            if transition == 6:
                dies = naturally_alive & (rng.random(n) < death)
                natural_life[dies] = year + 0.5
                naturally_alive &= ~dies
    if not control_variate:
        return weighted / 12
    survival = np.cumprod(1 - DEATH[initialAge - 55 :])
    return weighted / 12 - 0.9 * (natural_life - (survival.sum() + 0.5))


@pytest.mark.parametrize("control_variate", [True, False])
@pytest.mark.parametrize(
    ("Barrett", "aspirinEffect", "statinEffect", "drugIndex", "initialAge"),
    [
        (0.08, 0.4, 0.2, 0, 55),
        (0.05, 0.7, 0.1, 1, 55),
        (0.10, 0.0, 0.9, 1, 80),
        (0.10, 0.9, 0.0, 2, 60),
        (0.40, 0.3, 0.3, 2, 80),  # far above the benchmark's risks: most lives meet the cancer
        (0.00, 0.5, 0.5, 1, 70),  # no cancer: the complication's part stands alone
    ],
)
def test_sojourn_times_give_the_law_of_the_monthly_chain(
    Barrett, aspirinEffect, statinEffect, drugIndex, initialAge, control_variate
):
    patient = {
        "Barrett": Barrett,
        "aspirinEffect": aspirinEffect,
        "statinEffect": statinEffect,
        "drugIndex": drugIndex,
        "initialAge": initialAge,
    }
    slow = step_through_months(
        20_000, np.random.default_rng(1), **patient, control_variate=control_variate
    )
    fast = simulate_ecm(
        **patient, n_samples=100_000, control_variate=control_variate, random_state=2
    )[0]
    slow, fast = slow.round(6), fast.round(6)  # the laws sit on points that must compare equal
    assert_equal_means(slow, fast)
    assert_equal_means((slow - fast.mean()) ** 2, (fast - fast.mean()) ** 2)
    assert ks_2samp(slow, fast).pvalue > 1e-3
    # Between two points of a lattice a quantile jumps, so the band is one of levels, not of values.
    levels = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
    band = 4 * np.sqrt(levels * (1 - levels) * (1 / slow.size + 1 / fast.size))
    quantiles = np.quantile(slow, levels)
    assert (quantiles >= np.quantile(fast, np.clip(levels - band, 0, 1))).all()
    assert (quantiles <= np.quantile(fast, np.clip(levels + band, 0, 1))).all()


def assert_equal_means(a, b):
    assert abs(a.mean() - b.mean()) < 4 * np.sqrt(a.var() / a.size + b.var() / b.size)


@pytest.mark.parametrize(
    ("control_variate", "mean", "sd", "quantiles"),
    [
        (True, 15.60, 5.75, [0.1, 8.8, 15.4, 23.4, 26.1]),
        (False, 15.58, 9.54, [0.5, 3.5, 14.5, 29.2, 38.5]),
    ],
)
def test_population_has_the_published_moments_and_quantiles(control_variate, mean, sd, quantiles):
    X = draw_covariates(200_000, random_state=1)
    y = simulate_ecm(X, control_variate=control_variate, random_state=2)
    assert y.shape == (200_000, 1)
    assert y.mean() == pytest.approx(mean, abs=0.12)
    assert y.std() == pytest.approx(sd, abs=0.1)
    np.testing.assert_allclose(np.quantile(y, [0.01, 0.1, 0.5, 0.9, 0.99]), quantiles, atol=0.5)


@pytest.mark.parametrize(
    ("drugIndex", "mean", "sd"), [(0, 22.23, 11.43), (1, 23.02, 11.17), (2, 22.60, 11.34)]
)
def test_each_drug_has_its_known_mean(drugIndex, mean, sd):
    y = simulate_ecm(
        **PATIENT,
        drugIndex=drugIndex,
        n_samples=500_000,
        control_variate=False,
        random_state=3,
    )
    assert y.mean() == pytest.approx(mean, abs=3 * np.hypot(0.04, y.std() / np.sqrt(y.size)))
    assert y.std() == pytest.approx(sd, abs=0.1)


def exact_mean(drug, risk, effects, age):
    """E[QALY] by pushing the distribution over the states forward, without any draw."""
    plain, harmed = np.zeros(8), np.zeros(8)
    plain[6 if drug else 0] = 1.0
    total = 0.0
    for year, death in enumerate(DEATH[age - 55 :]):
        P = transition_matrix(risk, effects, drug, age + year)
        for transition in range(1, 13):
            total += STATE_WEIGHT @ (plain + 0.61 * harmed)
            newly_harmed = 0.058 * plain[7] * P[7, 0] if drug == 1 else 0.0
            plain, harmed = plain @ P, harmed @ P
            plain[0] -= newly_harmed
            harmed[0] += newly_harmed
            plain[DEAD] = harmed[DEAD] = 0
            if transition == 6:
                plain, harmed = (1 - death) * plain, (1 - death) * harmed
    return total / 12


@pytest.mark.parametrize("control_variate", [True, False])
@pytest.mark.parametrize(
    ("drugIndex", "Barrett"),
    [(0, 0.08), (1, 0.08), (2, 0.08), (1, 0.0)],  # the last: complications of aspirin alone
)
def test_mean_is_the_exact_expectation_of_the_chain(drugIndex, Barrett, control_variate):
    y = simulate_ecm(
        **PATIENT | {"Barrett": Barrett},
        drugIndex=drugIndex,
        n_samples=2_000_000,
        control_variate=control_variate,
        random_state=4,
    )
    expected = exact_mean(drugIndex, Barrett, (0.4, 0.2), 55)
    assert abs(y.mean() - expected) < 4 * y.std() / np.sqrt(y.size)


@pytest.mark.parametrize(
    ("Barrett", "drugIndex", "weights"),
    [
        (0.99, 0, [1, 0.5, 0.5]),  # states 0, 1, 2 and then 5
        (0.00, 1, [1, 1]),  # states 6, 7 and then 5: about one life in 100,000
    ],
)
def test_the_shortest_life_is_the_shortest_path_to_death(Barrett, drugIndex, weights):
    y = simulate_ecm(
        **PATIENT | {"Barrett": Barrett},
        drugIndex=drugIndex,
        n_samples=2_000_000,
        control_variate=False,
        random_state=5,
    )
    assert y.min() * 12 == pytest.approx(sum(weights))


def test_control_variate_is_the_centred_life_length_of_the_life_table():
    age = 90
    patient = PATIENT | {"initialAge": age, "drugIndex": 0, "n_samples": 50_000, "random_state": 5}
    gap = (
        simulate_ecm(**patient, control_variate=False)
        - simulate_ecm(**patient, control_variate=True)
    )[0] / 0.9
    survival = np.cumprod(1 - DEATH[age - 55 :])
    years = gap + survival.sum()  # N - ½
    np.testing.assert_allclose(years, years.round(), atol=1e-9)
    counts = np.bincount(years.round().astype(int), minlength=11)
    probabilities = -np.diff(survival, prepend=1.0)
    assert counts.size == probabilities.size == 11
    assert chisquare(counts, probabilities * counts.sum()).pvalue > 1e-3


def test_without_risk_or_drug_only_the_life_table_is_left():
    years = simulate_ecm(
        **PATIENT | {"Barrett": 0},
        drugIndex=0,
        n_samples=20_000,
        control_variate=False,
        random_state=6,
    )
    np.testing.assert_array_equal(years % 1, 0.5)
    assert years.min() >= 0.5
    assert years.max() <= 45.5


def test_at_age_100_the_first_half_year_is_the_last():
    patient = {"Barrett": 0, "aspirinEffect": 0, "statinEffect": 0, "drugIndex": 0}
    y = simulate_ecm(**patient, initialAge=100, n_samples=50, random_state=0)
    np.testing.assert_array_equal(y, np.full((1, 50), 0.5))


def test_an_effective_drug_prolongs_life():
    patient = PATIENT | {"n_samples": 50_000, "control_variate": True, "random_state": 7}
    weak, strong = (
        simulate_ecm(**patient | {"statinEffect": effect}, drugIndex=2).mean()
        for effect in (0.0, 1.0)
    )
    assert strong > weak + 1


def test_draws_are_reproducible_and_leave_the_global_generator_alone():
    X = draw_covariates(50, random_state=0)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = simulate_ecm(X, n_samples=3, random_state=8)
    np.testing.assert_array_equal(first, simulate_ecm(X, n_samples=3, random_state=8))
    np.testing.assert_array_equal(
        first, simulate_ecm(X, n_samples=3, random_state=np.random.default_rng(8))
    )
    assert (first != simulate_ecm(X, n_samples=3, random_state=9)).mean() > 0.9
    simulate_ecm(X)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_columns_are_found_by_name_and_keywords_equal_a_frame():
    X = draw_covariates(20, random_state=0)
    y = simulate_ecm(X, n_samples=4, random_state=1)
    np.testing.assert_array_equal(y, simulate_ecm(X[X.columns[::-1]], n_samples=4, random_state=1))
    np.testing.assert_array_equal(y, simulate_ecm(**dict(X), n_samples=4, random_state=1))


def test_blocks_leave_no_seam():
    y = simulate_ecm(**PATIENT, drugIndex=0, n_samples=150_001, random_state=1)
    assert y.shape == (1, 150_001)
    assert ks_2samp(y[0, :60_000].round(6), y[0, -60_000:].round(6)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Barrett": -0.01}, "Barrett must be a number from 0"),
        ({"Barrett": 1.0}, "Barrett must be a number from 0"),
        ({"statinEffect": np.nan}, "statinEffect"),
        ({"aspirinEffect": 1.5}, "aspirinEffect.*got 1.5"),
        ({"drugIndex": 3}, "drugIndex must be a whole number from 0 to 2, got 3"),
        ({"initialAge": 54}, "initialAge must be a whole number from 55 to 100, got 54"),
        ({"initialAge": 60.5}, "initialAge must be a whole number"),
        ({"smoker": 1}, "unknown: smoker"),
        ({"drugIndex": [1, 2], "Barrett": [0.1, 0.1, 0.1]}, "one common length"),
        ({"n_samples": 0}, "n_samples must be at least 1"),
        ({"X": pd.DataFrame({"Barrett": [0.1]})}, "not both"),
    ],
)
def test_wrong_covariates_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        simulate_ecm(**PATIENT | {"drugIndex": 1} | change)


def test_missing_columns_are_named():
    with pytest.raises(ValueError, match="missing: statinEffect, drugIndex"):
        simulate_ecm(draw_covariates(3).drop(columns=["statinEffect", "drugIndex"]))


def test_covariates_fill_their_ranges():
    X = draw_covariates(20_000, random_state=0)
    assert set(X["drugIndex"]) == {1, 2}
    assert set(X["initialAge"]) == set(range(55, 81))
    assert X["Barrett"].between(0, 0.1).all()
    assert X["Barrett"].mean() == pytest.approx(0.05, abs=0.001)
    assert X[["aspirinEffect", "statinEffect"]].mean().to_numpy() == pytest.approx(0.5, abs=0.01)


def test_benchmark_has_the_papers_sizes_and_layout():
    benchmark = load("ecm")
    X, y = benchmark.train
    assert X.shape == (20_000, 5)
    assert y.shape == (20_000,)
    assert X["drugIndex"].tolist() == [1, 2] * 10_000
    patient = X.drop(columns="drugIndex").to_numpy()
    np.testing.assert_array_equal(patient[::2], patient[1::2])
    assert len(np.unique(patient, axis=0)) == 10_000
    for part in (benchmark.val, benchmark.test):
        assert len(part) == 200 * 10_000
        covariates = part.X.to_numpy().reshape(200, 10_000, 5)
        assert (covariates == covariates[:, :1]).all()
        assert len(np.unique(covariates[:, 0], axis=0)) == 200
        # Within a covariate the control variate leaves a spread of about two and a half years.
        assert part.y.reshape(200, -1).std(axis=1).mean() == pytest.approx(2.5, abs=0.5)
    assert y.min() < 0


def test_responses_stand_beside_their_covariate():
    benchmark = load("ecm", n_patients=10, n_test_covariates=40, n_responses=2_000)
    one_each = benchmark.test.X.iloc[::2_000]
    assert isinstance(benchmark.truth, Truth)
    fresh = benchmark.truth.sample(one_each, n_samples=2_000, random_state=1).mean(axis=1)
    seen = benchmark.test.y.reshape(40, 2_000).mean(axis=1)
    assert np.abs(fresh - seen).max() < 1
    assert np.ptp(fresh) > 5


def test_benchmark_is_fixed_by_default_and_varies_with_the_seed():
    small = {"n_patients": 20, "n_test_covariates": 3, "n_responses": 5}
    first, again = load("ecm", **small), load("ecm", **small)
    pd.testing.assert_frame_equal(first.test.X, again.test.X)
    np.testing.assert_array_equal(first.test.y, again.test.y)
    assert not np.array_equal(first.test.y, load("ecm", **small, random_state=1).test.y)
    assert not np.array_equal(first.test.y, first.val.y)


def test_size_of_one_part_leaves_the_others_alone():
    first = load("ecm", n_patients=20, n_test_covariates=3, n_responses=5)
    larger = load("ecm", n_patients=40, n_test_covariates=3, n_responses=5)
    np.testing.assert_array_equal(first.test.y, larger.test.y)


def test_plain_qalys_are_never_negative():
    benchmark = load(
        "ecm", n_patients=5_000, n_test_covariates=2, n_responses=2, control_variate=False
    )
    assert benchmark.train.y.min() > 0
