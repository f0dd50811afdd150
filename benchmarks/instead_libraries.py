"""chainrule beside four libraries: densities (zuko), synthetic rows (SDV), tags (spaCy) and forecasts (darts).

    python benchmarks/processor_clock.py 1 benchmarks/instead_libraries.py [--only zuko sdv spacy darts] [--minutes 1]
                                                                           [--data FOLDER] [--seed 0]

The libraries belong to no extra: `pip install zuko sdv spacy darts`. Another folder with them goes into PYTHONPATH. One
that is missing is skipped with a line. FOLDER is ../shared/data by default, or the environment variable CHAINRULE_DATA.

All train on one thread, each for so many minutes (with processor_clock.py: of processor time), on the same rows, and
hold out of them what chooses their weights. The test rows are scored once.

    zuko   NSF and MAF in the sizes of its README (3 transforms, 3 × 128), Adam at 10⁻³: nats of a row. The columns are
           rounded measurements, which a density could win from by spikes: all get uniform noise as wide as their grid.
    sdv    GaussianCopula, and TVAE for as many epochs as fit: as many rows as the test set has, compared with it by
           sdmetrics' QualityReport, and by the accuracy of gradient boosting that is trained on them.
    spacy  the tagger of `spacy.blank("en")`, from scratch: accuracy of universal tags of UD English EWT.
    darts  ExponentialSmoothing, and LinearRegressionModel with quantiles, fitted again before each origin: pinball loss
           ÷ that of the seasonal naive forecast, as in instead_forecasts.py. They need seconds.
"""

import argparse
import gzip
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

import numpy as np
import pandas
import torch
from instead_forecasts import LEVELS, SETS, filled, origins_of, own_losses, relative
from instead_tables import ADULT, WINE
from side_by_side import duels, publish, with_published
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import accuracy_score

import chainrule

Rows = list[dict[str, Any]]
SENSES = {"nats per row": "<=", "quality": ">=", "accuracy": ">=", "pinball": "<="}
REAL = "rows of the training set"  # a bound of what can be drawn, and no competitor
SERIES = ("airline", "temperature")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMPARED, default=list(COMPARED))
    parser.add_argument("--minutes", type=float, default=1.0, help="of training, each")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: Rows = []
    for name in options.only:
        if find_spec(name) is None:
            print(f"{name}: skipped, as it is not installed: pip install {name}")
            continue
        try:
            found = COMPARED[name](options.data, 60 * options.minutes, options.seed)
        except FileNotFoundError as error:
            print(f"{name}: skipped: {error}")
            continue
        rows += found
    if rows:
        rows = with_published("instead_libraries", rows, "library", "data")
        competitors = [row for row in rows if row["who"] != REAL]
        publish("instead_libraries", rows, duels(competitors, ("library", "data"), SENSES))


def densities(folder: Path, seconds: float, seed: int) -> Rows:
    """Nats of unseen rows of two tables of measurements."""
    wine = pandas.read_csv(folder / "tables" / "winequality-white.csv", names=WINE).drop(columns="quality")
    loads = pandas.read_csv(folder / "time_series" / "ETTh1.csv.gz").drop(columns="date")
    rows: Rows = []
    for name, table in (("white wine, 11 columns", wine), ("loads of ETTh1, 7 columns", loads)):
        x = between_grid(table.to_numpy(float), seed)
        x = x[np.random.default_rng(seed).permutation(len(x))]
        cut = len(x) * 4 // 5
        train, test = x[:cut], x[cut:]
        frames = [pandas.DataFrame(part, columns=table.columns) for part in (train, test)]
        run = chainrule.fit(frames[0], task="table", budget=seconds, seed=seed, threads=1)
        figures = {"chainrule": mean(run.score(frames[1])["nats"])}
        figures |= {kind: flow(kind, train, test, seconds, seed) for kind in ("NSF", "MAF")}
        about = {"library": "zuko", "data": name, "rows": len(train)}
        rows += [about | {"who": who, "nats per row": nats} for who, nats in figures.items()]
    return rows


def between_grid(x: "np.ndarray[Any, Any]", seed: int) -> "np.ndarray[Any, Any]":
    """Add uniform noise as wide as the median gap between neighbouring values of each column."""
    gaps = np.array([np.median(np.diff(np.unique(column))) for column in x.T])
    return np.asarray(x + gaps * (np.random.default_rng(seed).random(x.shape) - 0.5))


