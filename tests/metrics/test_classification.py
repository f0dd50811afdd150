"""Scores of a classifier, against the written definitions."""

import pytest
import torch

from chainrule.metrics import classification_scores

NAMES = ["a", "b", "c"]


def made(count: int = 400) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(count, 3, generator=generator, dtype=torch.float64)
    labels = torch.where(torch.rand(count, generator=generator) < 0.6, logits.argmax(1), 0)
    return logits.log_softmax(1), labels


def test_scores_are_the_written_definitions() -> None:
    log_probs, labels = made()
    scores = classification_scores(log_probs, labels, NAMES)
    given = log_probs.argmax(1)
    assert scores.accuracy == pytest.approx(float((given == labels).double().mean()))
    assert scores.nats == pytest.approx(
        -sum(float(row[label]) for row, label in zip(log_probs, labels, strict=True)) / 400
    )
    assert sum(map(sum, scores.confusion)) == scores.count == 400
    f1 = []
    for place, name in enumerate(NAMES):
        right = int(((given == place) & (labels == place)).sum())
        precision, recall = right / int((given == place).sum()), right / int((labels == place).sum())
        f1.append(2 * precision * recall / (precision + recall))
        assert scores.by_label[name] == pytest.approx((precision, recall, f1[-1], int((labels == place).sum())))
        assert scores.confusion[place][place] == right
    assert scores.macro_f1 == pytest.approx(sum(f1) / 3)


def test_calibration_error_is_the_weighted_gap_of_each_bin() -> None:
    log_probs, labels = made()
    confidence, given = log_probs.exp().max(1)
    gap = 0.0
    for start in range(15):
        inside = (confidence > start / 15) & (confidence <= (start + 1) / 15)
        if inside.any():
            right = (given == labels)[inside].double().mean()
            gap += float(inside.double().mean() * (right - confidence[inside].mean()).abs())
    assert classification_scores(log_probs, labels, NAMES).calibration_error == pytest.approx(gap, abs=1e-6)
    sure = torch.tensor([[0.0, -50.0], [-50.0, 0.0]])
    assert classification_scores(sure, torch.tensor([0, 1]), ["a", "b"]).calibration_error == pytest.approx(0, abs=1e-6)


def test_a_log_probability_above_zero_by_rounding_changes_no_score() -> None:
    log_probs = torch.tensor([[0.9, 0.1]] * 9 + [[1.0, 0.0]]).log()
    labels = torch.zeros(10, dtype=torch.long)
    above = log_probs.clone()
    above[-1, 0] = 6e-8
    scores = [classification_scores(each, labels, ["a", "b"]).calibration_error for each in (log_probs, above)]
    assert scores == pytest.approx([0.09, 0.09], abs=1e-6)


def test_certainty_shares_the_last_bin() -> None:
    log_probs, labels = torch.tensor([[1.0, 0.0], [0.96, 0.04]]).log(), torch.tensor([1, 0])
    assert classification_scores(log_probs, labels, ["a", "b"]).calibration_error == pytest.approx(0.48, abs=1e-6)


def test_a_label_that_never_occurs_has_no_weight() -> None:
    log_probs = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]]).log()
    scores = classification_scores(log_probs, torch.tensor([0, 1]), NAMES)
    assert scores.macro_f1 == 1
    assert scores.by_label["c"] == (0.0, 0.0, 0.0, 0)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"expected shape \(N, 3\) with N labels, got \(4, 2\) and \(4,\)"):
        classification_scores(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long), NAMES)
    with pytest.raises(ValueError, match=r"labels: expected integers in \[0, 3\), got 1 to 3"):
        classification_scores(torch.zeros(2, 3), torch.tensor([1, 3]), NAMES)
    with pytest.raises(ValueError, match="expected at least one, got none"):
        classification_scores(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), NAMES)


def test_labels_may_be_of_a_narrow_type_and_one_label_is_refused():
    names = [str(n) for n in range(300)]
    log_probs, labels = torch.randn(3, 300).log_softmax(1), torch.tensor([1, 200, 3])
    assert classification_scores(log_probs, labels.to(torch.uint8), names).count == 3
    with pytest.raises(ValueError, match="names: expected at least two labels, got 1"):
        classification_scores(torch.zeros(3, 1), torch.zeros(3, dtype=torch.long), ["a"])


def test_log_probs_of_a_model_that_trains_are_scored_without_a_warning(recwarn):
    log_probs = torch.randn(3, 3, requires_grad=True).log_softmax(1)
    labels = torch.tensor([0, 1, 2])
    assert classification_scores(log_probs, labels, NAMES) == classification_scores(log_probs.detach(), labels, NAMES)
    assert not recwarn
