"""Whose lines are those that name only a process, or that a launcher numbered."""

from correlate_jobs import KEY, RESET, brief, identified, lines, traceback

RAY = "(WorkerDict pid={}, ip=10.4.0.{})"
DRIVER = (
    "Traceback (most recent call last):",
    '  File "/opt/main_ppo.py", line 44, in main',
    "    run_ppo(config)",
    "ray.exceptions.RayTaskError(AssertionError): ray::WorkerDict.update() (pid={}, ip=10.4.0.{}, actor_id=77d0)",
    '  File "/opt/dp_actor.py", line 401, in update',
    '    raise AssertionError("empty response")',
    "AssertionError: empty response",
)


def numbered(rank, text):
    return lines(*(f"[{rank}] {line}" for line in text.splitlines()))


def up(rank, world=None):
    told = f"rank {rank} up" if world is None else f"rank {rank} of {world} up"
    return f"[{rank}] {told}"


def test_a_process_told_beside_a_rank_is_that_ranks_wherever_it_is_named_alone(judge):
    said = [f"{RAY.format(4100 + 3 * r, 7 + r // 2)} [rank {r}] init_model done, free 31 GiB" for r in range(4)]
    driver = lines(*DRIVER).format(4109, 8)
    verdict = judge({"verl.log": lines(*said, driver)})
    assert brief(verdict) == identified(3, "python_exception")
    assert verdict.first_failure.hosts == ("10.4.0.8",)


def test_a_process_that_prints_for_several_ranks_is_none_of_them(judge):
    said = [f"{RAY.format(4100, 7)} [rank {r}] init_model done, free 31 GiB" for r in range(4)]
    verdict = judge({"verl.log": lines(*said, lines(*DRIVER).format(4100, 7))})
    assert verdict.first_failure.ranks == ()


def test_a_launchers_numbers_are_ranks(judge):
    nodes = {f"run-88-gn1{n}.out": lines(*(up(r) for r in (2 * n, 2 * n + 1) for _ in "ab")) for n in (0, 1)}
    nodes["run-88-gn10.out"] += "".join(numbered(r, traceback(RESET)) for r in (0, 1))
    nodes["run-88-gn11.out"] += numbered(2, traceback(RESET)) + numbered(3, traceback(KEY))
    verdict = judge(nodes)
    assert brief(verdict) == identified(3, "python_exception")
    assert verdict.first_failure.hosts == ("gn11",)


def test_numbers_that_begin_anew_on_each_node_are_no_ranks(judge):
    job = {name: "".join(numbered(r, traceback(RESET)) for r in range(2)) for name in ("run-gn10.out", "run-gn11.out")}
    job["run-gn11.out"] += numbered(1, traceback(KEY))
    assert judge(job).first_failure.ranks == ()
    unnamed = {"a.out": job["run-gn10.out"] + "world_size=4\n", "b.out": job["run-gn11.out"]}
    assert judge(unnamed).first_failure.ranks == ()


def test_a_counter_of_epochs_is_no_rank(judge):
    said = [f"[{epoch}] step {step}/8 loss 1.2" for epoch in range(4) for step in range(8)]
    verdict = judge({"train.log": lines(*said, traceback(KEY))})
    assert verdict.first_failure.ranks == ()
