import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp, wasserstein_distance

from gentle.transport import ks, self_transport, semidual, soft_c_transform, wasserstein

NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False)
WEIGHTS = st.integers(0, 5)


@st.composite
def weighted_sample(draw):
    n = draw(st.integers(1, 12))
    values = draw(arrays(np.float64, n, elements=st.one_of(NUMBERS, st.integers(-2, 2))))
    weights = draw(arrays(np.float64, n, elements=WEIGHTS))
    weights[draw(st.integers(0, n - 1))] += 1
    return values, weights


@given(weighted_sample(), weighted_sample())
def test_w1_is_scipys(a, b):
    expected = wasserstein_distance(a[0], b[0], a[1], b[1])
    np.testing.assert_allclose(wasserstein(a[0], b[0], a[1], b[1]), expected, rtol=1e-9, atol=1e-9)


@given(weighted_sample(), weighted_sample(), st.sampled_from([1, 2, 3]))
def test_wp_to_the_p_is_the_cost_of_pots_exact_plan(a, b, p):
    weights = [w / w.sum() for _, w in (a, b)]
    # Zero weights are left out for POT, which does not take them on the line.
    (x, wx), (y, wy) = ((v[w > 0], w[w > 0]) for v, w in ((a[0], weights[0]), (b[0], weights[1])))
    plan = ot.emd_1d(x, y, wx, wy, metric="minkowski", p=p)
    expected = (plan * np.abs(x[:, None] - y[None]) ** p).sum()
    np.testing.assert_allclose(
        wasserstein(*a[:1], *b[:1], a[1], b[1], p=p) ** p, expected, rtol=1e-6, atol=1e-6
    )


@given(weighted_sample(), weighted_sample())
def test_ks_is_the_largest_gap_between_the_distribution_functions(a, b):
    points = np.concatenate([a[0], b[0]])
    cdfs = [((v[None] <= points[:, None]) * w / w.sum()).sum(axis=1) for v, w in (a, b)]
    np.testing.assert_allclose(
        ks(a[0], b[0], a[1], b[1]), np.abs(cdfs[0] - cdfs[1]).max(), atol=1e-12
    )


@given(weighted_sample(), weighted_sample())
def test_a_weight_of_k_is_k_copies(a, b):
    copies = np.repeat(a[0], a[1].astype(int))
    for distance in (wasserstein, ks):
        weighted = distance(a[0], b[0], a[1], b[1])
        np.testing.assert_allclose(
            weighted, distance(copies, b[0], None, b[1]), rtol=1e-9, atol=1e-9
        )


def test_ks_is_scipys_on_large_samples_with_ties():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 30, 1000), rng.integers(3, 30, 700)
    np.testing.assert_allclose(ks(a, b), ks_2samp(a, b).statistic, atol=1e-12)


def test_batches_are_their_rows():
    rng = np.random.default_rng(1)
    a, b, weights = rng.normal(size=(4, 3, 50)), rng.normal(size=(3, 20)), rng.random((3, 20))
    for distance in (wasserstein, ks):
        whole = distance(a, b, None, weights)
        assert whole.shape == (4, 3)
        single = [[distance(a[i, j], b[j], None, weights[j]) for j in range(3)] for i in range(4)]
        np.testing.assert_allclose(whole, single, rtol=1e-12)


def test_a_weight_of_zero_removes_a_point_however_far_it_lies():
    values, weights = [0.0] * 10 + [1e15], [0.1] * 10 + [0.0]
    for p in (1, 2):
        assert wasserstein(values, [0.0], weights, p=p) == 0
    with pytest.raises(ValueError, match="p must be at least 1"):
        wasserstein([0.0], [1.0], p=0.5)


@pytest.mark.parametrize("distance", [wasserstein, ks])
@pytest.mark.parametrize("weights", [[-1.0, 2.0], [0.0, 0.0], [np.nan, 1.0]])
def test_impossible_weights_are_refused(distance, weights):
    with pytest.raises(ValueError, match="weights must be finite and non-negative"):
        distance([0.0, 1.0], [0.0, 1.0], weights)
    with pytest.raises(ValueError, match="empty"):
        distance([], [0.0])


def draws(n=9, m=7, scale=1.0, seed=0):
    torch.manual_seed(seed)
    y = torch.randn(n, dtype=torch.float64) * scale
    z = torch.randn(m, dtype=torch.float64) * scale + 0.5
    return y, z


def best_potential(y, z, epsilon, n_iterations=20_000):
    """Sinkhorn: the transform of the transform, until it no longer moves."""
    v = torch.zeros_like(z)
    for _ in range(n_iterations):
        new = soft_c_transform(soft_c_transform(v, z, y, epsilon), y, z, epsilon)
        if (new - v).abs().max() < 1e-13:
            break
        v = new
    return v


