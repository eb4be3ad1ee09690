import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gaussian_kde, norm

from gentle.density import bandwidths, kernel_cdf, kernel_quantile


def grouped(seed=0, counts=(1, 5, 2, 9)):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(counts)), counts)
    y, weight = rng.normal(size=len(group)) * 3, rng.random(len(group)) + 0.1
    share = weight / np.bincount(group, weight)[group]
    tensors = [torch.tensor(a) for a in (y, share, group)]
    return *tensors, len(counts)


@given(st.integers(0, 10_000))
def test_kernel_cdf_is_the_mixture_of_normals(seed):
    y, share, group, n = grouped(seed)
    h = torch.rand(n, dtype=torch.float64) + 0.05
    t = torch.randn(n, 6, dtype=torch.float64) * 4
    expected = np.zeros((n, 6))
    for k, i in enumerate(group):
        expected[i] += float(share[k]) * norm.cdf(t[i], loc=y[k], scale=h[i])
    np.testing.assert_allclose(kernel_cdf(t, y, share, group, h), expected, atol=1e-12)


def test_kernel_cdf_is_the_integral_of_scipys_density():
    y, share, group, n = grouped(counts=(7, 12))
    h = bandwidths("scott", y, share, group, n)
    for i in range(n):
        mine = group == i
        kde = gaussian_kde(y[mine].numpy(), bw_method="scott", weights=share[mine].numpy())
        t = torch.linspace(-9, 9, 15, dtype=torch.float64)
        expected = [kde.integrate_box_1d(-np.inf, float(s)) for s in t]
        np.testing.assert_allclose(
            kernel_cdf(t.expand(n, -1), y, share, group, h)[i], expected, atol=1e-9
        )


@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 5, 2, 9), (4,)])
def test_kernel_quantile_inverts_kernel_cdf(counts):
    y, share, group, n = grouped(counts=counts)
    h = torch.full((n,), 0.3, dtype=torch.float64)
    u = torch.tensor([1e-6, 0.01, 0.3, 0.5, 0.9, 1 - 1e-6], dtype=torch.float64).expand(n, -1)
    t = kernel_quantile(u, y, share, group, h)
    np.testing.assert_allclose(kernel_cdf(t, y, share, group, h), u, atol=1e-9)


def test_the_order_of_groups_is_respected():
    y, share, h = torch.tensor([0.0, 5.0]), torch.ones(2), torch.ones(2)
    t = torch.tensor([[0.0], [5.0]])
    swapped = kernel_cdf(t, y, share, torch.tensor([1, 0]), h)
    np.testing.assert_allclose(swapped, norm.cdf([[-5.0], [5.0]]), atol=1e-6)


def test_kernel_cdf_is_differentiated_correctly():
    y, share, group, n = grouped()
    h = torch.full((n,), 0.3, dtype=torch.float64)
    t = torch.randn(n, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: kernel_cdf(t, y, share, group, h), (t,))


@pytest.mark.parametrize("rule", ["scott", "silverman"])
def test_rules_are_scipys_where_a_covariate_has_several_responses(rule):
    y, share, group, n = grouped(counts=(4, 30, 11))
    found = bandwidths(rule, y, share, group, n)
    for i in range(n):
        mine = group == i
        kde = gaussian_kde(y[mine].numpy(), bw_method=rule, weights=share[mine].numpy())
        np.testing.assert_allclose(found[i], np.sqrt(kde.covariance[0, 0]), rtol=1e-9)


def test_single_responses_and_equal_ones_use_the_pooled_deviation():
    y = torch.tensor([5.0, 1.0, 3.0, 2.0, 2.0, 10.0, 14.0], dtype=torch.float64)
    group = torch.tensor([0, 1, 1, 2, 2, 3, 3])
    share = torch.tensor([1.0] + [0.5] * 6, dtype=torch.float64)
    pooled = np.sqrt((2 + 0 + 8) / 3)  # sums of squares over degrees of freedom, within covariates
    h = bandwidths("scott", y, share, group, 4)
    np.testing.assert_allclose(h[0], pooled)
    np.testing.assert_allclose(h[2], pooled * 2 ** (-1 / 5))
    np.testing.assert_allclose(h[1], np.sqrt(2) * 2 ** (-1 / 5))


def test_without_any_repetition_the_deviation_of_all_responses_is_used():
    y, group = torch.tensor([1.0, 2.0, 4.0, 9.0]), torch.arange(4)
    h = bandwidths("scott", y, torch.ones(4), group, 4)
    np.testing.assert_allclose(h, np.std([1, 2, 4, 9]), rtol=1e-6)


def test_a_number_is_the_bandwidth_of_everyone():
    y, share, group, n = grouped()
    assert bandwidths(0.3, y, share, group, n).tolist() == [0.3] * n


@pytest.mark.parametrize("rule", [0.0, -1.0, float("nan"), float("inf"), "botev"])
def test_impossible_bandwidths_are_refused(rule):
    with pytest.raises(ValueError, match="bandwidth must be a positive number"):
        bandwidths(rule, *grouped())
