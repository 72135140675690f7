"""Which names before each line of a file are hosts."""

import pytest

from parsers.prefixes import hosts_in_front

MAPPING = "global_rank_mapping=defaultdict(<class 'list'>, {'wk-a': [0, 1], 'wk-b': [2, 3]})"


def test_names_that_the_launcher_lists_need_no_digit():
    assert hosts_in_front([f"wk-a: {MAPPING}"] + [f"wk-{'ab'[n % 2]}: step {n}" for n in range(12)]) == {"wk-a", "wk-b"}
    command = "cmd = pdsh -S -f 1024 -w wk-a,wk-b export PYTHONPATH=/w"
    assert hosts_in_front([command] + [f"wk-{'ab'[n % 2]}: step {n}" for n in range(12)]) == {"wk-a", "wk-b"}


def test_names_without_a_digit_that_nothing_lists_are_words():
    assert not hosts_in_front([f"train-loop: step {n}" for n in range(12)])


def test_a_name_in_brackets_between_time_and_rank_is_a_host():
    assert hosts_in_front([f"[21:00:{n:02}] [hx-02] [r{n % 8:02}] step {n}" for n in range(12)]) == {"hx-02"}


@pytest.mark.parametrize("name", ["gpu3", "worker-1", "local_2", "epoch4"])
def test_a_device_or_count_in_brackets_is_none(name):
    assert not hosts_in_front([f"[{name}] [rank {n % 8}] step {n}" for n in range(12)])


def test_a_rank_of_eight_that_writes_otherwise_does_not_hide_the_names_of_the_others():
    lines = [f"hx-{n % 8:02}: step {n // 8}" if n % 8 else f"{n // 8} steps done" for n in range(200)]
    assert hosts_in_front(lines) == {f"hx-{n:02}" for n in range(1, 8)}
