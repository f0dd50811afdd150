"""The estimators for scikit-learn keep its contract, and answer as the runs that they hold."""

import pickle
import sys
from importlib import reload

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install scikit-learn")
pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

from sklearn.base import clone  # noqa: E402  after the skip
from sklearn.model_selection import cross_val_score  # noqa: E402
from sklearn.utils.estimator_checks import estimator_checks_generator  # noqa: E402

from chainrule_app.sklearn import ChainruleClassifier, ChainruleDensity, ChainruleRegressor  # noqa: E402

ESTIMATORS = [ChainruleDensity, ChainruleClassifier, ChainruleRegressor]
SMALL = {"hidden_size": 8, "threads": 1, "precision": "float32", "learning_rate": 1e-2}
BY_DAY = {
    "check_estimator_cloneable", "check_no_attributes_set_in_init", "check_parameters_default_constructible",
    "check_estimator_sparse_tag", "check_fit2d_1sample", "check_complex_data", "check_fit1d",
    "check_requires_y_none", "check_classifiers_one_label", "check_n_features_in_after_fitting",
}  # fmt: skip
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(80, 2))
PEOPLE = polars.DataFrame({"age": RANDOM.integers(20, 60, 80), "city": RANDOM.choice(["Oslo", "Rome"], 80)})


def small(kind, steps=4, **options):
    return kind(steps=steps, random_state=0, options=SMALL | options)


def checks(estimator):
    for _, check in estimator_checks_generator(estimator):
        yield check.func.__name__, check


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_some_checks_of_scikit_learn_pass(kind):
    estimator, passed = small(kind), set()
    for name, check in checks(estimator):
        if name in BY_DAY:
            check(clone(estimator))
            passed.add(name)
    assert len(passed) >= 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.filterwarnings("ignore")  # of what the checks hand over on purpose
def test_check_estimator_passes(kind):
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(small(kind, 60, hidden_size=32), on_skip=None)
    assert {result["status"] for result in results} <= {"passed", "skipped"}
    assert sum(result["status"] == "passed" for result in results) >= 38


def test_a_density_scores_and_samples_as_its_run():
    density = small(ChainruleDensity).fit(PEOPLE)
    nats = density.run_.score(PEOPLE)["nats"]
    assert density.score_samples(PEOPLE) == pytest.approx(-np.array(nats))
    assert density.score(PEOPLE) == pytest.approx(-np.mean(nats))
    assert density.sample(3, random_state=1).schema == PEOPLE.schema
    assert density.sample(3, random_state=1).equals(density.sample(3, random_state=1))
    assert pickle.loads(pickle.dumps(density)).score(PEOPLE) == density.score(PEOPLE)  # noqa: S301  our own


def test_probabilities_follow_from_the_joint_model():
    """p(y | x) = p(x, y) / Σ p(x, y'), from the scores of whole rows."""
    labels = np.array(["no", "yes"])[(PEOPLE["age"].to_numpy() > 40).astype(int)]
    classifier = small(ChainruleClassifier).fit(PEOPLE, labels)
    rows = [classifier.run_.score(PEOPLE.with_columns(target=polars.lit(code)))["nats"] for code in "01"]
    joint = np.exp(-np.array(rows).T)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.predict_proba(PEOPLE) == pytest.approx(joint / joint.sum(1, keepdims=True), rel=1e-4)
    assert set(classifier.predict(PEOPLE.to_pandas())) <= {"no", "yes"}


def test_a_class_seen_once_shares_what_is_left_for_rare_ones():
    classifier = small(ChainruleClassifier).fit(X, np.array([2, *[0, 1] * 39, 0]))
    assert classifier.predict_proba(X).shape == (80, 3)
    assert classifier.predict_proba(X).sum(1) == pytest.approx(np.ones(80))


def test_a_regressor_predicts_means_and_intervals():
    regressor = small(ChainruleRegressor).fit(X, 2 * X[:, 0])
    means, ends = regressor.predict(X), regressor.predict_interval(X, 0.9)
    cells = regressor.run_.predict(polars.DataFrame({"x0": X[:, 0], "x1": X[:, 1]}), columns=["target"], interval=0.9)
    assert list(means) == cells["mean"]
    assert ends.T.tolist() == [cells["low"], cells["high"]]
    missing = np.where(np.arange(160).reshape(80, 2) % 7, X, np.nan)
    assert np.isfinite(regressor.predict(missing)).all()
    assert len(cross_val_score(small(ChainruleRegressor), X, X[:, 0], cv=2)) == 2


def test_training_is_silent_unless_asked_for(capsys):
    small(ChainruleDensity).fit(X)
    assert capsys.readouterr().err == ""
    small(ChainruleDensity).set_params(verbose=True).fit(X)
    assert "step 4" in capsys.readouterr().err


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    module = sys.modules["chainrule_app.sklearn"]
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(ImportError, match=r"pip install 'chainrule\[sklearn\]'"):
        reload(module)
