"""A state can be mapped, selected, detached, flattened, saved and read back, whatever its tree."""

import json

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from chainrule.state import concatenate, detach, flatten, load_state, map_state, save_state, select, share, unflatten

ROWS = 3
leaf = st.integers(0, 2).map(lambda axes: torch.arange(ROWS * 2**axes, dtype=torch.float32).view(ROWS, *[2] * axes))
states = st.recursive(
    st.none() | leaf,
    lambda branch: (
        st.lists(branch, max_size=3)
        | st.lists(branch, max_size=3).map(tuple)
        | st.dictionaries(st.text("ab.", max_size=2), branch, max_size=3)
    ),
    max_leaves=6,
)


def same(left, right):
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        return isinstance(right, dict) and left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    return left is right


@given(states)
def test_mapping_keeps_the_tree(state):
    assert same(map_state(lambda tensor: tensor.clone(), state), state)


@given(states)
def test_selecting_is_indexing_every_leaf(state):
    rows = torch.tensor([2, 0, 0, 1])
    assert same(select(state, rows), map_state(lambda tensor: tensor[rows], state))
    assert same(select(select(state, torch.tensor([2, 0, 1])), torch.tensor([1, 2, 0])), state)


def test_a_selected_row_is_a_fork():
    state = (torch.zeros(2, 1),)
    forked = select(state, torch.tensor([0, 0]))
    forked[0][0] += 1
    assert state[0].sum() == 0
    assert forked[0][1] == 0


def test_detaching_cuts_the_gradient_and_keeps_the_values():
    h = torch.ones(2, requires_grad=True) * 3
    (cut,) = detach((h,))
    assert torch.equal(cut, h)
    assert not cut.requires_grad


@given(states)
def test_flattening_is_undone_and_its_skeleton_is_json(state):
    tensors, skeleton = flatten(state)
    assert same(unflatten(tensors, json.loads(json.dumps(skeleton))), state)


@pytest.mark.parametrize(
    "state",
    [
        None,
        torch.arange(4).view(2, 2),
        (torch.zeros(2, 3), [torch.ones(2, dtype=torch.bool), None], {"a": torch.zeros(2, 1, dtype=torch.float64)}),
        (torch.zeros(2, 3).t(),),
    ],
)
def test_a_saved_state_is_read_back(state, tmp_path):
    save_state(state, tmp_path / "state.safetensors")
    assert same(load_state(tmp_path / "state.safetensors"), state)


def test_two_branches_that_share_a_tensor_are_saved(tmp_path):
    h = torch.arange(2.0)
    save_state((h, h), tmp_path / "state.safetensors")
    assert same(load_state(tmp_path / "state.safetensors"), (h, h))


@given(states)
@example({"a": {"b": torch.zeros(1)}, "a.b": torch.ones(1)})
def test_two_leaves_never_get_one_name(state):
    leaves = []
    map_state(lambda tensor: leaves.append(tensor) or tensor, state)
    assert len(flatten(state)[0]) == len(leaves)


@pytest.mark.parametrize("function", [flatten, detach, lambda state: select(state, torch.tensor([0]))])
def test_anything_but_a_tree_of_tensors_is_refused(function):
    with pytest.raises(TypeError, match=r"state: expected a tree of tensors.*got int"):
        function((torch.zeros(1), 3))


def test_a_tampered_skeleton_is_refused():
    with pytest.raises(ValueError, match="state skeleton"):
        unflatten({}, {"set": []})


def test_forks_copy_nothing_of_what_they_share_until_little_of_it_is_in_use():
    values = torch.arange(6.0).view(6, 1)
    state = {"h": torch.arange(6), "memory": share(values)}
    forked = select(state, torch.tensor([5, 5, 0, 1, 2]))
    assert forked["memory"].values is values
    assert forked["memory"].rows.tolist() == forked["h"].tolist() == [5, 5, 0, 1, 2]
    assert share(forked["memory"]) is forked["memory"]
    few = share(select(forked, torch.tensor([0, 1, 3]))["memory"])
    assert few.values.tolist() == [[1.0], [5.0]]
    assert few.rows.tolist() == [1, 1, 0]


def test_branches_that_rows_share_are_saved_and_read_back(tmp_path):
    state = select({"memory": share((torch.arange(3.0), None))}, torch.tensor([2, 2, 0]))
    save_state(state, tmp_path / "state")
    memory = load_state(tmp_path / "state")["memory"]
    assert memory.rows.tolist() == [2, 2, 0]
    assert same(memory.values, state["memory"].values)


def test_joined_states_are_those_of_a_batch_and_come_apart_again():
    one, two = (
        {"h": torch.ones(1, 2), "c": (None, [torch.zeros(1)])},
        {"h": torch.zeros(2, 2), "c": (None, [torch.ones(2)])},
    )
    joined = concatenate([one, two])
    assert same(select(joined, torch.tensor([0])), one)
    assert same(select(joined, torch.tensor([1, 2])), two)


def test_a_shorter_cache_is_filled_before_its_first_slot():
    short, long = {"keys": torch.ones(1, 2, 1, 1)}, {"keys": torch.full((1, 2, 3, 1), 2.0)}
    joined = concatenate([short, long])["keys"]
    assert joined[..., 0].tolist() == [[[0, 0, 1]] * 2, [[2, 2, 2]] * 2]


def test_a_row_for_all_is_repeated_where_it_joins_others():
    shared = {"h": torch.ones(2, 1), "place": torch.ones(1)}
    assert concatenate([shared, {"h": torch.zeros(1, 1), "place": torch.zeros(1)}])["place"].tolist() == [1, 1, 0]


def test_states_of_other_structures_are_not_joined():
    with pytest.raises(ValueError, match="one structure"):
        concatenate([(torch.ones(1), None), (torch.ones(1), torch.ones(1))])
