"""A search reorders what differs between prefixes, and copies nothing that belongs to whole sentences."""

import torch

from chainrule.decoding.carried import Carried

MEMORY, FIRST, SECOND = torch.tensor([10, 20]), torch.tensor([1, 2]), torch.tensor([3, 4])


def test_what_every_step_returned_as_it_was_is_kept_while_the_sentences_stand_where_they_stood():
    carried = Carried({"memory": MEMORY, "h": FIRST, "none": None})
    carried.follow({**carried.state, "h": SECOND}, torch.tensor([0, 0, 1]), same_sentences=False)
    forked = carried.state["memory"]
    assert forked.tolist() == [10, 10, 20]
    carried.follow({**carried.state, "h": torch.tensor([5, 6, 7])}, torch.tensor([1, 0, 2]), same_sentences=True)
    assert carried.state["memory"] is forked
    assert carried.state["h"].tolist() == [6, 5, 7]
    carried.follow(dict(carried.state), torch.tensor([2, 0]), same_sentences=False)
    assert carried.state["memory"].tolist() == [20, 10]


def test_a_tensor_handed_from_one_place_to_another_is_no_sentences_own():
    carried = Carried({"last": FIRST, "before": SECOND})
    swapped = {"last": SECOND, "before": FIRST}
    carried.follow(swapped, torch.tensor([1, 0]), same_sentences=True)
    assert (carried.state["last"].tolist(), carried.state["before"].tolist()) == ([4, 3], [2, 1])
    # Once changed, a tensor may differ between prefixes, though later steps leave it alone.
    carried.follow(dict(carried.state), torch.tensor([1, 0]), same_sentences=True)
    assert (carried.state["last"].tolist(), carried.state["before"].tolist()) == ([3, 4], [1, 2])


def test_a_state_that_changes_its_shape_is_reordered_as_a_whole():
    carried = Carried(MEMORY)
    carried.follow((MEMORY, FIRST), torch.tensor([1, 1]), same_sentences=True)
    assert [leaf.tolist() for leaf in carried.state] == [[20, 20], [2, 2]]
    carried.follow(carried.state, torch.tensor([0]), same_sentences=True)
    assert [leaf.tolist() for leaf in carried.state] == [[20], [2]]
