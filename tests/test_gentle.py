import copy

import numpy as np
import ot
import pandas as pd
import pytest
import torch
from scipy.stats import wasserstein_distance

from gentle import GENTLE, datasets
from gentle.data import Grouped
from gentle.graph import spanning_tree
from gentle.models.game import Game
from gentle.nets import PaperMLP
from oracles import as_function, looped_losses, plain_mlp

PAPERS = {"map": "mlp", "fit_loss": "cdf", "regulariser": "entropic"}
SMALL = {
    "hidden_widths": (16, 16), "n_epochs": 3, "batch_size": 64, "verbose": 0, "device": "cpu",
    **PAPERS,
}  # fmt: skip


def problem(n=60, seed=0, repeats=True):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 5, (n, 2)).astype(float) if repeats else rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n) * (1 + X[:, 1])


def game(n=40, weights=False, **settings):
    X, y = problem(n)
    w = np.random.default_rng(1).random(n) + 0.2 if weights else None
    model = GENTLE(**{"n_draws": 5, "hidden_widths": (8, 8, 8), **PAPERS, **settings})
    data = Grouped.of((X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std(), w)
    seed = torch.Generator().manual_seed(0)
    nets = [model._network(name, 2, seed) for name in ("generator", "potential")]
    for net in nets:  # biases off zero, so that every parameter matters
        for bias in net.biases:
            torch.nn.init.normal_(bias, std=0.1, generator=seed)
    return Game(model, data, spanning_tree(data.x), *nets, seed)


def total(g, u):
    """Fit and R over all covariates, from the pieces that a step uses."""
    pieces = list(g.pieces(np.arange(len(g.data)), u))
    sums = [g.losses(piece) for piece in pieces]
    n_edges = sum(len(piece.edge) for piece in pieces)
    return sum(f for f, _ in sums) / len(g.data), sum(r for _, r in sums) / n_edges


@pytest.mark.parametrize("pairs_at_once", [7, 4096])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
@pytest.mark.parametrize("weights", [False, True])
def test_losses_are_algorithm_1(monkeypatch, pairs_at_once, epsilon, weights):
    monkeypatch.setattr("gentle.models.game.PAIRS_AT_ONCE", pairs_at_once)
    g = game(epsilon=epsilon, weights=weights)
    u = g.draw(len(g.data))
    fit, reg = (loss.item() for loss in total(g, u))
    nets = [as_function(copy.deepcopy(net)) for net in (g.generator, g.potential)]
    expected = looped_losses(
        *nets, g.data, g.parent, u.double().numpy(), bandwidth=0.3, epsilon=epsilon
    )
    np.testing.assert_allclose([fit, reg], expected, rtol=1e-4, atol=1e-5)


def test_the_root_contributes_to_fit_only_and_partners_may_lie_outside_the_batch():
    g = game()
    assert g.parent[0] == -1
    (alone,) = g.pieces(np.array([0]), g.draw(1))
    fit, reg = g.losses(alone)
    assert fit > 0
    assert reg == 0
    child = int(np.flatnonzero(g.parent == 0)[0])
    (batch,) = g.pieces(np.array([child]), g.draw(1))
    torch.testing.assert_close(batch.partner[0], g.x[0])
    assert g.losses(batch)[1] != 0


def test_generator_gradients_flow_through_all_of_the_regulariser():
    g = game(reg_weight=1.0)
    for net in (g.generator, g.potential):
        net.double()
    g.x, g.y, g.share, g.bandwidth = (t.double() for t in (g.x, g.y, g.share, g.bandwidth))
    u = g.draw(len(g.data)).double()
    _, reg = total(g, u)
    gradients = torch.autograd.grad(reg, g.theta)
    rng = np.random.default_rng(0)
    for param, gradient in zip(g.theta, gradients):
        direction = torch.tensor(rng.normal(size=param.shape))
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                param.add_(direction, alpha=step)
                values.append(float(total(g, u)[1]))
                param.add_(direction, alpha=-step)
        slope = (values[0] - values[1]) / 2e-6
        assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("pairs_at_once", [7, 4096])
def test_a_step_moves_theta_first_and_phi_at_the_new_theta(monkeypatch, pairs_at_once):
    monkeypatch.setattr("gentle.models.game.PAIRS_AT_ONCE", pairs_at_once)
    settings = {"inner": "sgd", "lr_generator": 0.1, "lr_potential": 0.1, "reg_weight": 0.7}
    g, twin = game(**settings), game(**settings)
    u = g.draw(len(g.data))
    g.draw = lambda n: u
    g.step(np.arange(len(g.data)))

    fit, reg = total(twin, u)  # the first step's anchors pull nowhere: p = θ, q = φ
    for param, gradient in zip(twin.theta, torch.autograd.grad(fit + 0.7 * reg, twin.theta)):
        param.data -= 0.1 * gradient
    _, reg = total(twin, u)
    for param, gradient in zip(twin.phi, torch.autograd.grad(0.7 * reg, twin.phi)):
        param.data += 0.1 * gradient
    for mine, expected in zip(g.theta + g.phi, twin.theta + twin.phi):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


def test_w2_fit_is_the_squared_distance_of_quantiles():
    g = game(fit_loss="w2", bandwidth=1e-3, reg_weight=0.0)
    # One response and almost no smoothing: the quantile function is the response itself.
    single = np.flatnonzero(g.data.counts == 1)[:1]
    (batch,) = g.pieces(single, g.draw(1))
    expected = (g.generator(batch.x, batch.u) - batch.y).square().mean()
    torch.testing.assert_close(g.losses(batch)[0], expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("weights", [False, True])
def test_crps_fit_is_twice_the_pinball_loss_of_the_responses(weights):
    g = game(fit_loss="crps", weights=weights)
    u = g.draw(len(g.data))
    found = sum(g.losses(piece)[0].item() for piece in g.pieces(np.arange(len(g.data)), u))
    values = g.generator(g.x, u).detach().double().numpy()
    expected = 0.0
    for i in range(len(g.data)):
        rows = slice(g.data.start[i], g.data.start[i + 1])
        total = g.data.weight[rows].sum()
        for y, weight in zip(g.data.y[rows], g.data.weight[rows]):
            for level, value in zip(u[i].double().numpy(), values[i]):
                loss = (level - (y < value)) * (y - value)
                expected += 2 * weight / total * loss / u.shape[1]
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", ["mlp", "monotone"])
def test_the_quantile_regulariser_is_the_squared_distance_at_equal_levels(kind):
    g = game(map=kind, regulariser="quantile")
    u = g.draw(len(g.data))
    found = float(total(g, u)[1])
    child = np.flatnonzero(g.parent >= 0)
    here, there = (g.generator(g.x[i], u[child]) for i in (child, g.parent[child]))
    assert found == pytest.approx(float((here - there).square().mean()), rel=1e-5)
    if kind == "monotone":  # the squared Wasserstein distance of the draws
        pairs = zip(here.detach().numpy(), there.detach().numpy())
        distances = [np.mean((np.sort(a) - np.sort(b)) ** 2) for a, b in pairs]
        assert found == pytest.approx(np.mean(distances), rel=1e-5)


def test_the_sinkhorn_regulariser_takes_half_of_each_cost_to_itself_away():
    g, plain = game(regulariser="sinkhorn"), game(regulariser="entropic")
    u = g.draw(len(g.data))
    difference = float(total(plain, u)[1] - total(g, u)[1])
    own = []
    for child in np.flatnonzero(g.parent >= 0):
        for i in (child, g.parent[child]):
            draws = g.generator(g.x[i : i + 1], u[child : child + 1])[0].detach().double().numpy()
            cost = (draws[:, None] - draws[None]) ** 2
            own.append(ot.solve(cost, reg=1.0, max_iter=100_000, tol=1e-12).value)
    assert difference == pytest.approx(np.mean(own), rel=1e-3)


@pytest.mark.parametrize(
    ("regulariser", "fit_loss"),
    [("quantile", "cdf"), ("quantile", "w2"), ("entropic", "crps"), ("sinkhorn", "crps")],
)
def test_monotone_maps_can_play_the_game(regulariser, fit_loss):
    X, y = problem()
    changes = {"map": "monotone", "regulariser": regulariser, "fit_loss": fit_loss}
    settings = SMALL | changes | {"n_epochs": 12, "lr_generator": 1e-2, "batch_size": 16}
    model = GENTLE(**settings, early_stopping=False, random_state=0).fit(X, y)
    assert model.is_game
    losses = [record["loss"] for record in model.history_]
    assert losses[-1] < losses[0]
    raw = model.transport_map(X, np.linspace(0, 1, 101))
    assert np.all(np.diff(raw, axis=1) >= -1e-4)
    assert model.score(X, y) > 0
    assert ("reg" in model.history_[0]) == (model.setting("reg_weight") > 0)


def test_settings_left_open_are_those_of_the_model_asked_for():
    default, game = GENTLE(), GENTLE(**PAPERS)
    assert not default.is_game
    assert game.is_game
    assert default.get_params()["hidden_widths"] is None
    for change in ({"map": "mlp"}, {"fit_loss": "cdf"}, {"regulariser": "sinkhorn"}):
        assert GENTLE(**change).is_game
    for name in ("reg_weight", "lr_generator", "hidden_widths"):
        assert game.setting(name) == GENTLE.from_paper("ldw-cps").setting(name)
        assert default.setting(name) != game.setting(name)
    assert GENTLE(lr_generator=0.5).setting("lr_generator") == 0.5


def test_stratified_draws_are_one_per_stratum_and_uniform():
    g = game(stratified=True, n_draws=8)
    u = g.draw(20_000)
    assert torch.equal((u * 8).floor().long(), torch.arange(8).expand(20_000, -1))
    inside = (u * 8) % 1
    assert abs(float(inside.mean()) - 0.5) < 0.01
    plain = game(stratified=False, n_draws=8).draw(20_000)
    assert plain.mean(dim=1).std() > 5 * u.mean(dim=1).std()


def test_the_network_has_the_papers_seven_layers_and_concatenations():
    net = PaperMLP(9, GENTLE(**PAPERS).setting("hidden_widths"), torch.Generator().manual_seed(0))
    shapes = [tuple(w.shape) for w in net.weights]
    assert shapes == [(256, 10), (256, 266), (128, 256), (128, 138), (64, 128), (64, 74), (1, 64)]
    assert all(bool((b == 0).all()) for b in net.biases)
    bound = np.sqrt(6 / (266 + 256))
    assert net.weights[1].abs().max() <= bound
    assert net.weights[1].abs().max() > 0.99 * bound
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(3, 9)), rng.normal(size=(3, 4))
    found = net(torch.tensor(x, dtype=torch.float32), torch.tensor(s, dtype=torch.float32))
    expected = [[plain_mlp(net, x[i], s[i, j]) for j in range(4)] for i in range(3)]
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "bandwidth"), [("ldw-cps", 0.3), ("ecm", 0.2)])
def test_the_papers_settings_are_those_of_the_paper(name, bandwidth):
    model = GENTLE.from_paper(name, random_state=3)
    expected = {
        "lr_generator": 1e-3, "lr_potential": 1e-3, "epsilon": 1.0, "reg_weight": 0.4,
        "anchor_generator": 3.0, "anchor_potential": 2.0, "follow_generator": 0.5,
        "follow_potential": 0.7, "bandwidth": bandwidth, "batch_size": 1000, "n_epochs": 50,
        "n_draws": 64, "inner": "adam", "early_stopping": False, "random_state": 3,
        **PAPERS,
    }  # fmt: skip
    found = model.get_params()
    assert {key: found[key] for key in expected} == expected
    assert GENTLE.from_paper(name, reg_weight=0).reg_weight == 0
    with pytest.raises(ValueError, match="the paper has settings for"):
        GENTLE.from_paper("iris")  # type: ignore[arg-type]


