"""Other names for hosts and ranks give the same answer with those names; lost logs of victims only weaken it."""

import re
from itertools import accumulate, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metamorphic_jobs import (
    Files,
    assert_not_flipped,
    assert_same,
    brief,
    is_text,
    job_of,
    judge,
    truth_of,
    without_rank,
)

HOSTS = {
    "eval-oom-no-grad": ["seg-gpu07"],
    "torchrun-logdir-eval-oom": ["gpu-a1"],
    "interleaved-nan": ["gpu-a1"],
    "slurm-label-cgroup-oom": ["node-1", "node-2"],
    "slurm-node-failure": ["tx-a", "tx-b", "tx-c", "tx-d"],
    "collective-shape-mismatch": ["gpu-a1"],
    "two-node-segfault": ["dgx-r7-01", "dgx-r7-02"],
    "ray-actor-oom": ["trn-041"],
}
FRESH = ["cn-0417", "cn-0032", "cn-1108", "cn-0950"]
SWAPPED = [name for name, hosts in HOSTS.items() if len(hosts) > 1]
# Runs where a rank is always told as such, and where no launcher derives it from a place.
PERMUTED = {
    "eval-oom-no-grad": (r"(?<=/rank)\d(?=\.log)", range(8)),
    "interleaved-nan": (None, range(4)),
    "collective-shape-mismatch": (r"(?<=attempt_0/)\d(?=/)", range(4)),
    "torchrun-logdir-eval-oom": (r"(?<=attempt_0/)\d(?=/)", range(4)),
}
_RANK = re.compile(
    r"(?P<before>\[rank ?|\brank +|\brank +: |\blocal_rank: |\bRank |\[default|attempt_0/|\bGPU )"
    r"(?P<rank>\d)(?=[\]:) ,/]|$)"
)
SURE = [
    "eval-oom-no-grad", "torchrun-logdir-eval-oom", "interleaved-nan", "slurm-label-cgroup-oom", "slurm-node-failure",
    "hang-flight-recorder", "collective-shape-mismatch", "two-node-segfault", "k8s-oomkilled",
]  # fmt: skip
LOST = [(name, rank) for name in SURE for rank in truth_of(name).collateral]


def renamed(files: Files, names: dict[str, str]) -> Files:
    pattern = re.compile("|".join(sorted(map(re.escape, names), key=len, reverse=True)))

    def change(text: str) -> str:
        return pattern.sub(lambda found: names[found[0]], text)

    result = {}
    for path, data in files.items():
        text = data.decode("utf-8", "surrogateescape")
        result[change(path)] = change(text).encode("utf-8", "surrogateescape") if is_text(path) else data
    return result


def permuted(files: Files, path_rank: str | None, order: tuple[int, ...]) -> Files:
    def change(found: re.Match[str]) -> str:
        return found["before"] + str(order[int(found["rank"])])

    result = {}
    for path, data in files.items():
        new = re.sub(path_rank, lambda found: str(order[int(found[0])]), path) if path_rank else path
        text = data.decode("utf-8", "surrogateescape")
        result[new] = _RANK.sub(change, text).encode("utf-8", "surrogateescape")
    return result


@pytest.mark.parametrize("name", HOSTS)
def test_hosts_with_other_names_give_the_same_ranks_and_the_new_names(name):
    names = dict(zip(HOSTS[name], FRESH, strict=False))
    verdict, truth = judge(renamed(job_of(name), names)), truth_of(name)
    assert_same(verdict, truth)
    assert set(verdict.first_failure.hosts) == {names[host] for host in truth.hosts}, brief(verdict)


@pytest.mark.parametrize("name", SWAPPED)
def test_hosts_that_swap_their_names_swap_them_in_the_answer(name):
    hosts = HOSTS[name]
    names = dict(zip(hosts, hosts[1:] + hosts[:1], strict=True))
    verdict, truth = judge(renamed(job_of(name), names)), truth_of(name)
    assert_same(verdict, truth)
    assert set(verdict.first_failure.hosts) == {names[host] for host in truth.hosts}, brief(verdict)


@pytest.mark.parametrize("name", PERMUTED)
@settings(max_examples=6, deadline=None, derandomize=True)
@given(data=st.data())
def test_ranks_that_swap_their_numbers_swap_them_in_the_answer(name, data):
    path_rank, ranks = PERMUTED[name]
    order = tuple(data.draw(st.permutations(list(ranks))))
    verdict, truth = judge(permuted(job_of(name), path_rank, order)), truth_of(name)
    failure = verdict.first_failure
    assert verdict.outcome == truth.outcome
    assert failure is not None
    assert (failure.status, failure.kind) == (truth.status, truth.kind), brief(verdict)
    assert set(failure.ranks) == {order[rank] for rank in truth.ranks}, f"{order}: {brief(verdict)}"


def test_every_order_of_four_ranks_is_understood_in_one_interleaved_file():
    files, truth = job_of("interleaved-nan"), truth_of("interleaved-nan")
    for order in permutations(range(4)):
        failure = judge(permuted(files, None, order)).first_failure
        assert failure is not None
        assert set(failure.ranks) == {order[rank] for rank in truth.ranks}, order


@pytest.mark.parametrize(("name", "rank"), LOST)
def test_a_lost_log_of_one_victim_never_makes_another_rank_the_culprit(name, rank):
    assert_not_flipped(judge(without_rank(name, job_of(name), rank)), truth_of(name))


@pytest.mark.parametrize("name", SURE)
@pytest.mark.parametrize("backwards", [False, True])
def test_logs_of_victims_lost_one_after_the_other_never_make_another_rank_the_culprit(name, backwards):
    truth = truth_of(name)
    victims = truth.collateral[::-1] if backwards else truth.collateral
    steps = accumulate(victims, lambda files, rank: without_rank(name, files, rank), initial=job_of(name))
    for files in steps:
        if files:
            assert_not_flipped(judge(files), truth)


@pytest.mark.parametrize("name", SURE)
def test_the_lost_log_of_the_culprit_never_makes_a_victim_the_culprit(name):
    truth, files = truth_of(name), job_of(name)
    for rank in truth.ranks:
        files = without_rank(name, files, rank)
    failure = judge(files).first_failure
    if failure is not None and failure.status == "identified":
        assert set(failure.ranks) <= truth.ranks, failure
