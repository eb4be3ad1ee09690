"""The first layer of networks in training, and which inputs they find to matter."""

import numpy as np
import pytest
import torch

from gentle import GENTLE
from gentle.models.first_layer import EmphasisNet, FirstLayer
from gentle.models.inputs import Inputs
from gentle.nets import MonotoneNet


def made(free=(True, False, True)):
    source = torch.Generator().manual_seed(0)
    plain = MonotoneNet(2, 3, (8, 8), generator=source)
    return EmphasisNet(plain, np.array(free))


@pytest.mark.parametrize("emphasised", [False, True])
def test_the_first_layer_by_kinds_is_the_layer_with_zeros_and_has_its_gradients(emphasised):
    source, views = torch.Generator().manual_seed(0), [slice(0, 2), slice(1, 5)]
    weight, bias = (torch.randn(6, n, 3, generator=source).double() for n in (5, 1))
    factor = torch.rand(6, 5, 1, generator=source).double() if emphasised else None
    given = [one.requires_grad_() for one in (weight, bias, factor) if one is not None]
    x = torch.randn(6, 7, 5, generator=source).double()
    seen = torch.zeros(6, 1, 5).double()
    for kind, view in enumerate(views):
        seen[kind::2, :, view] = 1
    expected = torch.baddbmm(bias, x * seen, weight if factor is None else weight * factor)
    by_kinds = (x[k::2, :, v] for k, v in enumerate(views))
    found = FirstLayer.apply(weight, bias, factor, views, *by_kinds)
    torch.testing.assert_close(found, expected)
    to = torch.randn(6, 7, 3, generator=source).double()
    for ours, theirs in zip(
        *(torch.autograd.grad((y * to).sum(), given) for y in (found, expected))
    ):
        torch.testing.assert_close(ours, theirs)


def test_nothing_is_emphasised_at_first():
    plain = MonotoneNet(2, 3, (8, 8), generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(made()(x), plain(x))


def test_emphasis_is_a_scale_of_free_inputs():
    net = made()
    with torch.no_grad():
        net.emphasis.fill_(0.25)  # weights are doubled where the input is free
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    scaled = x * torch.tensor([2.0, 1.0, 2.0])
    torch.testing.assert_close(net(x), made()(scaled))


def test_plain_networks_answer_the_same_and_draw_nothing():
    net = made()
    with torch.no_grad():
        net.emphasis.normal_(generator=torch.Generator().manual_seed(2))
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1))
    before = torch.random.get_rng_state()
    plain = net.plain()
    assert torch.equal(before, torch.random.get_rng_state())
    assert type(plain) is MonotoneNet
    torch.testing.assert_close(plain(x), net(x))
    some = net.taken([1])
    torch.testing.assert_close(some(x[1:]), net(x)[1:])


def test_inputs_with_two_values_are_not_varied():
    x = np.column_stack([np.tile([0.0, 1.0], 20), np.arange(40.0), np.ones(40)])
    inputs = Inputs.of(x, np.ones(40))
    varied = inputs.are_varied
    for view in ("straight", "scores"):
        assert varied[inputs.view(view)].tolist() == [False, True, False]
    assert varied[inputs.view("pieces")].all()


def test_useless_columns_fade(monkeypatch):
    kept, plain = [], EmphasisNet.plain
    monkeypatch.setattr(EmphasisNet, "plain", lambda self: kept.append(self) or plain(self))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 6))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=500)
    model = GENTLE(n_steps=600, n_trees=0, boosting=False, random_state=0, verbose=0).fit(X, y)
    factor = kept[0].factor.detach()
    used = (factor - 1).abs().sum((0, 2)) > 0  # by networks of some kind
    values = model.ensemble_.inputs.view("straight")
    assert used[values].all()
    learned = factor[(factor[:, values, 0] != 1).all(1)][:, values].mean((0, 2))
    assert learned[0] > 1.2 * learned[1:].max()
    assert type(model.ensemble_.net) is MonotoneNet