def test_from_paper_trains_every_epoch_on_every_covariate_without_validation():
    X, y = problem()
    model = GENTLE.from_paper("ecm", **SMALL, random_state=0).fit(X, y)
    assert [r["epoch"] for r in model.history_] == [1, 2, 3]
    assert "validation" not in model.history_[0]
    assert len(model.parent_) == len(np.unique(X, axis=0))
    watched = GENTLE.from_paper("ecm", **SMALL, random_state=0).fit(X, y, eval_set=(X, y))
    assert [r["validation"] for r in watched.history_]
    np.testing.assert_array_equal(watched.predict(X), model.predict(X))


def test_without_the_regulariser_the_potential_stays_as_it_began():
    X, y = problem()
    one, ten = (
        GENTLE(**SMALL | {"n_epochs": n}, reg_weight=0, early_stopping=False, random_state=0).fit(
            X, y
        )
        for n in (1, 4)
    )
    for a, b in zip(one.potential_.parameters(), ten.potential_.parameters()):
        assert torch.equal(a, b)
    assert "reg" not in one.history_[0]


def test_early_stopping_restores_the_best_weights():
    X, y = problem(200)
    settings = SMALL | {"n_epochs": 60, "patience": 4, "lr_generator": 0.05}
    model = GENTLE(**settings, random_state=1).fit(X, y, eval_set=(X[:50], y[:50]))
    validation = [r["validation"] for r in model.history_]
    best = int(np.argmin(validation))
    assert len(validation) == best + 1 + 4 or len(validation) == 60
    again = GENTLE(**settings | {"n_epochs": best + 1, "early_stopping": False}, random_state=1)
    again.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_validation_is_the_crps_of_the_eval_set_in_standardised_units():
    X, y = problem(200)
    model = GENTLE(**SMALL, random_state=0).fit(X, y, eval_set=(X[:40], y[:40]))
    best = min(r["validation"] for r in model.history_)
    crps = model.predict_dist(X[:40]).crps(y[:40]).mean() / y.std()
    assert best == pytest.approx(crps, rel=0.02)
    weights = np.r_[np.ones(20), np.zeros(20)]
    half = GENTLE(**SMALL, random_state=0).fit(X, y, eval_set=(X[:40], y[:40], weights))
    alone = GENTLE(**SMALL, random_state=0).fit(X, y, eval_set=(X[:20], y[:20]))
    assert half.history_[0]["validation"] == alone.history_[0]["validation"]


