"""Small sound models, written as a user would write them; the tests break them in one place each."""

import torch
from torch import Tensor, nn
from torch.distributions import Bernoulli, Independent, LogNormal, MixtureSameFamily, Normal, Poisson
from torch.distributions import Categorical as TorchCategorical

from chainrule._base import AutoregressiveModel
from chainrule.heads import Categorical


class Tiny(AutoregressiveModel):
    """A recurrent model of any element: `read` makes features of elements, `conditional` a distribution of features."""

    inputs = 6

    def __init__(self, context_size: int = 0, hidden_size: int = 8):
        super().__init__()
        self.cell = nn.GRUCell(self.inputs, hidden_size)
        self.start = nn.Parameter(torch.randn(self.inputs))
        self.context = nn.Linear(context_size, hidden_size) if context_size else None
        self.head()
        for parameter in self.parameters():  # conditionals that depend strongly on what was read
            nn.init.normal_(parameter, std=0.7)

    def head(self):
        self.output = nn.Linear(self.cell.hidden_size, 5)
        self.embedding = nn.Embedding(5, self.inputs)

    def read(self, x):
        return self.embedding(x)

    def conditional(self, h):
        return Categorical(self.output(h))

    def first_state(self, batch_size, context=None):
        if self.context is not None:
            return self.context(context).tanh()
        return self.start.new_zeros(batch_size, self.cell.hidden_size)

    def initial_state(self, batch_size, context=None):
        return self.first_state(batch_size, context)

    def step(self, x_prev, state):
        read = self.start.expand(len(state), -1) if x_prev is None else self.read(x_prev)
        state = self.cell(read, state)
        return self.conditional(state), state

    def features(self, x, context=None):
        """(B, T, M): h_t of the elements before x_t."""
        state = self.first_state(len(x), context)
        inputs = torch.cat([self.start.expand(len(x), 1, -1), self.read(x)[:, :-1]], 1)
        states = []
        for t in range(x.shape[1]):
            state = self.cell(inputs[:, t], state)
            states.append(state)
        return torch.stack(states, 1)

    def forward(self, x, context=None, lengths=None):
        return self.conditional(self.features(x, context))


class TinyNormal(Tiny):
    def head(self):
        self.output = nn.Linear(self.cell.hidden_size, 2)
        self.embedding = nn.Linear(1, self.inputs)

    def read(self, x):
        return self.embedding(x.unsqueeze(-1))

    def conditional(self, h):
        mean, scale = self.output(h).unbind(-1)
        return Normal(mean, 0.1 + nn.functional.softplus(scale))


class TinyLogNormal(TinyNormal):
    """Of positive numbers."""

    def read(self, x):
        return super().read(x.log())

    def conditional(self, h):
        mean, scale = self.output(h).unbind(-1)
        return LogNormal(mean.tanh(), 0.1 + scale.sigmoid())


class TinyMixture(TinyNormal):
    def head(self):
        self.output = nn.Linear(self.cell.hidden_size, 9)
        self.embedding = nn.Linear(1, self.inputs)

    def conditional(self, h):
        weights, means, scales = self.output(h).chunk(3, -1)
        return MixtureSameFamily(TorchCategorical(logits=weights), Normal(5 * means, 0.01 + scales.exp()))


class TinyBernoulli(TinyNormal):
    def head(self):
        self.output = nn.Linear(self.cell.hidden_size, 1)
        self.embedding = nn.Linear(1, self.inputs)

    def conditional(self, h):
        return Bernoulli(logits=self.output(h).squeeze(-1))


class TinyPoisson(TinyBernoulli):
    def read(self, x):
        return super().read(x.log1p())

    def conditional(self, h):
        return Poisson(self.output(h).squeeze(-1).tanh().exp())


class TinyBits(Tiny):
    """Of vectors of 3 bits."""

    def head(self):
        self.output = nn.Linear(self.cell.hidden_size, 3)
        self.embedding = nn.Linear(3, self.inputs)

    def conditional(self, h):
        return Independent(Bernoulli(logits=self.output(h)), 1)


class TinyVectors(TinyBits):
    """Of vectors of 3 real numbers."""

    def conditional(self, h):
        return Independent(Normal(self.output(h), 0.5), 1)


class Window(AutoregressiveModel):
    """Reads the last `size` elements, and says so; its state is those elements, numbered from 1, 0 before the first."""

    def __init__(self, size: int = 3, symbols: int = 4):
        super().__init__()
        self.size = size
        self.table = nn.Parameter(torch.randn(size, symbols + 1, symbols))

    def forward(self, x, context=None, lengths=None):
        padded = nn.functional.pad(x + 1, (self.size, 0))
        return Categorical(sum(self.table[k][padded[:, self.size - 1 - k : -1 - k]] for k in range(self.size)))

    def initial_state(self, batch_size, context=None):
        return torch.zeros(batch_size, self.size, dtype=torch.long, device=self.table.device)

    def step(self, x_prev, state):
        if x_prev is not None:
            state = torch.cat([state[:, 1:], x_prev.unsqueeze(1) + 1], 1)
        return Categorical(sum(self.table[k][state[:, -1 - k]] for k in range(self.size))), state

    def visible_past(self, length: int) -> Tensor:
        return super().visible_past(length).triu(-self.size)


class FixedColumns(AutoregressiveModel):
    """Exactly D columns by masked products, with layers that only the whole row fits (as in a table)."""

    def __init__(self, columns: int = 4, symbols: int = 3):
        super().__init__()
        self.columns, self.symbols = columns, symbols
        self.weight = nn.Parameter(torch.randn(columns, symbols, columns, symbols))
        self.bias = nn.Parameter(torch.randn(columns, symbols))
        self.register_buffer("mask", torch.ones(columns, columns).tril(-1), persistent=False)

    def forward(self, x, context=None, lengths=None):
        if x.shape[1] != self.columns:
            raise ValueError(f"x: expected {self.columns} columns, got {x.shape[1]}")
        one_hot = nn.functional.one_hot(x, self.symbols).float()  # float by name: the checks widen it
        weight = self.weight * self.mask[:, None, :, None]
        return Categorical(torch.einsum("bsv,tusv->btu", one_hot, weight) + self.bias)

    def initial_state(self, batch_size, context=None):
        return self.bias.new_zeros(batch_size, self.columns, self.symbols), self.bias.new_zeros(batch_size, 1).long()

    def step(self, x_prev, state):
        seen, count = state
        if x_prev is not None:
            seen = seen.clone()
            rows = torch.arange(len(seen), device=seen.device)
            seen[rows, count[:, 0] - 1] = nn.functional.one_hot(x_prev, self.symbols).to(seen)
        t = count[0, 0]
        logits = torch.einsum("bsv,usv->bu", seen, self.weight[t] * self.mask[t][None, :, None]) + self.bias[t]
        return Categorical(logits), (seen, count + 1)
