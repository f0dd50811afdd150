"""A network that notes what a model that holds it hands on to it."""

from chainrule.models import RecurrentLM


class Noted(RecurrentLM):
    """`calls` names the methods that were called."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.calls = []

    def prepare(self):
        self.calls.append("prepare")
        return super().prepare()