def test_the_tree_is_that_of_the_standardised_covariates_grown_from_the_first():
    X, y = problem(80, repeats=False)
    X *= [1.0, 1000.0]
    model = GENTLE(**SMALL, random_state=0, early_stopping=False).fit(X, y)
    X = X[np.lexsort(X.T[::-1])]  # as models see the rows
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    distance = np.linalg.norm(Z[:, None] - Z[None], axis=2)
    parent, tree = np.full(80, -1), [0]
    while len(tree) < 80:  # Prim, densely
        outside = np.setdiff1d(np.arange(80), tree)
        i, j = np.unravel_index(distance[np.ix_(outside, tree)].argmin(), (len(outside), len(tree)))
        parent[outside[i]] = tree[j]
        tree.append(outside[i])
    np.testing.assert_array_equal(model.parent_, parent)


def test_the_validation_skill_is_over_the_marginal_of_what_was_trained_on():
    X, y = problem(300, repeats=False)
    model = GENTLE(**SMALL, random_state=0).fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
    assert model.validation_skill_ == pytest.approx(model.score(X[200:], y[200:]), abs=0.01)
    few = GENTLE(**SMALL, random_state=0).fit(X, y, eval_set=(X[:20], y[:20]))
    assert few.validation_skill_ is None


def test_the_internal_split_keeps_equal_covariates_together():
    X, y = problem(300)
    model = GENTLE(**SMALL, random_state=0, validation_fraction=0.3).fit(X, y)
    n_distinct = len(np.unique(X, axis=0))
    assert len(model.parent_) == n_distinct - round(0.3 * n_distinct)


