"""Runs on sounds, with their verbs."""

from chainrule_app.tasks.sound import verbs
from chainrule_app.tasks.sound.task import SoundTask


class SoundRun(SoundTask):
    Scoring, score = verbs.SoundScoring, verbs.score_sounds
    Sampling, sample = verbs.SoundSampling, verbs.sample_sounds
    Inspection, inspect = verbs.SoundInspection, verbs.inspect_sounds
