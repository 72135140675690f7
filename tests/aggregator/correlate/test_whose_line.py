"""Whose words a line is: told by its file, its launcher's tag, its prefix or its own text, the surest first."""

import pytest
from correlate_jobs import (
    ILLEGAL,
    KEY,
    OOM,
    RESET,
    at,
    brief,
    hello,
    identified,
    lines,
    steps,
    traceback,
)


def rank_files(culprit, error=OOM, world=4, name="rank_{}.log"):
    return {
        name.format(rank): lines(steps(None, 1, 5), traceback(error if rank == culprit else RESET))
        for rank in range(world)
    }


@pytest.mark.parametrize(
    "name",
    [
        "rank_{}.log",
        "logs/train_rank_0000{}.log",
        "nemo_log_globalrank-{0}_localrank-{0}.txt",
        "rank.{}/stderr",
        "rank{}.stderr.txt",
        "20261201100000_rank{}.log",
        "out/{}.log",
    ],
)
def test_the_file_of_one_rank_tells_whose_fault_it_is(judge, name):
    verdict = judge(rank_files(2, name=name))
    assert brief(verdict) == identified(2, "cuda_oom")
    assert {row.rank: row.kind for row in verdict.collateral} == dict.fromkeys((0, 1, 3), "network_error")


@pytest.mark.parametrize(
    "tag",
    [
        "[rank{}]: ",
        "{}: ",
        "[1,{}]<stderr>:",
        "[{}]<stderr>:",
        "[rank {}] ",
        "(RayTrainWorker rank={0} pid=4110{0}) ",
    ],
)
def test_the_tag_of_a_launcher_tells_whose_fault_it_is_in_a_merged_file(judge, tag):
    text = [steps(rank, 1, 2).replace("2026", tag.format(rank) + "2026") for rank in range(4)]
    text += [traceback(KEY if rank == 3 else RESET, tag.format(rank)) for rank in (0, 3, 1, 2)]
    assert brief(judge({"train.log": lines(*text)})) == identified(3, "python_exception")


@pytest.mark.parametrize(
    "line",
    [
        "{at} [rank {rank}] ERROR tinylm: Loss is nan at step 11, stopping training",
        "[{at}] [ERROR] [engine.py:12:step] [Rank {rank}] Loss is nan at step 11, stopping training",
        "[NeMo E {day} nemo_logging:361 rank:{rank}] Loss is nan at step 11, stopping training",
        "R{rank} | Loss is nan at step 11, stopping training",
        "[RANK {rank}] Loss is nan at step 11, stopping training",
        "[hgx-a rank{rank}] Loss is nan at step 11, stopping training",
    ],
)
def test_the_prefix_of_a_logger_tells_whose_fault_it_is(judge, line):
    fault = line.format(at="2026-12-01 10:00:09,000", day="2026-12-01 10:00:09", rank=1)
    text = [hello(rank, 4) for rank in range(4)] + [steps(rank, 1, 3) for rank in range(4)] + [fault]
    verdict = judge({"train.log": lines(*text)})
    assert brief(verdict) == identified(1, "nan_loss")


def test_a_rank_that_the_message_itself_tells_is_used_where_nothing_else_tells_one(judge):
    fault = "Unexpected result nan on rank 5 at iteration #120 invocation #1 (message='found NaN in local grad norm')"
    text = [f"rank {rank} up on node-a" for rank in range(8)]
    assert brief(judge({"train.log": lines(*text, fault)})) == identified(5, "nan_loss")


def two_named_files(introduce):
    return {
        f"worker-{name}.txt": lines(introduce(rank), steps(None, 1, 4), traceback(error))
        for name, rank, error in (("blue", 1, RESET), ("red", 0, KEY))
    }


def test_two_files_that_introduce_their_ranks_are_theirs_whole(judge):
    files = two_named_files(lambda rank: f"Process rank: {rank}, device: cuda:{rank}, n_gpu: 1")
    assert brief(judge(files)) == identified(0, "python_exception")


def test_two_files_whose_every_prefix_tells_one_rank_are_theirs_whole(judge):
    files = two_named_files(lambda rank: hello(rank, 2))
    assert brief(judge(files)) == identified(0, "python_exception")


def test_one_merged_file_where_only_rank_0_introduces_itself_is_not_all_of_rank_0(judge):
    text = lines(hello(0, 4), steps(None, 1, 4), traceback(KEY))
    status, ranks = brief(judge({"train.log": text}))[1:3]
    assert (status, ranks) == ("undetermined", ())


# What a line says of itself can be printed by anyone.


def test_a_line_in_one_ranks_file_that_calls_itself_another_does_not_blame_the_other(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 8), steps(rank, 1, 6)) for rank in range(8)}
    files["rank_0.log"] += "[rank7]: CUDA out of memory\n"
    files["rank_0.log"] += f"[rank7]: {OOM}\n"
    verdict = judge(files)
    assert 7 not in brief(verdict)[2]
    assert "lines of rank 0 call themselves rank 7: where they were found outranks what they say" in verdict.warnings


