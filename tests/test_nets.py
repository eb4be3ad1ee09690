"""Networks that are monotone by construction, whatever their weights."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from gentle.nets import MonotoneMap, MonotoneNet, slid


def net(n_members=3, n_inputs=4, widths=(16, 16), seed=0, **options):
    source = torch.Generator().manual_seed(seed)
    return MonotoneNet(n_members, n_inputs, widths, generator=source, **options)


def inputs(n_members=3, n_rows=50, n_inputs=4, seed=1):
    source = torch.Generator().manual_seed(seed)
    return torch.randn(n_members, n_rows, n_inputs, generator=source)


@given(st.integers(0, 10_000), st.floats(0.01, 20), st.floats(0.01, 100))
def test_values_never_fall_whatever_the_weights_and_inputs(seed, weight_scale, input_scale):
    made = net(seed=seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=weight_scale, generator=torch.Generator().manual_seed(seed))
    values = made(inputs(seed=seed) * input_scale).detach()
    assert values.shape == (3, 50, len(made.knots))
    assert torch.isfinite(values).all()
    # Differences are taken from the middle, so the last bits of large sums may fall.
    slack = 1e-5 * values.abs().amax()
    assert (values.diff(dim=2) >= -slack).all()


def test_it_begins_about_as_a_standard_normal_distribution():
    made = net(8, 6, (128, 128, 128))
    values = made(inputs(8, 400, 6)).detach()
    rise = values.diff(dim=2) / made.knots.diff()
    assert 0.8 < float(rise.mean()) < 1.3
    assert 0.3 < float(rise.quantile(0.05)) < float(rise.quantile(0.95)) < 2
    middle = values[:, :, len(made.knots) // 2]
    assert abs(float(middle.mean())) < 0.3
    quantiles = (values - middle[..., None]).mean(dim=(0, 1))
    np.testing.assert_allclose(quantiles, made.knots, atol=0.5)


def test_members_do_not_know_of_each_other():
    made, x = net(), inputs()
    before = made(x).detach()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter[1] += 0.1
    after = made(x).detach()
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not torch.equal(after[1], before[1])
    moved = x.clone()
    moved[2] += 1
    assert torch.equal(made(moved).detach()[:2], after[:2])
    made(x)[0].sum().backward()
    assert all(bool((p.grad[1:] == 0).all()) for p in made.parameters())


def test_the_source_of_weights_is_the_one_given_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    one, two, other = net(seed=0), net(seed=0), net(seed=1)
    assert torch.equal(before, torch.get_rng_state())
    for a, b, c in zip(one.parameters(), two.parameters(), other.parameters()):
        assert torch.equal(a, b)
        assert a.shape == c.shape
    assert not torch.equal(one.weights[0], other.weights[0])


@pytest.mark.parametrize("widths", [(8,), (16, 16)])
def test_the_map_is_the_network_at_its_knots_and_straight_between_in_normal_scores(widths):
    made = MonotoneMap(2, widths, torch.Generator().manual_seed(0)).double()
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = MonotoneNet.forward(made, x[None])[0].detach()
    knots = made.knots.double()
    levels = torch.special.ndtr(knots).expand(5, -1)
    np.testing.assert_allclose(made(x, levels).detach(), values, atol=1e-6)
    z = (knots[1:] + knots[:-1]) / 2
    between = made(x, torch.special.ndtr(z).expand(5, -1)).detach()
    np.testing.assert_allclose(between, (values[:, 1:] + values[:, :-1]) / 2, atol=1e-6)


def test_the_map_goes_on_beyond_its_knots_and_is_finite_at_both_ends():
    made = MonotoneMap(2, (8,), torch.Generator().manual_seed(0))
    x = torch.zeros(1, 2)
    u = torch.tensor([[0.0, 1e-5, 1e-4, 0.5, 1 - 1e-4, 1 - 1e-5, 1.0]])
    values = made(x, u).detach()[0]
    assert torch.isfinite(values).all()
    assert (values.diff() > 0).all()
    assert norm.cdf(float(made.knots[-1])) < 1 - 1e-4
    assert (made(x, u.flip(1)).detach()[0] == values.flip(0)).all()


def test_some_of_the_maps_answer_as_before_and_go_their_own_way():
    net = MonotoneNet(4, 3, (8, 8), generator=torch.Generator().manual_seed(0))
    x = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1))
    some = net.taken([2, 0])
    torch.testing.assert_close(some(x[[2, 0]]), net(x)[[2, 0]])
    before = net(x).detach().clone()
    with torch.no_grad():
        some.weights[0].zero_()
    assert torch.equal(net(x), before)


def test_maps_without_inputs_that_they_ignored_answer_as_before():
    net = MonotoneNet(2, 5, (8,), generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(1))
    x[:, :, 1:3] = 0
    fewer = net.without_inputs(slice(1, 3))
    torch.testing.assert_close(fewer(x[:, :, [0, 3, 4]]), net(x))
    assert net.weights[0].shape[1] == 5


@given(
    st.lists(st.floats(0, 10), min_size=2, max_size=9), st.floats(-12, 12, allow_subnormal=False)
)
def test_increments_slide_as_a_straight_line_between_them_would(rise, by):
    n = len(rise)
    expected = np.interp(np.arange(n) + by, np.arange(n), rise)  # the outermost ones go on
    found = slid(torch.tensor(rise, dtype=torch.float64), torch.tensor([by], dtype=torch.float64))
    np.testing.assert_allclose(found, expected, atol=1e-9)


def with_weights_that_slide(slides):
    made = net(slides=slides)
    with torch.no_grad():
        made.weights[-1][..., -1].normal_(generator=torch.Generator().manual_seed(3))
    return made


def test_nothing_slides_at_first_and_only_those_that_may_do_later():
    plain, x = net(), inputs()
    made = net(slides=[True, False, True])
    assert torch.equal(made(x), plain(x))
    made = with_weights_that_slide([True, False, True])
    assert torch.equal(made(x)[1], plain(x)[1])
    assert not torch.allclose(made(x)[0], plain(x)[0])
    middle = len(made.knots) // 2
    torch.testing.assert_close(made(x)[..., middle], plain(x)[..., middle])
    made.let_slide([False, False, True])
    assert torch.equal(made(x)[:2], plain(x)[:2])


def test_an_output_for_sliding_learns_at_once():
    made = net(slides=[True, False, False])
    made(inputs()).square().sum().backward()
    assert made.weights[-1].grad[0, :, -1].abs().sum() > 0
    assert made.weights[-1].grad[1:, :, -1].abs().sum() == 0


def test_what_slides_is_taken_along_and_left_out_where_nobody_needs_it():
    made, x = with_weights_that_slide([True, False, True]), inputs()
    values = made(x).detach()
    torch.testing.assert_close(made.taken([2, 1])(x[[2, 1]]), values[[2, 1]])
    assert made.plain() is made
    alone = made.taken([1]).plain()
    assert torch.equal(alone(x[[1]]), values[[1]])
    assert alone.weights[-1].shape == net().weights[-1][[1]].shape


def test_rises_add_up_to_the_values_of_members_that_slide():
    made, x = with_weights_that_slide([True, True, False]), inputs()[0]
    values, everything = made(x.expand(3, -1, -1)).detach(), torch.ones(4, dtype=bool)
    for members, slides in (([0, 1], True), ([2], False)):
        with torch.no_grad():
            rises = made.rises(x, made.layers(members, everything), slides)
        climb = (rises[..., 1:] * (made.knots[1] - made.knots[0])).cumsum(-1)
        assert rises.shape == (len(members), 50, 65)
        torch.testing.assert_close(rises[..., 0], values[members][..., 32])
        torch.testing.assert_close(climb, values[members][..., 1:] - values[members][..., :1])