def test_wd_is_a_criterion_only_where_validation_covariates_repeat():
    X, y = problem(300)
    with pytest.raises(ValueError, match="at least 20 responses for every validation covariate"):
        GENTLE(**SMALL, criterion="wd").fit(X, y, eval_set=(X[:30], y[:30]))
    often = np.repeat([[0.0, 1.0], [2.0, 3.0]], 20, axis=0)
    held_out = (often, np.random.default_rng(0).normal(size=40))
    model = GENTLE(**SMALL, criterion="wd", random_state=0).fit(X, y, eval_set=held_out)
    draws = model.predict_quantiles(often[[0, 20]], (np.arange(2000) + 0.5) / 2000)
    distances = [wasserstein_distance(draws[i], held_out[1][20 * i : 20 * i + 20]) for i in (0, 1)]
    best = min(r["validation"] for r in model.history_)
    assert best * y.std() == pytest.approx(np.mean(distances), rel=0.05)


def test_the_quantile_table_is_the_sorted_map_and_the_raw_map_stays_reachable():
    X, y = problem()
    model = GENTLE(**SMALL, n_levels=101, random_state=0).fit(X, y)
    levels = np.linspace(0, 1, 101)
    raw = model.transport_map(X[:5], levels)
    np.testing.assert_allclose(model.predict_quantiles(X[:5], levels), np.sort(raw, axis=1))
    one = model.transport_map(X[:5], np.full((5, 1), levels[7]))
    np.testing.assert_allclose(one[:, 0], raw[:, 7], rtol=1e-5, atol=1e-5)


def test_training_leaves_global_random_state_alone_and_ignores_it():
    X, y = problem()
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = GENTLE(**SMALL, random_state=5).fit(X, y)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(99)
    second = GENTLE(**SMALL, random_state=5).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    other = GENTLE(**SMALL, random_state=6).fit(X, y)
    assert not np.array_equal(first.predict(X), other.predict(X))


def test_weights_within_a_covariate_pull_its_distribution():
    X = np.repeat([[0.0], [1.0]], 100, axis=0)
    y = np.tile([0.0, 1.0], 100)
    w = np.where((X[:, 0] == 1) & (y == 1), 9.0, 1.0)
    # Wide kernels: between two far atoms a narrow kernel's cdf is flat and teaches nothing.
    settings = SMALL | {"n_epochs": 600, "lr_generator": 1e-2, "bandwidth": 1.0}
    model = GENTLE(**settings, reg_weight=0.0, early_stopping=False, random_state=0).fit(X, y, w)
    low, high = model.predict([[0.0], [1.0]])
    assert low == pytest.approx(0.5, abs=0.15)
    assert high == pytest.approx(0.9, abs=0.15)


