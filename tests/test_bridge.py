import numpy as np
import pytest
import torch
from scipy.stats import norm, wasserstein_distance

from gentle import CDSB, datasets
from gentle.data import Grouped
from gentle.models.bridge import Bridge

TINY = {"n_iterations": 2, "n_updates": 4, "batch_size": 200, "n_steps": 4, "hidden_widths": (8,)}
TINY |= {"n_paths": 64, "verbose": 0, "device": "cpu"}


def bridge(y, weight=None, x=None, seed=0, **settings):
    """A bridge whose responses are used as they are, with networks that nobody trained."""
    model = CDSB(**{"response_scale": 1.0, "hidden_widths": (4,), **settings})
    weights = torch.Generator().manual_seed(seed)
    nets = [model._network(name, 1, weights) for name in model._networks]
    x = np.zeros((len(y), 1)) if x is None else x
    return Bridge(model, Grouped.of(x, y, weight), *nets, torch.Generator().manual_seed(seed))


def affine(slope, constant):
    return lambda x, y, k: constant + slope * y


def line(states, targets):
    """Slope and constant of the least-squares line at each time, (N, 2)."""
    columns = zip(states.T.double().numpy(), targets.T.double().numpy())
    return np.array([np.polyfit(s, t, 1) for s, t in columns])


def exact_reversal(mean, variance, a, c, gamma, n_steps):
    """E[Y_k | Y_{k+1}] of Y_{k+1} = a Y_k + c + √(2γ) Z as slope and constant, by conditioning."""
    found = []
    for _ in range(n_steps):
        next_mean, next_variance = a * mean + c, a * a * variance + 2 * gamma
        slope = a * variance / next_variance
        found.append([slope, mean - slope * next_mean])
        mean, variance = next_mean, next_variance
    return np.array(found)


@pytest.mark.parametrize("gamma", [0.1, 0.02])
@pytest.mark.parametrize("chain", ["reference", "backward"])
def test_targets_have_the_mean_of_the_reversed_gaussian_chain(chain, gamma):
    """Mean matching is exact as γ → 0, and for an affine chain its error is known."""
    y = norm.ppf((np.arange(4000) + 0.5) / 4000) * 0.7 + 0.5
    b = bridge(y, reference_variance=2.0, step_size=gamma, n_steps=6)
    b.drift["backward"] = affine(-0.8, 0.3)
    start = (0.5, 0.49) if chain == "reference" else (0.0, 2.0)
    slope, constant = (-0.5, 0.0) if chain == "reference" else (-0.8, 0.3)
    a, c = 1 + gamma * slope, gamma * constant
    _, states, times, targets = b.transitions(chain, 200_000)
    found = line(states, targets)
    exact = exact_reversal(*start, a, c, gamma, 6)
    expected = a * exact + [1 - a, 0.0]  # y' + F(E[Y_k | y']) - F(y')
    np.testing.assert_allclose(found, expected, atol=0.006)
    np.testing.assert_allclose(found, exact, atol=0.006 + gamma * 0.3)
    steps = np.arange(1, 7)
    assert times.tolist() == (steps if chain == "reference" else 6 - steps).tolist()


def test_proportional_fitting_joins_the_two_end_laws():
    """Lines in place of networks are exact for a Gaussian: no training error is left."""
    y = norm.ppf((np.arange(4000) + 0.5) / 4000) * 0.6 - 1.0
    b = bridge(y, reference_variance=3.0, step_size=0.05, n_steps=20)

    def by_time(times, lines):
        table = np.zeros((21, 2))
        table[times.numpy()] = (lines - [1.0, 0.0]) / 0.05  # the mean is y + γ·drift
        coefficients = torch.tensor(table, dtype=torch.float32)
        return lambda x, y, k: coefficients[k, 0] * y + coefficients[k, 1]

    teacher = "reference"
    for _ in range(6):
        for learner in ("backward", "forward"):
            _, states, times, targets = b.transitions(teacher, 20_000)
            b.drift[learner] = by_time(times, line(states, targets))
            teacher = learner
    ends = {chain: b.transitions(chain, 100_000)[1][:, -1] for chain in ("forward", "backward")}
    assert float(ends["forward"].mean()) == pytest.approx(0, abs=0.15)
    assert float(ends["forward"].std()) == pytest.approx(np.sqrt(3), rel=0.1)
    assert float(ends["backward"].mean()) == pytest.approx(-1, abs=0.05)
    blurred = np.sqrt(0.6**2 + 2 * 0.05)  # paths for training do end with noise
    assert float(ends["backward"].std()) == pytest.approx(blurred, rel=0.05)


def test_networks_learn_by_turns_each_from_the_other_chain():
    b = bridge(np.linspace(-1, 1, 50), n_updates=2, batch_size=100)
    taught = []
    simulate = b.transitions
    b.transitions = lambda chain, n: taught.append(chain) or simulate(chain, n)

    def weights(net):
        return torch.cat([p.detach().flatten().clone() for p in net.parameters()])

    moved = []
    for _ in range(8):
        before = [weights(net) for net in b.learners]
        b.step(None)
        now = [weights(net) for net in b.learners]
        moved.append([not torch.equal(old, new) for old, new in zip(before, now)])
    assert taught == ["reference", "backward", "forward", "backward"]
    assert moved == ([[True, False]] * 2 + [[False, True]] * 2) * 2


def test_rows_are_drawn_by_weight():
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([-5.0, 0.0, 5.0])
    b = bridge(y, weight=np.array([1.0, 3.0, 4.0]), x=x, step_size=1e-6, n_steps=1)
    drawn, states, _, _ = b.transitions("reference", 8000)
    counts = [int((drawn[:, 0] == v).sum()) for v in (0, 1, 2)]
    np.testing.assert_allclose(counts, [1000, 3000, 4000], atol=2)
    assert torch.allclose(states[:, 0], 5 * (drawn[:, 0] - 1), atol=0.05)