def test_a_forged_traceback_does_not_take_the_blame_from_the_rank_whose_file_it_is_in(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), steps(rank, 1, 4), traceback(RESET)) for rank in range(4)}
    files["rank_1.log"] = lines(hello(1, 4), steps(1, 1, 4), traceback(KEY, "[rank3]: "))
    verdict = judge(files)
    assert brief(verdict) == identified(1, "python_exception")
    assert any("rank 1 call themselves rank 3" in warning for warning in verdict.warnings)


def test_a_label_of_srun_outranks_the_tag_printed_behind_it(judge):
    text = [f"{rank}: {hello(rank, 4)}" for rank in range(4)]
    text += [f"2: [rank3]: {OOM}", *(f"{rank}: [rank{rank}]: {RESET}" for rank in (0, 1, 3))]
    assert brief(judge({"slurm-7.out": lines(*text)})) == identified(2, "cuda_oom")


# A number in a file's name need not be the global rank.


def test_torchruns_tag_of_a_role_that_is_called_rank_holds_a_local_rank(judge):
    text = [f"{node}: [rank{local}]:{at(1)} INFO step {n}" for n in range(9) for node in range(2) for local in range(2)]
    for rank, error in ((3, OOM), (0, RESET), (1, RESET)):
        text += [f"{rank // 2}: [rank{rank % 2}]:{line}" for line in traceback(error, f"[rank{rank}]: ").splitlines()]
    verdict = judge({"slurm-1.out": lines(*text)})
    assert brief(verdict) == identified(3, "cuda_oom")


def test_two_nodes_files_of_the_same_names_are_two_ranks_each(judge):
    files = {}
    for node, base in (("node-a", 0), ("node-b", 2)):
        for local in range(2):
            rank = base + local
            error = ILLEGAL if rank == 3 else RESET
            files[f"{node}/rank_{local}.log"] = lines(
                hello(rank, 4, node), steps(rank, 1, 5), traceback(error, f"[rank{rank}]: ")
            )
    verdict = judge(files)
    assert brief(verdict) == identified(3, "cuda_illegal_access")
    assert verdict.first_failure.hosts == ("node-b",)
    assert {row.rank for row in verdict.collateral} == {0, 1, 2}


def test_two_nodes_files_of_the_same_names_without_tags_never_blame_the_first_nodes_rank(judge):
    files = {
        f"{node}/rank_{local}.log": lines(
            steps(None, 1, 5), traceback(KEY if (node, local) == ("node-b", 0) else RESET)
        )
        for node in ("node-a", "node-b")
        for local in range(2)
    }
    verdict = judge(files)
    assert (verdict.outcome, verdict.first_failure.kind) == ("failed", "python_exception")
    if brief(verdict)[1] == "identified":
        assert verdict.first_failure.ranks != (0,)
        assert verdict.first_failure.hosts == ("node-b",)


def test_a_local_rank_in_the_name_of_a_second_nodes_file_gives_way_to_what_its_lines_say(judge):
    files = {
        "node-b/log.0": lines(hello(8, 16, "node-b"), steps(8, 1, 5), traceback(RESET, "[rank8]: ")),
        "node-b/log.1": lines(hello(9, 16, "node-b"), steps(9, 1, 5), traceback(KEY, "[rank9]: ")),
    }
    assert brief(judge(files)) == identified(9, "python_exception")


# The same line in two files is one line.


def test_a_merged_file_beside_the_ranks_own_files_changes_nothing(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 4), traceback(OOM if rank == 2 else RESET)) for rank in range(4)}
    alone = judge(files)
    files["console.log"] = lines(*(files[f"rank_{rank}.log"] for rank in (1, 2, 0, 3)))
    both = judge(files)
    assert brief(both) == brief(alone) == identified(2, "cuda_oom")
    assert [row.rank for row in both.collateral] == [0, 1, 3]


def test_a_file_given_twice_counts_once(judge):
    files = {f"rank_{rank}.log": lines(hello(rank, 2), traceback(OOM if rank == 1 else RESET)) for rank in range(2)}
    verdict = judge(files, order=lambda paths: [*paths, *paths])
    assert brief(verdict) == identified(1, "cuda_oom")
    assert verdict.coverage.files == 2


def test_a_world_size_that_a_tagged_rank_contradicts_is_that_of_a_smaller_group(judge):
    text = [f"Process group: 4 tasks, rank: {rank}" for rank in range(4)]
    text += [traceback(KEY if rank == 6 else RESET, f"[rank{rank}]: ") for rank in range(8)]
    assert brief(judge({"train.log": lines(*text)})) == identified(6, "python_exception")
