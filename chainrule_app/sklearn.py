"""Estimators for scikit-learn on the joint model of a table: a density, a classifier and a regressor.

One model of the rows does all three: a classifier reads p(y | x) from it, a regressor the mean of p(y | x), and a
density log p(x). They go into pipelines, searches and cross-validation, and pass scikit-learn's `check_estimator`.
"""

import io
from contextlib import nullcontext, redirect_stderr
from typing import Any, Self

import numpy as np
import polars

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, RegressorMixin
    from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import assert_all_finite, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ImportError("chainrule_app.sklearn needs scikit-learn: pip install 'chainrule[sklearn]'") from error

from chainrule_app import frames
from chainrule_app.fitting import fit as fit_run

__all__ = ["ChainruleClassifier", "ChainruleDensity", "ChainruleRegressor"]
_OTHER = "<other>"  # the category of rare classes
_FEWEST = 5  # rows to train on and to hold out


class _TableEstimator(BaseEstimator):
    """What all three share: the options, and the rows of X as a frame."""

    def __init__(
        self,
        *,
        budget: str | float | None = None,
        steps: int | None = None,
        options: dict[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.budget = budget
        self.steps = steps
        self.options = options
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def _rows(self, X: Any, *, fitting: bool) -> Any:
        """Return X as a frame, checked as scikit-learn checks it; a frame keeps its types."""
        if frames.is_frame(X) and not frames.is_series(X):
            validate_data(self, X, reset=fitting, skip_check_array=True)
            frame = frames.as_frame(X)
            if len(frame) == 0:
                raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
            return frame
        X = validate_data(self, X, reset=fitting, ensure_all_finite="allow-nan", dtype=(np.float64, np.float32))
        return polars.DataFrame({f"x{number}": np.ascontiguousarray(column) for number, column in enumerate(X.T)})

    def _train(self, frame: Any, **more: Any) -> None:
        if len(frame) < _FEWEST:
            raise ValueError(
                f"n_samples={len(frame)} is too few: expected at least {_FEWEST} rows, one of them to hold out"
            )
        seed = int(check_random_state(self.random_state).randint(1 << 31))
        own = dict(self.options or {})
        types = {**more.pop("types", {}), **own.pop("types", {})}
        options = {"task": "table", "seed": seed, "types": types, **more, **own}
        with nullcontext() if self.verbose else redirect_stderr(io.StringIO()):
            self.run_: Any = fit_run(frame, budget=self.budget, steps=self.steps, **options)

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(1 << 31))


class ChainruleDensity(DensityMixin, _TableEstimator):
    """A density of rows, ∏_j p(x_j | x_<j): exact, of columns of any types.

    Args:
        budget: training time, such as "30s" or seconds; one minute by default.
        steps: number of weight updates; replaces the budget.
        options: other options of `chainrule.fit` for a table, such as `{"hidden_size": 64}`.
        random_state: seed of the weights, of the rows held out and of draws.
        verbose: whether training prints its progress.

    Attributes:
        run_: the trained `Run`, with all its methods.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> density = ChainruleDensity(steps=5, random_state=0).fit(X)
    >>> density.score_samples(X).shape, density.sample(3).shape
    ((200,), (3, 2))
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train on rows X (n, d): an array, or a frame with columns of any types. y is ignored."""
        frame = self._rows(X, fitting=True)
        self._framed_ = frame is not X and not frames.is_frame(X)
        self._train(frame)
        return self

    def score_samples(self, X: Any) -> Any:
        """Return log p(x) of each row (n,), in nats: a density where columns are real numbers."""
        check_is_fitted(self)
        rows = self.run_.score(self._rows(X, fitting=False))
        return -rows.to_numpy("nats")

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows, in nats."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw rows: an array where X was one, else a frame of its kind."""
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(1 << 31))
        drawn = self.run_.sample(n_samples, seed=seed)
        return drawn.to_numpy() if self._framed_ else drawn


