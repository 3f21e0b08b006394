"""A stage's inbox: entries, and wake-ups that cannot be missed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_shmring import ScopeError, TooManyReceiversError, layout, names
from omni_shmring.inbox import Inbox

STAGE = names.digest("stage")


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_both_sides_map_one_page(directory: int) -> None:
    ours, theirs = Inbox(directory, STAGE, 1), Inbox(directory, STAGE, 2)
    before = theirs.rings_word[0]
    ours.announce_rings()
    assert theirs.rings_word[0] != before
    assert os.listdir(directory) == [names.inbox_file(STAGE)]
    ours.close()
    theirs.close()


def test_a_bell_between_arming_and_sleeping_is_heard(directory: int) -> None:
    ours, theirs = Inbox(directory, STAGE, 1), Inbox(directory, STAGE, 2)
    for _ in range(100):
        ticket = ours.arm()
        theirs.ring()
        ours.sleep(ticket, 60)  # returns at once, or the test's limit ends it
    woken = threading.Event()
    ticket = ours.arm()
    sleeper = threading.Thread(target=lambda: (ours.sleep(ticket, 60), woken.set()))
    sleeper.start()
    theirs.ring()
    sleeper.join()
    assert woken.is_set()
    ours.close()
    theirs.close()


def test_entries_go_to_the_living(directory: int) -> None:
    inbox = Inbox(directory, STAGE, 1)
    alive = {100 + n for n in range(layout.MAX_RECEIVERS)}
    for number in range(layout.MAX_RECEIVERS):
        assert inbox.take_entry(100 + number, alive.__contains__) == (number, False)
    with pytest.raises(TooManyReceiversError):
        inbox.take_entry(999, alive.__contains__)
    alive.discard(105)
    assert inbox.take_entry(999, alive.__contains__) == (5, True)
    inbox.leave_entry(5)
    assert inbox.take_entry(1000, alive.__contains__) == (5, False)
    assert inbox.receiver_count[0] == layout.MAX_RECEIVERS
    inbox.close()


def test_something_else_under_its_name_is_refused(directory: int, tmp_path: Path) -> None:
    (tmp_path / names.inbox_file(STAGE)).write_bytes(b"not an inbox")
    with pytest.raises(ScopeError):
        Inbox(directory, STAGE, 1)
