"""Versions of NCCL that differ: the rare one is the wrong one, and of two none."""

from correlate_jobs import at, brief, hello, identified, lines, traceback

INVALID = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, invalid "
    "usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.26.{}"
)
MISMATCH = "Mismatched NCCL version detected"


def told(*versions):
    """A log in which each rank tells of the first whose version is another."""
    text = [hello(rank, len(versions)) for rank in range(len(versions))]
    for rank, version in enumerate(versions):
        other = next(n for n, found in enumerate(versions) if found != version)
        differ = f"rank {other} version 2260{versions[other]} rank {rank} version 2260{version}"
        text += [
            f"[{at(5)[:19]}] node-a:{4100 + rank}:500 [{rank}] init.cc:877 NCCL WARN {MISMATCH} : {differ}",
            traceback(INVALID.format(version), f"[rank{rank}]: "),
            f"[rank{rank}]: {MISMATCH} : {differ}",
        ]
    return {"train.log": lines(*text)}


def test_ranks_whose_version_is_rare_are_named_and_not_those_that_report_it(judge):
    verdict = judge(told(2, 2, 2, 5, 5))
    assert brief(verdict) == identified((3, 4), "config_error")
    assert any("not that of most ranks" in reason for reason in verdict.first_failure.reasons)


def test_of_as_many_ranks_with_the_one_as_with_the_other_none_is_named(judge):
    assert brief(judge(told(2, 5)))[1] == "ambiguous"
    assert brief(judge(told(2, 2, 5, 5)))[1] == "ambiguous"


def test_where_all_compare_the_same_two_ranks_each_tells_its_own_version_in_its_error(judge):
    differ = "rank 0 version 22602 rank 3 version 22605"
    text = [hello(rank, 5) for rank in range(5)]
    for rank, version in enumerate((2, 2, 2, 5, 5)):
        text += [traceback(INVALID.format(version), f"[rank{rank}]: "), f"[rank{rank}]: {MISMATCH} : {differ}"]
    assert brief(judge({"train.log": lines(*text)})) == identified((3, 4), "config_error")
