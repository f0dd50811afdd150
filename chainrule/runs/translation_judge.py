"""What a translator is worth on held-out sentences."""

from typing import TYPE_CHECKING, cast

import numpy as np

from chainrule.data.pairs import held_out_texts
from chainrule.metrics.translation import bleu
from chainrule.runs.run import DATA
from chainrule.runs.translate import TranslateRun
from chainrule.runs.translating import Translator
from chainrule.training.judge import Judge, Judgement

if TYPE_CHECKING:
    from chainrule.base import LikelihoodModel
    from chainrule.models import Seq2Seq

_JUDGED = 2000  # of the held-out pairs, the first: as many as tell one epoch from the next


def translation_judge(run: TranslateRun) -> Judge:
    """BLEU of greedy translations of the held-out sentences; with it one of them, another each time."""
    sources, references = (texts[:_JUDGED] for texts in held_out_texts(run.path / DATA))
    pairs, tokenize, longest = run.pairs, run.tokenize, run.longest

    def judge(model: "LikelihoodModel", step: int) -> Judgement:
        translator = Translator(cast("Seq2Seq", model), pairs.source_vocabulary, pairs.target_vocabulary, longest)
        hypotheses = [best.text for best, *_ in translator.search(sources)]
        place = int(np.random.default_rng(step).integers(len(sources)))
        example = f"source      {sources[place]}\nreference   {references[place]}\nhypothesis  {hypotheses[place]}"
        return Judgement("bleu", bleu(hypotheses, references, tokenize=tokenize).value, example)

    return judge
