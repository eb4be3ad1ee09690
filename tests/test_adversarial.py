import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch

import gentle
from gentle import CWGAN, MGAN, WGANGP, Marginal, datasets
from gentle.models.duel import Batch
from gentle.nets import PointMLP
from oracles import as_function, plain_mlp

QUIET = {"random_state": 0, "verbose": 0, "device": "cpu"}
SMALL = QUIET | {"hidden_widths": (8, 8), "n_levels": 21}


def table(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.gamma(2.0, 1.0, n)


def net(widths=(7, 6, 5), skips=True, seed=0):
    source = torch.Generator().manual_seed(seed)
    made = PointMLP(2, widths, source, skips).double()
    for bias in made.biases:  # off zero, so that every parameter matters
        torch.nn.init.normal_(bias, std=0.3, generator=source)
    return made


def batch(n=9, dtype=torch.float64):
    rng = np.random.default_rng(0)
    x, (y, noise, fake) = rng.normal(size=(n, 2)), rng.normal(size=(3, n))
    share = rng.dirichlet(np.ones(n))
    return Batch(*(torch.tensor(a, dtype=dtype) for a in (x, y, share, noise, fake)))


def parts(rows):
    return (getattr(rows, field.name).double().numpy() for field in dataclasses.fields(rows))


def weights_of(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach().numpy()


RECOVERY = {
    CWGAN: {"n_epochs": 120, "n_critic": 5},
    WGANGP: {"n_epochs": 120},
    MGAN: {"n_epochs": 40},
}


@pytest.mark.parametrize("model", RECOVERY, ids=lambda m: m.__name__)
def test_known_conditional_quantiles_are_recovered(model):
    problem = datasets.load("tanh-plus-gamma", n_train=1000, n_test=100)
    levels = np.linspace(0.005, 0.995, 100)
    truth = problem.truth.quantile(problem.test.X, levels)

    def distance(fitted):
        return np.abs(fitted.predict_quantiles(problem.test.X, levels) - truth).mean()

    settings = QUIET | {"hidden_widths": (32, 32), "batch_size": 100, "learning_rate": 1e-3}
    fitted = model(**settings | RECOVERY[model]).fit(problem.train.X, problem.train.y)
    marginal = Marginal().fit(problem.train.X, problem.train.y)
    assert distance(fitted) < 0.5 * distance(marginal)
    assert fitted.score(problem.test.X, problem.test.y) > 0.3
    spread = fitted.predict_dist(problem.test.X).std().mean()
    assert 0.05 < spread < 0.9  # 0.3 in truth; not a point, nor the marginal's 0.96


def test_the_gap_of_a_critic_that_has_time_is_the_wasserstein_distance():
    problem = datasets.load("tanh-plus-gamma", n_train=2000, n_test=10)
    model = CWGAN(
        **QUIET | {"dropout": 0.0, "n_critic": 10**9, "hidden_widths": (32, 32)},
        learning_rate=5e-3,
        batch_size=500,
        n_epochs=80,
    ).fit(problem.train.X, problem.train.y)
    levels = (np.arange(200) + 0.5) / 200
    generated = model.predict_quantiles(problem.train.X, levels)  # by a generator at its start
    exact = np.abs(generated - problem.truth.quantile(problem.train.X, levels)).mean()
    gap = np.mean([record["gap"] for record in model.history_[-10:]])
    assert gap * model.response_encoder_.scale == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("widths", [(7,), (7, 6, 5), (9, 8, 7, 6, 5, 4)])
def test_networks_on_rows_are_the_layers_one_by_one(widths, skips):
    made = net(widths, skips)
    inputs = torch.randn(5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = made.rows(inputs).detach().numpy()
    if skips:
        expected = [plain_mlp(made, row[:2], row[2]) for row in inputs.numpy()]
    else:
        layers = [torch.nn.Linear(*reversed(weight.shape)).double() for weight in made.weights]
        for layer, weight, bias in zip(layers, made.weights, made.biases):
            layer.weight, layer.bias = weight, bias
        parts = [part for layer in layers for part in (layer, torch.nn.ReLU())][:-1]
        expected = torch.nn.Sequential(*parts)(inputs)[:, 0].detach().numpy()
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    forward = made(inputs[:, :2], inputs[:, 2:]).detach().numpy()
    np.testing.assert_allclose(forward[:, 0], expected, rtol=1e-10)


@pytest.mark.parametrize("skips", [True, False])
def test_gradients_and_their_derivatives_are_those_of_double_differentiation(skips):
    made = net((9, 8, 7, 6, 5, 4), skips)
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    moving = inputs.clone().requires_grad_()
    (expected,) = torch.autograd.grad(made.rows(moving).sum(), moving, create_graph=True)
    torch.testing.assert_close(made.gradient(inputs), expected)
    weights = list(made.weights)
    ours, theirs = (
        torch.autograd.grad((g.norm(dim=1) - 1).square().sum(), weights)
        for g in (made.gradient(inputs), expected)
    )
    torch.testing.assert_close(ours, theirs)


def steep_in_y(gradient):
    return max(0.0, abs(gradient[2]) - 1)


def off_one(gradient):
    return (np.linalg.norm(gradient) - 1) ** 2


@pytest.mark.parametrize(("model", "cost"), [(CWGAN, steep_in_y), (WGANGP, off_one)])
def test_the_wasserstein_critic_loss_is_its_formula_row_by_row(model, cost):
    made, rows = net().float(), batch(dtype=torch.float32)
    for parameter in made.parameters():
        parameter.data *= 1.7  # some slopes above one, some below
    seed = torch.Generator().manual_seed(5)
    loss, gap = model(penalty=3.0)._critic_loss(made, rows, seed)
    t = torch.rand(len(rows.y), generator=seed.manual_seed(5)).double().numpy()
    critic, step = as_function(copy.deepcopy(made)), 1e-6
    x, y, share, _, fake = parts(rows)
    expected, difference, costs = 0.0, 0.0, []
    for i in range(len(y)):
        at = np.append(x[i], t[i] * y[i] + (1 - t[i]) * fake[i])
        ends = [(at + e, at - e) for e in step * np.eye(3)]
        slopes = [
            (critic(up[:2], up[2:])[0] - critic(down[:2], down[2:])[0]) / (2 * step)
            for up, down in ends
        ]
        costs.append(cost(np.array(slopes)))
        real, generated = critic(x[i], y[i : i + 1])[0], critic(x[i], fake[i : i + 1])[0]
        difference += share[i] * (real - generated)
        expected += share[i] * (generated - real + 3.0 * costs[-1])
    assert min(costs) < 0.1 < max(costs)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert gap.item() == pytest.approx(difference, rel=1e-5)
    on_fake = [critic(x[i], fake[i : i + 1])[0] for i in range(len(y))]
    assert model()._generator_loss(made, rows).item() == pytest.approx(-share @ on_fake, rel=1e-5)


def test_the_losses_of_mgan_are_their_formulas_row_by_row_and_pair_by_pair():
    made, rows = net(), batch()
    critic = as_function(made)
    x, y, share, z, fake = parts(rows)
    real = np.array([critic(x[i], y[i : i + 1])[0] for i in range(len(y))])
    generated = np.array([critic(x[i], fake[i : i + 1])[0] for i in range(len(y))])
    loss, gap = MGAN()._critic_loss(made, rows, torch.Generator())
    assert loss.item() == pytest.approx(share @ ((real - 1) ** 2 + generated**2))
    assert gap.item() == pytest.approx(share @ (real - generated))
    monotonicity = 0.0
    for i in range(len(y)):
        for j in range(len(y)):
            w, w_ = np.append(x[i], z[i]), np.append(x[j], z[j])
            image, image_ = np.append(x[i], fake[i]), np.append(x[j], fake[j])
            whole = (w - w_) @ (image - image_)  # of the map (x, z) to (x, G(x, z))
            monotonicity += share[i] * share[j] * (whole - np.sum((x[i] - x[j]) ** 2))
    expected = share @ (generated - 1) ** 2 - 0.7 * monotonicity
    assert MGAN(penalty=0.7)._generator_loss(made, rows).item() == pytest.approx(expected)


def test_mgans_penalty_alone_makes_the_map_increase_in_the_noise():
    X, y = table(200)
    model = MGAN(**SMALL, penalty=1e6, learning_rate=1e-2, n_epochs=20).fit(X, y)
    x = torch.as_tensor(X, dtype=torch.float32)
    z = torch.linspace(-2, 2, 9).expand(len(X), -1)
    with torch.no_grad():
        values = model.generator_(x, z)
    assert (values[:, -1] > values[:, 0] + 1).all()
    assert (values.diff() > 0).float().mean() > 0.95


def test_answers_respect_their_bounds_bit_for_bit(tmp_path):
    X, y = table()
    y = np.clip((y - 2) * 400.1, 0, 1234.5) - 60
    model = CWGAN(**SMALL, n_epochs=2).fit(X, y)
    levels = np.linspace(0, 1, 21)  # the knots of the tables
    free = model.predict_quantiles(X, levels)
    for low, high in [*zip(np.linspace(-29.7, 31.3, 9), np.linspace(250, 281.3, 9)), (None, 240.1)]:
        got = model.set_params(bounds=(low, high)).predict_quantiles(X, levels)
        np.testing.assert_allclose(got, free.clip(low, high), rtol=1e-9)
        np.testing.assert_array_equal(got == high, free >= high)
        assert (got == high).any()
        if low is not None:
            np.testing.assert_array_equal(got == low, free <= low)
            draws = model.sample(X, 500, random_state=0)
            share = (draws == low).mean(axis=1)  # an atom at the bound, not values close to it
            np.testing.assert_allclose(model.cdf(X, np.full(len(X), low)), share, atol=0.1)
            assert share.max() > 0.1
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(gentle.load(tmp_path / "model").predict_quantiles(X, levels), got)


def test_dropout_acts_in_training_only():
    X, y = table()
    with_, without = (
        CWGAN(**SMALL, n_critic=1, dropout=rate, n_epochs=2).fit(X, y) for rate in (0.3, 0.0)
    )
    assert not np.array_equal(weights_of(with_.generator_), weights_of(without.generator_))
    first, second = (with_.predict_quantiles(X, [0.1, 0.9]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    made, draws = net(widths=(4000,)), torch.Generator().manual_seed(9)
    inputs = torch.ones(50, 3, dtype=torch.float64)
    values = made.rows(inputs, 0.3, draws).detach()
    assert len(values.unique()) == 50  # each row drops units of its own
    hidden = torch.nn.functional.linear(inputs[0], made.weights[0], made.biases[0]).relu()
    parts = hidden * made.weights[1][0, :4000]
    deviation = (0.3 / 0.7 * parts.square().sum()).sqrt()  # of a sum of kept parts / 0.7
    error = (values - made.rows(inputs).detach()) / deviation
    assert error.mean().abs() < 4 / 50**0.5
    assert 0.7 < error.std() < 1.4


@pytest.mark.parametrize("model", [CWGAN, WGANGP, MGAN])
def test_the_generator_moves_after_every_n_critic_th_batch(model):
    X, y = table()
    settings = SMALL | {"batch_size": 30, "n_critic": 3}  # two batches an epoch
    fits = [model(**settings, n_epochs=n).fit(X, y) for n in range(1, 6)]
    generators, critics = (
        [weights_of(getattr(fit, name)) for fit in fits] for name in ("generator_", "critic_")
    )
    moved = [not np.array_equal(a, b) for a, b in itertools.pairwise(generators)]
    assert moved == [True, True, False, True]  # after 2, 4, 6, 8, 10 steps: 0, 1, 2, 2, 3 moves
    assert not any(np.array_equal(a, b) for a, b in itertools.pairwise(critics))
    assert [set(record) for record in fits[0].history_] == [{"epoch", "loss", "gap", "seconds"}]


def test_mgans_learning_rate_falls_from_epoch_to_epoch():
    X, y = table()
    once, more, steady = (
        MGAN(**SMALL, n_epochs=n, learning_rate_decay=decay).fit(X, y)
        for n, decay in [(1, 1e-9), (4, 1e-9), (4, 1.0)]
    )
    np.testing.assert_allclose(weights_of(more.generator_), weights_of(once.generator_), atol=1e-6)
    moved = np.abs(weights_of(steady.generator_) - weights_of(once.generator_)).max()
    assert moved > 1e-4


@pytest.mark.parametrize("model", [CWGAN, WGANGP, MGAN])
def test_global_random_numbers_are_left_alone(model):
    X, y = table()
    before, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    model(**SMALL, n_epochs=2).fit(X, y).sample(X)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], legacy)  # noqa: NPY002


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (CWGAN, {"bounds": (3.0, 1.0)}, "bounds must be None or a pair"),
        (CWGAN, {"bounds": 0.0}, "bounds must be None or a pair"),
        (CWGAN, {"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        (WGANGP, {"n_critic": 0}, "n_critic must be an integer of at least 1, got 0"),
        (WGANGP, {"betas": (0.5, 1.0)}, "betas must be two numbers"),
        (WGANGP, {"hidden_widths": ()}, "hidden_widths must be a sequence"),
        (MGAN, {"penalty": -0.1}, "penalty must be at least 0, got -0.1"),
        (MGAN, {"learning_rate_decay": 1.1}, "learning_rate_decay must be positive and at most 1"),
        (MGAN, {"learning_rate": 0.0}, "learning_rate must be positive"),
    ],
)
def test_arguments_that_cannot_work_are_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model(**QUIET, **arguments).fit(*table())