@pytest.fixture(scope="module")
def learned():
    data = datasets.load("tanh-plus-gamma", n_train=1000)
    settings = {"n_iterations": 4, "n_updates": 120, "batch_size": 500, "learning_rate": 3e-3}
    settings |= {"hidden_widths": (32, 32), "n_paths": 128}
    held_out = (data.val.X[:100], data.val.y[:100])
    model = CDSB(**settings, random_state=0, verbose=0).fit(*data.train, eval_set=held_out)
    return data, model


def test_it_learns_a_conditional_distribution(learned):
    data, model = learned
    X, y = data.test.X[:300], data.test.y[:300]
    assert model.score(X, y) > 0.55  # the truth reaches 0.7, the marginal 0
    exact = data.truth.quantile(X, [0.1, 0.5, 0.9])
    assert np.abs(model.predict_quantiles(X, [0.1, 0.5, 0.9]) - exact).mean() < 0.15
    spread = model.predict_dist(X).std() / 0.3
    assert 0.7 < spread.mean() < 1.3


def test_the_forward_chain_comes_to_end_in_the_prior(learned):
    data, model = learned
    table = Grouped.of(
        model.covariate_encoder_.encode(data.train.X.to_numpy()),
        model.response_encoder_.encode(data.train.y),
    )
    b = Bridge(model, table, model.forward_, model.backward_, torch.Generator().manual_seed(0))
    prior = norm.ppf((np.arange(5000) + 0.5) / 5000) * np.sqrt(model.reference_variance)

    def distance(chain):
        x, states, _, _ = b.transitions(chain, 20_000)
        sides = [states[x[:, 0] < 0, -1], states[x[:, 0] > 0, -1]]  # whatever the covariates
        return np.mean([wasserstein_distance(side, prior) for side in sides])

    assert distance("forward") < 0.5 * distance("reference")


def test_the_history_tells_every_half_iteration_and_the_crps_of_an_eval_set(learned):
    data, model = learned
    assert [record["epoch"] for record in model.history_] == list(range(1, 9))
    crps = model.predict_dist(data.val.X[:100]).crps(data.val.y[:100]).mean()
    last = model.history_[-1]["validation"] * data.train.y.std()
    assert last == pytest.approx(crps, rel=0.03)
    assert last < 0.9 * model.history_[0]["validation"] * data.train.y.std()


class AffineDrift:
    """The drift x + k - k y / 2, in place of a network."""

    embedding = torch.zeros(1)

    def __call__(self, x, y, k):
        return x + k - k * y / 2


def test_answers_are_end_points_of_the_backward_chain_without_the_last_noise():
    X, y = np.array([[-1.0], [1.0], [-1.0], [1.0]]), np.array([0.0, 1.0, 2.0, 3.0])
    model = CDSB(**TINY | {"n_paths": 4096, "reference_variance": 4.0}, random_state=0).fit(X, y)
    model.backward_ = AffineDrift()
    alpha = np.linspace(0.05, 0.95, 19)
    for x in (-1.0, 1.0):
        mean, variance = 0.0, 4.0
        for k in (4, 3, 2, 1):
            mean += 0.1 * (x + k - k * mean / 2)
            variance = (1 - 0.1 * k / 2) ** 2 * variance + (0.2 if k > 1 else 0.0)
        exact = norm.ppf(alpha, mean, np.sqrt(variance)) / 2  # response_scale
        found = model.predict_quantiles([[x]], alpha)[0]
        np.testing.assert_allclose(found, y.mean() + y.std() * exact, atol=0.02)


def test_all_covariates_share_the_noise_so_answers_are_smooth_in_x(learned):
    _, model = learned
    x = np.linspace(0.5, 0.6, 11)[:, None]
    q = model.predict_quantiles(x, np.linspace(0, 1, 21))
    assert np.abs(np.diff(q, n=2, axis=0)).max() < 0.01
    assert np.abs(np.diff(q, axis=0)).max() > 0


def test_training_leaves_global_random_state_alone_and_ignores_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + rng.normal(size=60)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = CDSB(**TINY, random_state=5).fit(X, y)
    answer = first.predict(X)
    assert torch.equal(before[0], torch.get_rng_state())
    np.testing.assert_array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(99)
    np.testing.assert_array_equal(CDSB(**TINY, random_state=5).fit(X, y).predict(X), answer)
    other = CDSB(**TINY, random_state=6).fit(X, y)
    assert other.noise_seed_ != first.noise_seed_
    assert not np.array_equal(other.predict(X), answer)


def test_the_published_settings_are_the_defaults():
    expected = {
        "n_iterations": 10, "reference_variance": 10.0, "n_steps": 10, "step_size": 0.1,
        "learning_rate": 1e-4, "batch_size": 5000, "n_updates": 500, "hidden_widths": (128, 128),
    }  # fmt: skip
    found = CDSB().get_params()
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"reference_variance": 0}, "reference_variance must be a positive number"),
        ({"step_size": float("inf")}, "step_size must be a positive number"),
        ({"response_scale": "2"}, "response_scale must be a positive number"),
        ({"n_iterations": 0}, "n_iterations must be an integer of at least 1"),
        ({"n_paths": 100}, "n_paths must be a power of 2"),
        ({"hidden_widths": ()}, "hidden_widths must be a sequence of positive integers"),
        ({"device": "gpu"}, "device must be 'auto', 'cpu', 'cuda' or 'mps'"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        CDSB(**TINY | setting).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 3.0])
