"""One run used by several threads and processes, and a run whose directory changes beneath it."""

import copy
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread
from time import sleep

import pytest
import torch

import chainrule
from chainrule.models import RecurrentLM
from chainrule.state import map_state
from chainrule.testing import check_model
from chainrule_app.tasks.run_directory import ChangedRunError

TINY = {"hidden_size": 8, "steps": 1, "threads": 1, "precision": "float32"}
ROSES = "roses are red\nviolets are blue\n" * 40
ROWS = [{"a": number % 7, "b": "xyz"[number % 3]} for number in range(60)]


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))  # noqa: S301  what we pickled ourselves


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return chainrule.fit(text=ROSES, out=tmp_path_factory.mktemp("runs") / "text", **TINY).path


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return chainrule.fit(ROWS, out=tmp_path_factory.mktemp("runs") / "table", **TINY).path


def test_a_run_is_loaded_once_and_scores_alike_in_all_threads(text):
    texts = ["roses", "violets", "red", "blue"] * 4
    expected = [chainrule.load(text).score([one])["nats"] for one in texts]
    for _ in range(3):
        run = chainrule.load(text)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda one: run.score([one])["nats"], texts)) == expected  # noqa: B023
            assert len({id(model) for model in pool.map(lambda _: run.model, range(8))}) == 1  # noqa: B023


def test_several_runs_are_loaded_at_once(text, table):
    """Loading watches how many weights a model has; it watched the models of other threads too."""
    expected = chainrule.load(text).score(["red"])["nats"], chainrule.load(table).score(ROWS[:2])["nats"]

    def score(number):
        if number % 2:
            return chainrule.load(table).score(ROWS[:2])["nats"] == expected[1]
        return chainrule.load(text).score(["red"])["nats"] == expected[0]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(score, range(32)))


def test_loading_disturbs_nothing_in_other_threads(table):
    """It drew initial weights, from the global generator, which it seeded and restored."""
    torch.manual_seed(7)
    expected, ended, seen = torch.get_rng_state(), Event(), set()

    def watch():
        while not ended.is_set():
            seen.add(
                (
                    torch.equal(torch.get_rng_state(), expected),
                    torch.get_default_dtype(),
                    torch.nn.Linear(1, 1).in_features,
                )
            )
            torch.set_rng_state(expected)
            sleep(0.001)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        for _ in range(5):
            chainrule.load(table).score(ROWS[:2])
    finally:
        ended.set()
        watcher.join()
    assert seen <= {(True, torch.float32, 1)}


def test_a_check_changes_no_setting_of_other_threads():
    """It set the default dtype of the process to float64, so that other threads drew and scored in it."""
    ended, seen = Event(), set()

    def watch():
        while not ended.is_set():
            with pytest.raises(ValueError, match="Expected parameter scale"):
                torch.distributions.Normal(0.0, -1.0)
            seen.add((torch.get_default_dtype(), torch.zeros(1).dtype, torch.get_num_threads()))
            sleep(0.001)

    with ThreadPoolExecutor(1) as pool:
        threads = pool.submit(torch.get_num_threads).result()
        watching = pool.submit(watch)
        try:
            report = check_model(Careless(), torch.randint(3, (4, 6)))
        finally:
            ended.set()
        watching.result()
    assert report.ok, report
    assert seen == {(torch.float32, torch.float32, threads)}


class Careless(RecurrentLM):
    """Makes tensors of the default dtype: real numbers of integers, and states without a dtype."""

    def __init__(self):
        super().__init__(vocab_size=3, hidden_size=4, cell="rnn")

    def initial_state(self, batch_size, context=None):
        state = super().initial_state(batch_size, context)
        return map_state(
            lambda leaf: torch.zeros(leaf.shape) + torch.tensor([1, 2, 3])[0] / 3 - torch.full((), 1 / 3), state
        )


def test_a_seed_gives_the_same_samples_in_all_threads(table):
    run = chainrule.load(table)
    expected = [list(run.sample(3, seed=seed)) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda seed: list(run.sample(3, seed=seed)), range(4))) == expected


