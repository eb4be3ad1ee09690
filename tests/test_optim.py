import math

import numpy as np
import pytest
import torch

from gentle.optim import DoublySmoothedGDA


def scalar(value):
    return torch.tensor([value], dtype=torch.float64, requires_grad=True)


def optimiser(theta, phi, inner="sgd", **changes):
    settings = {
        "lr_generator": 0.05,
        "lr_potential": 0.05,
        "anchor_generator": 3.0,
        "anchor_potential": 2.0,
        "follow_generator": 0.5,
        "follow_potential": 0.7,
    }
    return DoublySmoothedGDA([theta], [phi], inner=inner, **(settings | changes))


def play(f, theta, phi, opt, n_steps):
    """f(θ, φ) by autograd, the φ-gradient at whatever θ is then."""

    def gradient(of):
        (g,) = torch.autograd.grad(f(theta, phi), of)
        of.grad = g

    for _ in range(n_steps):
        opt.step(lambda: gradient(theta), lambda: gradient(phi))
    return math.hypot(theta.item(), phi.item())


def product(theta, phi):
    return (theta * phi).sum()


def test_smoothed_steps_converge_where_plain_ones_circle():
    def distance(n_steps, **changes):
        theta, phi = scalar(1.0), scalar(1.0)
        opt = optimiser(theta, phi, **changes)
        for _ in range(n_steps):  # the gradients of θφ
            opt.step(
                lambda: setattr(theta, "grad", phi.detach().clone()),
                lambda: setattr(phi, "grad", theta.detach().clone()),
            )
        return math.hypot(theta.item(), phi.item())

    assert distance(5000) == pytest.approx(0.26, abs=0.01)
    assert distance(20_000) == pytest.approx(0.002, abs=0.0005)
    assert distance(5000, anchor_generator=0.0, anchor_potential=0.0) > 0.9


def test_a_step_is_algorithm_2_in_its_order():
    a, b, r1, r2, gamma, delta = 0.05, 0.03, 3.0, 2.0, 0.5, 0.7
    t, f, p, q = 1.0, -0.5, 1.0, -0.5
    theta, phi = scalar(t), scalar(f)
    opt = optimiser(theta, phi, lr_potential=b)

    def loss(theta, phi):
        return (theta.square() * phi + torch.sin(theta) - phi.square()).sum()

    for _ in range(30):
        t = t - a * (2 * t * f + math.cos(t) + r1 * (t - p))
        f = f + b * (t * t - 2 * f - r2 * (f - q))  # at the new θ
        p, q = p + gamma * (t - p), q + delta * (f - q)
    play(loss, theta, phi, opt, 30)
    np.testing.assert_allclose([theta.item(), phi.item()], [t, f], rtol=1e-12)
    np.testing.assert_allclose(opt.generator.anchor[0].item(), p, rtol=1e-12)
    np.testing.assert_allclose(opt.potential.anchor[0].item(), q, rtol=1e-12)


def test_adam_sees_the_gradient_with_its_anchor():
    theta, phi = scalar(1.0), scalar(1.0)
    twin = scalar(1.0)
    opt = optimiser(theta, phi, inner="adam")
    adam, anchor = torch.optim.Adam([twin], lr=0.05), 1.0
    for _ in range(20):
        partner = phi.item()
        opt.step(
            lambda partner=partner: setattr(theta, "grad", torch.full_like(theta, partner)),
            lambda: setattr(phi, "grad", theta.detach().clone()),
        )
        twin.grad = partner + 3.0 * (twin.detach() - anchor)
        adam.step()
        anchor += 0.5 * (twin.item() - anchor)
        assert theta.item() == pytest.approx(twin.item(), rel=1e-12)


@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_a_restored_state_goes_on_as_if_never_stopped(inner):
    theta, phi = scalar(1.0), scalar(2.0)
    opt = optimiser(theta, phi, inner)
    play(product, theta, phi, opt, 7)
    theta2, phi2 = scalar(theta.item()), scalar(phi.item())
    opt2 = optimiser(theta2, phi2, inner)
    opt2.load_state_dict(opt.state_dict())
    assert play(product, theta, phi, opt, 5) == play(product, theta2, phi2, opt2, 5)


def test_a_missing_second_player_is_fine():
    theta = scalar(4.0)
    opt = DoublySmoothedGDA(
        [theta],
        [],
        lr_generator=0.1,
        lr_potential=0.1,
        anchor_generator=1.0,
        anchor_potential=1.0,
        follow_generator=0.5,
        follow_potential=0.5,
        inner="sgd",
    )
    for _ in range(200):
        opt.step(lambda: setattr(theta, "grad", 2 * theta.detach()), lambda: pytest.fail("called"))
    assert abs(theta.item()) < 1e-6


def test_unknown_inner_steps_are_refused():
    with pytest.raises(ValueError, match="'adam' or 'sgd'"):
        optimiser(scalar(1.0), scalar(1.0), inner="lion")
