"""All that one does with a model: likelihoods, gradients, samples, searches, codes and diagnostics, by name."""

import copy
from itertools import islice

import torch
from small_models import EVERY

from chainrule._base import AutoregressiveModel
from chainrule._latent import CodeModel, LatentModel
from chainrule.coding import decode, encode
from chainrule.decoding import beam_search, complete, greedy
from chainrule.diagnostics import (
    active_units,
    backpropagate,
    gradient_flow,
    gradient_profile,
    inspect_recurrence,
    receptive_field,
)
from chainrule.models import MADE, Autoencoder, CalibratedMixture, RecurrentLM
from chainrule.state import map_state

MODELS = {
    **EVERY,
    "Autoencoder": lambda: (Autoencoder((1, 4, 4), 3, 2, hidden_size=8), (torch.randint(2, (2, 1, 4, 4)),)),
}

SEARCHED = ("RecurrentLM", "NgramLM", "Seq2Seq", "TransformerLM", "TransformerSeq2Seq", "WaveNet", "CalibratedMixture")
# Elements that reach the model by no function that a gradient passes.
UNSEEN = (
    "CalibratedMixture",
    "Ensemble",
    "NgramLM",
    "RecurrentLM",
    "Seq2Seq",
    "TableEnsemble",
    "TableMADE",
    "TableNeighbours",
    "TransformerLM",
    "TransformerSeq2Seq",
    "VectorToSequence",
)
REAL_NUMBERS = ("ForecastMixture", "Forecaster", "LinearForecaster")  # no symbols to search among, and no codes


def uses(model, x, context=None, lengths=None, *, device="cpu"):
    """Functions that use the model, by name; random numbers come from a generator on the device."""

    def generator():
        return torch.Generator(device).manual_seed(0)

    def train():
        trained = copy.deepcopy(model).train()
        objective = trained.training_objective(x, context, lengths)
        if objective.requires_grad:
            objective.sum().backward()
        return objective.detach()

    found = {"held_out_objective": lambda: model.held_out_objective(x, context, lengths), "train": train}
    if lengths is not None and not isinstance(model, LatentModel):
        found["log_prob, lengths on the processor"] = lambda: model.log_prob(x, context, lengths.cpu())
        found["training_objective, lengths on the processor"] = lambda: model.training_objective(
            x, context, lengths.cpu()
        )
    if isinstance(context, dict) and "lengths" in context:
        found["log_prob, lengths of the context on the processor"] = lambda: model.log_prob(
            x, {**context, "lengths": context["lengths"].cpu()}, lengths
        )
    if isinstance(model, LatentModel):
        found |= latent_uses(model, x, lengths, generator)
    elif isinstance(model, CodeModel):
        found["from_codes"] = lambda: model.from_codes(model.codes(x))
    else:
        found["log_prob"] = lambda: model.log_prob(x, context, lengths)
    if isinstance(model, AutoregressiveModel):
        found |= sequence_uses(model, x, context, lengths, generator)
    return found


def latent_uses(model, x, lengths, generator):
    return {
        "elbo": lambda: model.elbo(x, 2, generator(), lengths=lengths),
        "importance_bound": lambda: model.importance_bound(x, 3, generator(), lengths=lengths),
        "kl": lambda: model.kl(x, generator(), lengths=lengths),
        "sample": lambda: model.sample(2, generator()),
        "from_codes": lambda: model.from_codes(model.codes(x, lengths=lengths), generator=generator()),
        "elbo, lengths on the processor": lambda: model.elbo(
            x, 2, generator(), lengths=None if lengths is None else lengths.cpu()
        ),
        "active_units": lambda: active_units(model, x, lengths=lengths).kl,
    }


def sequence_uses(model, x, context, lengths, generator):
    sequence, name = model.to_sequence(x), type(model).__name__
    rows, time = sequence.shape[:2]
    first, prefix = map_state(lambda leaf: leaf[:1], context), sequence[:, : min(2, time - 1)]
    known = (torch.arange(time, device=x.device) % 2 == 0).expand(rows, time)

    def step_by_step():
        state, terms = model.initial_state(rows, context), []
        for t in range(time):
            conditional, state = model.step(sequence[:, t - 1] if t else None, state)
            terms.append(conditional.log_prob(sequence[:, t]))
        return torch.stack(terms, 1)

    def sample(**options):
        return model.sample(rows, context, length=time, generator=generator(), **options)

    def completed(x, known):
        return complete(model, x, known, context, particles=4, generator=generator()).x

    found = {
        "step": step_by_step,
        "unroll": lambda: model.unroll(sequence, model.initial_state(rows, context))[0].log_prob(sequence),
        "visible_past": lambda: model.visible_past(time),
        "sample": sample,
        "sample, prefix": lambda: sample(prefix=prefix),
        "sample, prefix on the processor": lambda: sample(prefix=prefix.cpu()),
        "stream": lambda: torch.stack([*islice(model.stream(rows, context, generator=generator()), time)], 1),
    }
    if lengths is not None:
        found["forward, lengths on the processor"] = lambda: model(x, context, lengths.cpu()).batch_shape
    if name not in UNSEEN:
        found["receptive_field"] = lambda: receptive_field(model, time - 1, x, context).influence
    if sequence.dim() == 2:
        found["complete"] = lambda: completed(sequence, known)
        found["complete, x on the processor"] = lambda: completed(sequence.cpu(), known.cpu())
    if name not in REAL_NUMBERS:
        found["encode and decode"] = lambda: decode(model, encode(model, x[:1], first), first)
    if name in SEARCHED:
        begun = torch.ones(1, 1, dtype=torch.long)
        options = {"context": first, "max_length": time, "eos": 0}
        found |= {
            "sample, filtered": lambda: sample(temperature=0.7, top_k=2, top_p=0.9),
            "greedy": lambda: greedy(model, **options)[0].sequences,
            "beam_search": lambda: beam_search(model, beam_size=2, n_best=2, **options)[0].sequences,
            "beam_search, without repeats": lambda: (
                beam_search(model, beam_size=2, no_repeat_ngram=2, length_penalty=0.5, **options)[0].sequences
            ),
            "beam_search, prefix on the processor": lambda: (
                beam_search(model, beam_size=2, prefix=begun, **options)[0].sequences
            ),
        }
    if isinstance(model, RecurrentLM | CalibratedMixture):
        found |= {
            "gradient_flow": lambda: gradient_flow(model, x, "mean", lengths).delta,
            "gradient_flow, lengths on the processor": lambda: gradient_flow(model, x, "mean", lengths.cpu()).delta,
            "gradient_profile": lambda: gradient_profile(model, x, lengths),
            "backpropagate": lambda: backpropagate(model, x, "last", lengths).delta,
            "inspect_recurrence": lambda: inspect_recurrence(model, x, lengths).surprise,
        }
    if isinstance(model, MADE):
        found["resampled"] = lambda: model.resampled(generator()).log_prob(x)
    return found
