"""Runs on sounds, with their verbs."""

from typing import TYPE_CHECKING, Any

from chainrule_app.tasks.frequencies import place_frequencies
from chainrule_app.tasks.sound import verbs
from chainrule_app.tasks.sound.task import SoundTask

if TYPE_CHECKING:
    from chainrule_app.tasks.baseline import Baseline


class SoundRun(SoundTask):
    Scoring, score = verbs.SoundScoring, verbs.score_sounds
    Sampling, sample = verbs.SoundSampling, verbs.sample_sounds
    Inspection, inspect = verbs.SoundInspection, verbs.inspect_sounds

    def baseline(self, model: Any, seconds: float) -> "Baseline":
        name, measure, levels = "frequencies of the levels", "nats per sample", self.facts.levels
        return place_frequencies(self, model, seconds, name=name, measure=measure, levels=levels)