@pytest.mark.parametrize("clone", [pickled, copy.deepcopy, copy.copy])
def test_runs_are_copied_and_pickled(clone, text, table):
    for path, data in ((text, ["red"]), (table, ROWS[:2])):
        run = chainrule.load(path)
        other = clone(run)
        assert other.path == path
        assert other.score(data)["nats"] == run.score(data)["nats"]


def test_a_run_without_a_directory_of_its_own_is_pickled_with_its_files(tmp_path):
    run = chainrule.fit(ROWS, **TINY)
    expected, path = run.score(ROWS[:2])["nats"], run.path
    twins = copy.deepcopy(run), pickled(run)
    del run
    assert not path.exists()
    for other in twins:
        assert other.score(ROWS[:2])["nats"] == expected
        other.save(tmp_path / "saved", overwrite=True)
        assert chainrule.load(tmp_path / "saved").score(ROWS[:2])["nats"] == expected


def test_a_run_of_a_module_is_pickled_with_its_files():
    run = chainrule.fit(RecurrentLM(vocab_size=3, hidden_size=4), torch.tensor([[0, 1, 2]] * 10), steps=1)
    for other in (pickled(run), copy.deepcopy(run)):
        assert other.path != run.path
        assert (other.path / "model.safetensors").is_file()
        assert other.score(torch.tensor([[0, 1]]))["nats"] == run.score(torch.tensor([[0, 1]]))["nats"]


@pytest.mark.parametrize("clone", [pickled, copy.deepcopy])
def test_results_are_copied_and_pickled_before_and_after_they_are_read(clone, text, table, tmp_path):
    (tmp_path / "text.txt").write_text("red\nblue\n")
    for read in (False, True):
        for result in (chainrule.load(text).score(tmp_path / "text.txt"), chainrule.load(table).score(ROWS[:3])):
            if read:
                len(result)
            other = clone(result)
            assert list(other) == list(result)
            assert (other.summary, other.about, list(other.notes())) == (
                result.summary,
                result.about,
                list(result.notes()),
            )
            assert (other.likelihood(), repr(other)) == (result.likelihood(), repr(result))
            assert list(other.top(1)) == list(result.top(1))


def test_a_result_is_read_whole_by_each_of_several_threads(text, tmp_path):
    (tmp_path / "text.txt").write_text("red\nblue\n" * 50)
    run = chainrule.load(text)
    expected = list(run.score(tmp_path / "text.txt", per="line"))
    result = run.score(tmp_path / "text.txt", per="line")
    with ThreadPoolExecutor(8) as pool:
        assert all(rows == expected for rows in pool.map(lambda _: list(result), range(8)))


def test_a_run_that_was_trained_again_is_never_mixed_with_the_old_one(text, tmp_path):
    """Vocabulary and weights were read at different times: the weights of one run met the vocabulary of another."""
    path = shutil.copytree(text, tmp_path / "run")
    run, unread = chainrule.load(path), chainrule.load(path)
    content = pickle.dumps(run)
    run.score(["red"])
    chainrule.fit(text="der Hund bellt\n" * 60, out=path, overwrite=True, **{**TINY, "steps": 2})
    for old in (run, unread):
        for call in (lambda: old.score(["red"]), old.sample, lambda: next(old.stream()), old.check, old.report):  # noqa: B023
            with pytest.raises(ChangedRunError, match="trained again since it was opened: load it again"):
                call()
    with pytest.raises(ChangedRunError):
        _ = unread.model
    with pytest.raises(ChangedRunError):
        pickle.loads(content)  # noqa: S301
    assert chainrule.load(path).score(["Hund"])["nats"]


def test_a_run_that_was_deleted_says_so(text, tmp_path):
    path = shutil.copytree(text, tmp_path / "run")
    run = chainrule.load(path)
    shutil.rmtree(path)
    with pytest.raises(ChangedRunError, match="deleted since it was opened"):
        run.score(["red"])


def test_a_run_that_goes_on_in_this_process_is_the_new_one(text, tmp_path):
    run = chainrule.load(shutil.copytree(text, tmp_path / "run"))
    before = run.model
    run.resume(steps=2)
    assert run.model is not before
    assert run.score(["red"])["nats"] == chainrule.load(run.path).score(["red"])["nats"]
