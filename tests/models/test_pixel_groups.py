"""Every pixel is visited once, and coarser ones first."""

import pytest
import torch

from chainrule.models._multi_scale_pixel_cnn import OFFSETS, GroupNetwork, coarse_to_fine


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 6), (7, 1), (4, 4), (5, 3), (6, 9)])
def test_every_pixel_is_visited_once_and_where_its_block_is_known(height, width):
    known = torch.zeros(height, width, dtype=torch.bool)
    known[0, 0] = True
    for group in coarse_to_fine(height, width):
        s = group.spacing
        rows, columns = group.places()
        assert len(rows) == group.rows * group.columns > 0
        for down, right in OFFSETS[: group.kind]:  # what a group reads is known
            assert known[s * down :: 2 * s, s * right :: 2 * s].all()
        assert not known[rows, columns].any()
        known[rows, columns] = True
    assert known.all()


def test_groups_grow_with_the_logarithm_of_the_side():
    assert [len(coarse_to_fine(size, size)) for size in (1, 2, 4, 32, 33)] == [0, 3, 6, 15, 18]


def test_a_group_network_reads_as_far_as_it_says():
    network = GroupNetwork(2, channels=4, layers=1, out_channels=3, scales=2, num_classes=2).double()
    x = torch.randn(1, 2, 9, 9, dtype=torch.float64)
    label = torch.tensor([1])
    jacobian = torch.autograd.functional.jacobian(lambda x: network(x, 1, label)[0, :, 4, 4], x)
    read = jacobian[:, 0].abs().sum((0, 1)) > 0
    near = (torch.arange(9) - 4).abs() <= network.radius
    assert torch.equal(read, near & near.unsqueeze(1))


def test_a_group_network_is_told_its_scale_and_label():
    network, x = GroupNetwork(2, channels=4, layers=1, out_channels=3, scales=2, num_classes=2), torch.randn(1, 2, 3, 3)
    torch.nn.init.normal_(network.last.weight)
    results = [network(x, scale, torch.tensor([label])) for scale, label in [(0, 0), (1, 0), (0, 1)]]
    assert not torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    assert not torch.equal(network(x, 0, torch.tensor([0]), dropout=0.5), results[0])
