"""The fast ways to an answer give what the straightforward ones give."""

import numpy as np
import pytest
import torch

from gentle.models.evaluation import Kind, at_levels, evaluated, mixed, visible
from gentle.models.inputs import Inputs
from gentle.models.nodes import Trees
from gentle.nets import MonotoneNet
from gentle.responses import ResponseEncoder, translated

RANKS, VALUES = Kind(0, ("scores",)), Kind(1, ("straight",))
BOTH = Kind(0, ("scores", "pieces"))


def straightforward(net, kinds, inputs, x):
    """All members' values at the levels, from all inputs, those that they do not see times 0."""
    encoded = torch.as_tensor(inputs.encode(x), dtype=torch.float32)
    with torch.no_grad():
        values = net(encoded * visible(kinds, net.n_members, inputs))
    return at_levels(values.double().numpy(), net.knots.double().numpy())


@pytest.mark.parametrize("n_rows", [1, 300])
@pytest.mark.parametrize("kinds", [[RANKS, VALUES, BOTH], [VALUES, VALUES], [BOTH]])
def test_networks_and_their_averages_are_those_of_the_forward_pass(kinds, n_rows):
    rng = np.random.default_rng(0)
    inputs = Inputs.of(rng.normal(size=(200, 3)), np.ones(200))
    source = torch.Generator().manual_seed(0)
    net = MonotoneNet(2 * len(kinds), len(inputs), [16, 16], generator=source)
    x, weights = rng.normal(size=(n_rows, 3)), np.array([0.5, 0.0, 0.2])[: len(kinds)]
    expected = straightforward(net, kinds, inputs, x)  # (K, n, L)
    np.testing.assert_allclose(evaluated(net, kinds, inputs, x), expected, atol=1e-5)
    found = mixed(net, kinds, inputs, x, weights)
    for coordinate, values in found.items():
        share = [w * (k.coordinate == coordinate) for w, k in zip(weights, kinds)] * 2
        mean = np.average(expected, axis=0, weights=share)
        np.testing.assert_allclose(values, mean, atol=1e-5)
    used = {kind.coordinate for kind, weight in zip(kinds, weights) if weight > 0}
    assert set(found) == used


def test_one_network_of_each_kind_is_averaged_too():
    rng = np.random.default_rng(0)
    inputs = Inputs.of(rng.normal(size=(200, 3)), np.ones(200))
    net = MonotoneNet(2, len(inputs), [16], generator=torch.Generator().manual_seed(0))
    x, kinds = rng.normal(size=(20, 3)), [RANKS, BOTH]
    expected = np.average(evaluated(net, kinds, inputs, x), axis=0, weights=[0.3, 0.7])
    found = mixed(net, kinds, inputs, x, np.array([0.3, 0.7]))[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_networks_without_weight_are_not_asked():
    inputs = Inputs.of(np.arange(20.0)[:, None], np.ones(20))
    net = MonotoneNet(1, len(inputs), [4])
    assert mixed(net, [RANKS], inputs, np.ones((3, 1)), np.zeros(1)) == {}


@pytest.mark.parametrize("bounds", [(None, None), (-20.0, 30.0)])
@pytest.mark.parametrize("atoms", [False, True])
def test_two_steps_from_a_coordinate_to_the_response_can_be_one(bounds, atoms):
    rng = np.random.default_rng(0)
    y = rng.standard_t(4, 400)
    y[:80] = 0.5 if atoms else y[:80]
    ranks, linear = (
        ResponseEncoder.of(y, np.ones(400), scale=scale, bounds=bounds)
        for scale in ("ranks", "linear")
    )
    z = np.linspace(linear.z[0] - 3, linear.z[-1] + 3, 2001)
    direct, two_steps = ranks.seen_from(linear), ranks.decode(translated(z, linear, ranks))
    np.testing.assert_allclose(direct.decode(z), two_steps, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(direct.plateaus[:, 2], ranks.plateaus[:, 2], rtol=0)


def test_nodes_with_two_parents_are_refused():
    # Each node leads to the next by both ways: few nodes, but ever more paths.
    own = np.arange(41)
    children = np.minimum(own + 1, 40)[:, None].repeat(2, axis=1)
    arrays = {"feature": np.where(own < 40, 0, -1), "children": children, "root": np.array([0])}
    with pytest.raises(ValueError, match="does not lead to a leaf"):
        Trees.restored(arrays | {"threshold": np.zeros(41)}, 1)