def flow(kind: str, train: "np.ndarray[Any, Any]", test: "np.ndarray[Any, Any]", seconds: float, seed: int) -> float:
    """Nats of a test row by a flow of zuko; a tenth of the training rows chooses among the weights after each pass."""
    import zuko

    torch.manual_seed(seed)
    location, scale = train.mean(0), train.std(0)
    z, unseen = (torch.tensor((part - location) / scale, dtype=torch.float32) for part in (train, test))
    held_out, z = z[: len(z) // 10], z[len(z) // 10 :]
    model = getattr(zuko.flows, kind)(z.shape[1], transforms=3, hidden_features=(128, 128, 128))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    best, weights, began = math.inf, model.state_dict(), time.monotonic()
    while time.monotonic() - began < seconds:
        for batch in torch.randperm(len(z)).split(256):
            loss = -model().log_prob(z[batch]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            nats = -model().log_prob(held_out).mean().item()
        if nats < best:
            best, weights = nats, {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(weights)
    with torch.no_grad():
        return float(np.log(scale).sum() - model().log_prob(unseen).mean().item())


def synthetic(folder: Path, seconds: float, seed: int) -> Rows:
    """Rows of the census like those of the test set."""
    from sdmetrics.reports.single_table import QualityReport
    from sdv.metadata import Metadata
    from sdv.single_table import GaussianCopulaSynthesizer, TVAESynthesizer

    train, test = (
        pandas.read_csv(folder / "tables" / f"adult-{part}.csv.gz", names=ADULT, skipinitialspace=True)
        for part in ("train", "test")
    )  # a missing cell is the category "?": with pandas 3, rdt 1.19 fails on missing ones
    test = test.assign(income=test.income.str.rstrip("."))
    metadata = Metadata.detect_from_dataframe(train, infer_keys=None)
    single = next(iter(metadata.to_dict()["tables"].values()))

    def drawn(synthesizer: Any) -> pandas.DataFrame:
        torch.manual_seed(seed)
        np.random.seed(seed)
        synthesizer.fit(train)
        return pandas.DataFrame(synthesizer.sample(len(test)))

    def of_epochs(epochs: int) -> Any:
        return TVAESynthesizer(metadata, epochs=epochs, enable_gpu=False)

    took = []
    for epochs in (1, 2):
        began = time.monotonic()
        drawn(of_epochs(epochs))
        took.append(time.monotonic() - began)
    epochs = max(1, int((seconds - 2 * took[0] + took[1]) / max(took[1] - took[0], 0.1)))
    run = chainrule.fit(train, task="table", budget=seconds, seed=seed, threads=1)
    tables = {
        "chainrule": pandas.DataFrame(run.sample(len(test), seed=seed))[list(train)],
        "GaussianCopula": drawn(GaussianCopulaSynthesizer(metadata)),
        f"TVAE, {epochs} epochs": drawn(of_epochs(epochs)),
        REAL: train.sample(len(test), random_state=seed),
    }
    rows: Rows = []
    for who, table in tables.items():
        quality = QualityReport()
        quality.generate(test, table.reset_index(drop=True), single, verbose=False)
        shapes = quality.get_properties().set_index("Property")["Score"]
        rows.append(
            {"library": "sdv", "data": "adult", "rows": len(train), "who": who, "quality": float(quality.get_score()),
             "columns": float(shapes["Column Shapes"]), "pairs": float(shapes["Column Pair Trends"]),
             "accuracy": trained_on(table, test)}
        )  # fmt: skip
    return rows


def trained_on(table: pandas.DataFrame, test: pandas.DataFrame) -> float:
    """The accuracy of the income of test rows by gradient boosting that is trained on a table."""
    x, z = table.drop(columns="income"), test.drop(columns="income")
    for column in x:
        if not pandas.api.types.is_numeric_dtype(z[column]):
            z[column] = pandas.Categorical(z[column])
            x[column] = pandas.Categorical(x[column], categories=z[column].cat.categories)
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0, early_stopping=True)
    return float(accuracy_score(test.income, model.fit(x.astype(z.dtypes), table.income).predict(z)))


def sentences(path: Path) -> list[list[tuple[str, str]]]:
    """Words and universal tags of a CoNLL-U file."""
    found: list[list[tuple[str, str]]] = [[]]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if cells[0].isdigit():
                found[-1].append((cells[1], cells[3]))
            elif len(cells) == 1 and not cells[0] and found[-1]:
                found.append([])
    return [sentence for sentence in found if sentence]


def tags(folder: Path, seconds: float, seed: int) -> Rows:
    """Accuracy of the tags of unseen sentences."""
    import spacy
    from spacy.tokens import Doc
    from spacy.training import Example

    paths = [folder / "ud_english_ewt" / f"en_ewt-ud-{part}.conllu.gz" for part in ("train", "dev", "test")]
    train, dev, test = map(sentences, paths)
    run = chainrule.fit(str(paths[0]), task="tag", validation=str(paths[1]), budget=seconds, seed=seed, threads=1)
    ours = run.evaluate(str(paths[2])).summary["accuracy"]

    spacy.util.fix_random_seed(seed)
    pipeline = spacy.blank("en")
    tagger = pipeline.add_pipe("tagger")

    def examples(part: list[list[tuple[str, str]]]) -> list[Example]:
        return [
            Example.from_dict(Doc(pipeline.vocab, words=[word for word, _ in each]), {"tags": [tag for _, tag in each]})
            for each in part
        ]

    def accuracy(part: list[list[tuple[str, str]]]) -> float:
        docs = [Doc(pipeline.vocab, words=[word for word, _ in each]) for each in part]
        pairs = zip(tagger.pipe(docs), part, strict=True)
        right = [token.tag_ == tag for doc, each in pairs for token, (_, tag) in zip(doc, each, strict=True)]
        return mean(right)

    learnt, random, best, weights = examples(train), Random(seed), 0.0, b""
    optimiser = pipeline.initialize(lambda: learnt)
    began = time.monotonic()
    for batch in endless(learnt, random):
        over = time.monotonic() - began >= seconds
        if batch is not None and not over:
            pipeline.update(batch, drop=0.1, sgd=optimiser, losses={})
        elif (found := accuracy(dev)) > best:  # after each pass, and at the end
            best, weights = found, tagger.to_bytes()
        if over:
            break
    tagger.from_bytes(weights)
    about = {"library": "spacy", "data": "tags of UD English EWT", "rows": len(train)}
    return [about | {"who": "chainrule", "accuracy": ours}, about | {"who": "tagger", "accuracy": accuracy(test)}]


def endless(items: list[Any], random: Random) -> Iterator[list[Any] | None]:
    """Batches of 32 in random order, and None after each pass."""
    while True:
        random.shuffle(items)
        yield from (items[start : start + 32] for start in range(0, len(items), 32))
        yield None


def forecasts(folder: Path, seconds: float, seed: int) -> Rows:
    """Relative pinball losses of two series."""
    from darts import TimeSeries
    from darts.models import ExponentialSmoothing, LinearRegressionModel

    def smoothing(past: Any, season: int, horizon: int) -> "np.ndarray[Any, Any]":
        model = ExponentialSmoothing(seasonal_periods=season, random_state=seed).fit(past)
        paths = model.predict(horizon, num_samples=500).all_values()[:, 0]
        return np.quantile(paths, LEVELS, axis=1).T

    def regression(past: Any, season: int, horizon: int) -> "np.ndarray[Any, Any]":
        model = LinearRegressionModel(
            lags=2 * season, output_chunk_length=horizon, likelihood="quantile", quantiles=LEVELS, random_state=seed
        ).fit(past)
        return np.asarray(model.predict(horizon, predict_likelihood_parameters=True).all_values()[:, :, 0])

    rows: Rows = []
    for name in SERIES:
        series = SETS[name](folder / "time_series")
        about = {"library": "darts", "data": name, "rows": len(next(iter(series.columns.values())))}
        rows.append(about | {"who": "chainrule", "pinball": mean(own_losses(series, "test", seconds, seed))})
        origins = origins_of(series, "test")
        for who, method in (("ExponentialSmoothing", smoothing), ("LinearRegressionModel", regression)):
            losses, began = [], time.monotonic()
            for column, values in series.columns.items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ahead = [
                        method(TimeSeries.from_values(filled(values[:origin])[-1500:]), series.season, series.horizon)
                        for origin in origins
                    ]
                losses.append(relative(series, column, origins, ahead))
            rows.append(about | {"who": who, "pinball": mean(losses), "seconds": round(time.monotonic() - began, 1)})
    return rows


COMPARED: dict[str, Callable[[Path, float, int], Rows]] = {
    "zuko": densities, "sdv": synthetic, "spacy": tags, "darts": forecasts,
}  # fmt: skip


if __name__ == "__main__":
    main()