@pytest.mark.parametrize("epsilon", [0.03, 0.3, 1.0, 30.0])
def test_semidual_maximum_is_the_entropic_cost(epsilon):
    y, z = draws()
    cost = (y[:, None] - z[None]).square().numpy()
    expected = ot.solve(cost, reg=epsilon, max_iter=200_000, tol=1e-12).value
    v = best_potential(y, z, epsilon)
    np.testing.assert_allclose(semidual(v, z, y, epsilon), expected, rtol=1e-6)


@pytest.mark.parametrize("epsilon", [0.03, 1.0, 30.0])
def test_every_potential_stays_below_the_entropic_cost(epsilon):
    y, z = draws()
    best = semidual(best_potential(y, z, epsilon), z, y, epsilon)
    for seed in range(20):
        torch.manual_seed(seed)
        v = torch.randn_like(z) * 10 ** (seed % 4 - 2)
        assert semidual(v, z, y, epsilon) <= best + 1e-9


def test_a_constant_added_to_the_potential_changes_nothing():
    y, z = draws()
    v = torch.sin(z)
    torch.testing.assert_close(semidual(v + 3, z, y, 0.5), semidual(v, z, y, 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tiny_epsilon_gives_the_plain_transform_and_huge_epsilon_the_mean(dtype):
    y, z = (t.to(dtype) * 100 for t in draws())
    v = z.sin() * 50
    score = (y[:, None] - z[None]).square() - v
    for epsilon in (1e-30, 1e-12, 1e-6):
        found, bound = soft_c_transform(v, z, y, epsilon), epsilon * np.log(len(z))
        torch.testing.assert_close(found, score.min(dim=1).values, rtol=1e-6, atol=bound)
    for epsilon in (1e12, 1e20):
        torch.testing.assert_close(soft_c_transform(v, z, y, epsilon), score.mean(dim=1))


@pytest.mark.parametrize("epsilon", [1e-12, 1e-3, 1.0, 1e12])
def test_the_transform_has_finite_gradients_for_every_epsilon(epsilon):
    y, z = (t.float() * 100 for t in draws())
    v = (z.sin() * 50).requires_grad_()
    z, y = z.requires_grad_(), y.requires_grad_()
    for gradient in torch.autograd.grad(semidual(v, z, y, epsilon), [v, z, y]):
        assert torch.isfinite(gradient).all()


def test_the_semidual_is_differentiated_correctly_in_all_arguments():
    y, z = draws(4, 3)
    v = torch.sin(z).requires_grad_()
    args = (v, z.requires_grad_(), y.requires_grad_())
    assert torch.autograd.gradcheck(lambda *a: semidual(*a, 0.7), args)


def test_equal_distributions_have_a_positive_entropic_cost():
    """The bias that shrinks the generated spread: facts about the plain entropic regulariser."""
    y, _ = draws(50)
    narrow, wide = (semidual(best_potential(s, s, 1.0), s, s, 1.0) for s in (y * 0.1, y))
    assert 0 < narrow < wide


@pytest.mark.parametrize(("epsilon", "n_steps"), [(0.1, 2000), (1.0, 20), (30.0, 20)])
def test_transport_to_itself_is_the_entropic_cost(epsilon, n_steps):
    y, _ = draws(12)
    cost = (y[:, None] - y[None]).square().numpy()
    expected = ot.solve(cost, reg=epsilon, max_iter=200_000, tol=1e-12).value
    np.testing.assert_allclose(self_transport(y, epsilon, n_steps), expected, rtol=1e-5)
    batch = torch.stack([y, y * 0.5])
    found = self_transport(batch, epsilon, n_steps)
    torch.testing.assert_close(found[0], self_transport(y, epsilon, n_steps))


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_transport_to_itself_is_differentiated_without_its_steps(epsilon):
    y = draws(6)[0].requires_grad_()
    (gradient,) = torch.autograd.grad(self_transport(y, epsilon, 500), y)
    for i in range(len(y)):
        values = []
        for step in (1e-5, -1e-5):
            moved = y.detach().clone()
            moved[i] += step
            values.append(float(self_transport(moved, epsilon, 500)))
        assert float(gradient[i]) == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_the_sinkhorn_divergence_is_zero_for_equal_samples_only(epsilon):
    y, _ = draws(20)

    def divergence(a, b):
        cost = semidual(best_potential(a, b, epsilon), b, a, epsilon)
        return float(cost - (self_transport(a, epsilon, 200) + self_transport(b, epsilon, 200)) / 2)

    assert divergence(y, y) == pytest.approx(0, abs=1e-9)
    assert divergence(y, y.flip(0)) == pytest.approx(0, abs=1e-9)
    assert divergence(y, 0.5 * y) > 1e-4
    assert divergence(y, y + 0.3) == pytest.approx(0.09, rel=1e-6)  # a shift is its square


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan")])
def test_epsilon_must_be_positive(epsilon):
    y, z = draws()
    with pytest.raises(ValueError, match="epsilon must be positive"):
        soft_c_transform(z, z, y, epsilon)