def test_divergence_is_an_error_and_the_earlier_fit_survives():
    X, y = problem()
    model = GENTLE(**SMALL, random_state=0).fit(X, y)
    before = model.predict(X)
    model.set_params(lr_generator=1e30, inner="sgd")
    with pytest.raises(FloatingPointError, match="diverged in epoch"):
        model.fit(X, y)
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"map": "spline"}, "map must be 'monotone' or 'mlp'"),
        ({"regulariser": "l2"}, "regulariser must be 'quantile', 'entropic' or 'sinkhorn'"),
        ({"tails": "heavy"}, "tails must be 'observed' or 'extrapolate'"),
        ({"bounds": "none"}, "bounds must be 'auto', or a pair"),
        ({"bounds": (0.0, np.inf)}, "bounds must be 'auto', or a pair"),
        ({"bounds": (0.0, 1.0, 2.0)}, "bounds must be 'auto', or a pair"),
        ({"n_trees": -1}, "n_trees must be an integer of at least 0"),
        ({"n_steps": 0}, "n_steps must be an integer of at least 1"),
        ({"fit_loss": "mse"}, "fit_loss must be 'crps', 'cdf' or 'w2'"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"reg_weight": -1}, "reg_weight must be at least 0"),
        ({"bandwidth": -1}, "bandwidth must be a positive number"),
        ({"n_draws": 0}, "n_draws must be an integer of at least 1"),
        ({"n_draws": 2.5}, "n_draws must be an integer"),
        ({"patience": float("inf")}, "patience must be an integer"),
        ({"n_levels": 1}, "n_levels must be an integer of at least 2"),
        ({"hidden_widths": 16}, "hidden_widths must be a sequence of positive integers"),
        ({"hidden_widths": (0,)}, "hidden_widths must be a sequence of positive integers"),
        ({"lr_generator": "a"}, "lr_generator must be positive"),
        ({"bandwidth": None}, "bandwidth must be a positive number"),
        ({"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda' or 'mps'"),
        ({"follow_generator": 2}, "follow_generator must be between 0 and 1"),
        ({"validation_fraction": 1.0}, "validation_fraction must be between 0 and 1"),
        ({"inner": "lion"}, "inner must be"),
        ({"criterion": "kl"}, "criterion must be"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        GENTLE(**SMALL | setting).fit(X, y)


def test_a_device_that_is_not_there_falls_back_to_the_cpu_and_says_so():
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    X, y = problem()
    with pytest.warns(UserWarning, match="no 'cuda' device"):
        GENTLE(**SMALL | {"device": "cuda"}).fit(X, y)


def test_it_learns_a_conditional_distribution():
    """y = tanh(x) + Γ(1, .3): the model must lie far closer to the truth than the marginal does."""
    data = datasets.load("tanh-plus-gamma", n_train=1000, random_state=0)
    settings = {"n_epochs": 40, "batch_size": 100, "hidden_widths": (64, 64, 64), **PAPERS}
    model = GENTLE(**settings, random_state=0, verbose=0).fit(*data.train)
    assert model.score(*data.test) > 0.55
    X = pd.DataFrame({"x1": [-2.0, 0.0, 2.0]})
    exact = data.truth.quantile(X, [0.25, 0.5, 0.75])
    found = model.predict_quantiles(X, [0.25, 0.5, 0.75])
    assert np.abs(found - exact).max() < 0.3


def test_the_regulariser_smooths_and_the_plain_entropic_one_shrinks():
    """Facts about the plain entropic term: neighbours come closer, and the spread collapses."""
    X, y = problem(150, repeats=False)
    settings = SMALL | {"n_epochs": 150, "lr_generator": 3e-3, "hidden_widths": (32, 32, 32)}
    free, pulled = (
        GENTLE(**settings, reg_weight=w, early_stopping=False, random_state=0).fit(X, y)
        for w in (0.0, 2.0)
    )
    u = np.linspace(0.1, 0.9, 9)

    def roughness(model):
        values = model.transport_map(X, u)
        child = np.flatnonzero(model.parent_ >= 0)
        return np.square(values[child] - values[model.parent_[child]]).mean()

    assert roughness(pulled) < 0.7 * roughness(free)
    assert pulled.predict_dist(X).std().mean() < 0.8 * free.predict_dist(X).std().mean()