class _Predictor(_TableEstimator):
    """A model of the rows and their target, which it visits last."""

    def _fit_target(self, X: Any, y: Any, frame: Any, kind: str) -> None:
        names = {str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)}
        self._target_ = "target"
        while self._target_ in names:
            self._target_ += "_"
        from chainrule_app.data_sets import with_answers

        handed = with_answers(frame, polars.Series(self._target_, y), "table")
        self._train(handed.data, target=self._target_, types={self._target_: kind})

    def _predicted(self, X: Any) -> Any:
        check_is_fitted(self)
        frame = self._rows(X, fitting=False)
        return self.run_.predict(frame, columns=[self._target_], seed=self._seed())


class ChainruleClassifier(ClassifierMixin, _Predictor):
    """A classifier that reads p(y | x) from the joint model of rows and their classes.

    The model visits the class last, and its weights are chosen by the log loss of held-out rows (`--target`). Cells of
    X may be missing, and columns of a frame may be of any types. The arguments are those of `ChainruleDensity`.

    Attributes:
        classes_: (K,) the classes.
        run_: the trained `Run`, which also samples rows, scores them and fills any other column.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> classifier = ChainruleClassifier(steps=5, random_state=0).fit(X, X[:, 0] > 0)
    >>> classifier.predict_proba(X).shape
    (200, 2)
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (n, d), an array or a frame, and their classes y (n,)."""
        y = _target_of(self, y)
        check_classification_targets(y)
        frame = self._rows(X, fitting=True)
        check_consistent_length(frame, y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) > 1:
            self._fit_target(X, list(map(str, codes.tolist())), frame, "categorical")
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return p(y | x) of each class, (n, K)."""
        check_is_fitted(self)
        if len(self.classes_) == 1:
            return np.ones((len(self._rows(X, fitting=False)), 1))
        shares = self._predicted(X)["shares"]
        labels = list(map(str, range(len(self.classes_))))
        rare = [label not in shares[0] for label in labels]
        rows = np.array([[row.get(label, 0.0) for label in labels] for row in shares])
        if any(rare):
            rows[:, rare] = np.array([[row.get(_OTHER, 0.0) / sum(rare)] for row in shares])
        return rows / rows.sum(1, keepdims=True)

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each row, (n,)."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]


class ChainruleRegressor(RegressorMixin, _Predictor):
    """A regressor that predicts the mean of p(y | x) of the joint model of rows and their targets.

    The model visits the target last, and its weights are chosen by the log-likelihood of held-out targets
    (`--target`). The arguments are those of `ChainruleDensity`.

    Attributes:
        run_: the trained `Run`; `run_.predict` also gives intervals, medians and quantiles.
        n_features_in_, feature_names_in_: as in scikit-learn.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> regressor = ChainruleRegressor(steps=5, random_state=0).fit(X, X[:, 0])
    >>> regressor.predict(X).shape, regressor.predict_interval(X, 0.9).shape
    ((200,), (200, 2))
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Train on rows X (n, d), an array or a frame, and their targets y (n,)."""
        y = _target_of(self, y)
        frame = self._rows(X, fitting=True)
        check_consistent_length(frame, y)
        self._fit_target(X, np.asarray(y, dtype=np.float64), frame, "real")
        return self

    def predict(self, X: Any) -> Any:
        """Return the mean of p(y | x) of each row, (n,)."""
        return np.asarray(self._predicted(X)["mean"], dtype=np.float64)

    def predict_interval(self, X: Any, coverage: float = 0.8) -> Any:
        """Return the ends of the central interval of p(y | x) of each row, (n, 2)."""
        check_is_fitted(self)
        frame = self._rows(X, fitting=False)
        rows = self.run_.predict(frame, columns=[self._target_], interval=coverage, seed=self._seed())
        return np.stack([rows.to_numpy("low"), rows.to_numpy("high")], axis=1)


def _target_of(estimator: Any, y: Any) -> Any:
    """Return y (n,) as an array without missing values."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None."
        )
    y = column_or_1d(y, warn=True)
    assert_all_finite(y, input_name="y")
    return y
