"""Our Adam against PyTorch's."""

from __future__ import annotations

import torch

from gentle.learners import restored, state_of
from gentle.optim import Adam


def trajectory(make, step, n_steps=50):
    source = torch.Generator().manual_seed(0)
    weight = torch.randn(3, 4, 5, generator=source, requires_grad=True)
    bias = torch.randn(3, 1, 5, generator=source, requires_grad=True)
    target = torch.randn(3, 7, 5, generator=source)
    x = torch.randn(3, 7, 4, generator=source)
    optimiser = make([weight, bias])
    for number in range(n_steps):
        weight.grad = bias.grad = None
        (torch.baddbmm(bias, x, weight) - target).square().sum().backward()
        step(optimiser, 0.1 / (1 + number))
    return weight.detach(), bias.detach()


def test_it_is_what_pytorch_does():
    def their_step(optimiser, rate):
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.step()

    expected = trajectory(torch.optim.Adam, their_step)
    for ours, other in zip(trajectory(Adam, Adam.step), expected):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-6)


def test_a_state_is_a_way_back():
    weight = torch.ones(3, requires_grad=True)
    optimiser = Adam([weight])

    def go_on():
        for _ in range(5):
            optimiser.zero_grad()
            weight.pow(4).sum().backward()
            optimiser.step(0.1)
        return weight.detach().clone()

    go_on()
    before, state = weight.detach().clone(), state_of(optimiser)
    expected = go_on()
    with torch.no_grad():
        weight.copy_(before)
    restored(optimiser, state)
    assert torch.equal(go_on(), expected)


def test_what_has_no_gradient_stays():
    still, moving = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    moving.sum().backward()
    Adam([still, moving]).step(0.1)
    assert torch.equal(still.detach(), torch.ones(2))
    assert (moving < 1).all()
