"""The state of a search from step to step: what differs between prefixes is reordered, what does not is left alone."""

from torch import Tensor

from chainrule.state import State, leaves, map_state


class Carried:
    """A state whose rows are the prefixes of a beam, and which of its tensors belong to whole sentences.

    A tensor that every step so far has returned as it was given, the memory of an attention say, is equal for all
    prefixes of a sentence. As long as the prefixes belong to the sentences that they belonged to before, it need not be
    reordered: for a memory that is most of what a step would copy.

    Args:
        state: with one row for each sentence, or already as many prefixes as there are.
    """

    def __init__(self, state: State):
        self.state = state
        self._constant = [True] * len(leaves(state))

    def follow(self, stepped: State, parents: Tensor, *, same_sentences: bool) -> None:
        """Take over the state that a step returned, in the order of the prefixes that live on.

        Args:
            stepped: from a step that read `state`.
            parents: (N,) the row of each.
            same_sentences: whether row by row they belong to the sentences of the rows before.
        """
        before, after = leaves(self.state), leaves(stepped)
        if len(before) != len(after):
            self._constant = [False] * len(after)
        else:
            pairs = zip(self._constant, before, after, strict=True)
            self._constant = [constant and one is other for constant, one, other in pairs]
        kept = iter(self._constant)

        def reordered(leaf: Tensor) -> Tensor:
            return leaf if next(kept) and same_sentences else leaf.index_select(0, parents.to(leaf.device))

        self.state = map_state(reordered, stepped)
