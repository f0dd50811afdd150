"""Runs that are written to a URL: a copy to work in, whose files go there in an order that keeps the run whole."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from chainrule.option_error import TakenError
from chainrule_app.printing import url_of
from chainrule_app.readers.copies import WORK, note_version, use
from chainrule_app.readers.remote import Info, Place, copy_of_folder, version_of
from chainrule_app.tasks.run_directory import (
    CHECKPOINT,
    CONFIG,
    FILES,
    NEIGHBOURS,
    NGRAMS,
    SHARDS,
    VOCABULARY,
    is_locked,
    remove,
)

# What changes in one training.
_WHILE_TRAINING = {*FILES, *SHARDS, "tensorboard", "wandb"} - {VOCABULARY, NGRAMS, NEIGHBOURS}


def copy_to_work_in(out: str | Path) -> Path:
    """Return the directory in which a run is written: of a URL, or of a copy, the copy to work in."""
    url = url_of(out)
    return Path(out) if url is None else Place.of(url, WORK).copy


@contextmanager
def publishing(out: str | Path) -> Iterator["Publisher | None"]:
    """Bring a run behind a URL into the copy to work in, and send what was changed at the end, after errors too."""
    url = url_of(out)
    publisher = None if url is None else Publisher(url)
    try:
        yield publisher
    finally:
        if publisher is not None:
            publisher.send()


class Publisher:
    """Sends the files of a run to its URL.

    A run is there when its config.json is: that is sent last, and leaves first where a new run replaces an old one. All
    other files are sent whole, so that whoever reads meanwhile finds the old one or the new one.
    """

    def __init__(self, url: str):
        self._place = Place.of(url, WORK)
        self.copy = self._place.copy
        if is_locked(self.copy):
            raise TakenError("out", f"another process is working in {self._place}", "wait for it, or stop it")
        use(self.copy)
        infos: list[Info] = []
        with suppress(FileNotFoundError):
            infos = self._place.files()
        if infos:
            copy_of_folder(self._place, infos)
        else:
            remove(self.copy)  # not what a preparation that was killed left
        self._sent = self._files()

    def send(self) -> None:
        """Send what changed since the last time."""
        files = self._files()
        changed = {name for name, state in files.items() if self._sent.get(name) != state}
        gone = self._sent.keys() - files.keys()
        if CONFIG not in files or not changed | gone:
            return
        if any(name.partition("/")[0] not in _WHILE_TRAINING for name in changed | gone):
            changed.add(CONFIG)
            if CONFIG in self._sent:
                self._delete(CONFIG)
        for name in sorted(changed - {CONFIG}):
            self._put(name)
            self._sent[name] = files[name]
        for name in sorted(gone - {CONFIG}):  # after the checkpoint that no longer names them
            self._delete(name)
        if CONFIG in changed:
            self._put(CONFIG)
            self._sent[CONFIG] = files[CONFIG]

    def send_saved(self) -> None:
        """Send what changed, if a checkpoint was saved since the last time."""
        with suppress(FileNotFoundError):
            if self._state(self.copy / CHECKPOINT) != self._sent.get(CHECKPOINT):
                self.send()

    def _files(self) -> dict[str, tuple[int, int]]:
        names = {path.relative_to(self.copy).as_posix(): path for path in self.copy.rglob("*") if path.is_file()}
        return {name: self._state(path) for name, path in names.items() if "/." not in f"/{name}"}

    @staticmethod
    def _state(path: Path) -> tuple[int, int]:
        stat = path.stat()
        return stat.st_size, stat.st_mtime_ns

    def _at(self, name: str) -> Place:
        return self._place.part(f"{self._place.name.rstrip('/')}/{name}")

    def _put(self, name: str) -> None:
        place, path = self._at(name), self.copy / name
        place.ask(lambda fs: fs.put_file(str(path), place.name))
        note_version(path, version_of(place.info()))

    def _delete(self, name: str) -> None:
        place = self._at(name)
        with suppress(FileNotFoundError):
            place.ask(lambda fs: fs.rm_file(place.name))
        self._sent.pop(name, None)
