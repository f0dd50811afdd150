"""A network that reads blocks, and notes what a model that holds it hands on to it."""

from chainrule.models import RecurrentLM


class Blocks(RecurrentLM):
    """Of `length` elements each."""

    def __init__(self, length):
        super().__init__(5, hidden_size=4)
        self.length, self.calls = length, []

    @property
    def block_length(self):
        return self.length

    def rewind(self, *arguments):
        self.calls.append("rewind")
        return super().rewind(*arguments)

    def shared(self, state):
        self.calls.append("shared")
        return state

    def stepper(self):
        self.calls.append("stepper")
        return super().stepper()

    def window_reader(self):
        self.calls.append("window_reader")
        return super().window_reader()
