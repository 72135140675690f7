"""Simulated jobs, whose truth is known, are made as asked and judged right where they are clear (bench/simulate.py)."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCH = str(Path(__file__).parents[1] / "bench")
sys.path.insert(0, BENCH)
program = import_module("simulate")  # bench/ is no package: it is not installed
launchers, layouts, scenarios, scoring, world_of = (
    import_module(f"simulation.{name}") for name in ("launchers", "layouts", "scenarios", "scoring", "world")
)
sys.path.remove(BENCH)

SCENARIOS, possible, simulate = scenarios.SCENARIOS, scenarios.possible, scenarios.simulate
Grade = scoring.Grade
Layout, Setting, Stamps, World, START = (
    getattr(world_of, name) for name in ("Layout", "Setting", "Stamps", "World", "START")
)

SCENARIO_NAMES = list(SCENARIOS)


def setting(name, ranks=16, skew=1.0, stamps=Stamps.MS, layout=Layout.RANKS, seed="t"):
    return Setting(ranks, skew, stamps, layout, f"{seed}/{name}/{ranks}/{layout}")


def folder_of(path: Path):
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("layout", Layout)
def test_the_same_seed_makes_the_same_folder(tmp_path, layout):
    for copy in ("one", "two"):
        world = World(setting("oom", layout=layout))
        simulate("oom", world)
        layouts.write(world, tmp_path / copy)
    assert folder_of(tmp_path / "one") == folder_of(tmp_path / "two")


@pytest.mark.parametrize("scenario", SCENARIO_NAMES)
def test_a_scenario_prints_in_every_layout(tmp_path, scenario):
    for layout in Layout:
        world = World(setting(scenario, layout=layout))
        truth = simulate(scenario, world)
        files = layouts.write(world, tmp_path / layout)
        assert truth.outcomes
        assert any(path.stat().st_size for path in files)
        assert all(0 <= rank < 16 for rank in truth.ranks)


def test_stamps_are_those_of_the_hosts_clocks():
    world = World(setting("oom", skew=10))
    assert world.clock(1, 5.0, "iso") != world.clock(0, 5.0, "iso")
    assert abs(world.shown(1, 5.0) - (START + 5.0 + world.offsets[1])) < 1e-3
    assert max(map(abs, world.offsets)) <= 10


def test_no_line_of_a_rank_has_a_stamp_where_none_is_asked_for(tmp_path):
    world = World(setting("hang", stamps=Stamps.NONE))
    simulate("hang", world)
    assert not any("20:3" in line.text for lines in world.rank_lines for line in lines)


def test_a_killed_rank_says_nothing_and_only_its_own_agent_tells(tmp_path):
    world = World(setting("kill"))
    (culprit,) = simulate("kill", world).ranks
    assert not any("rror" in line.text for line in world.rank_lines[culprit])
    box = [line.text for line in world.agent_lines[world.host_of(culprit)]]
    assert any(f"exitcode  : -9 (pid: {world.pids[culprit]})" in line for line in box)


def test_an_agent_ends_the_ranks_that_still_run():
    world = World(setting("loader", ranks=8))
    (culprit,) = simulate("loader", world).ranks
    said = [line.text for line in world.agent_lines[0]]
    assert sum("closing signal SIGTERM" in line for line in said) > 0
    assert f"  rank      : {culprit} (local_rank: {culprit})" in said


def test_a_small_job_cannot_lose_one_of_two_hosts():
    assert possible("host", 16)
    assert not possible("host", 8)
    assert possible("oom", 8)


def test_task_lists_are_folded_as_srun_folds_them():
    assert launchers._ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"


def test_wrong_and_sure_is_false_blame_and_weaker_words_are_not(tmp_path):
    result = program.run("oom", setting("oom"), tmp_path / "job")
    assert result.grade is Grade.RIGHT, scoring.named(result)
    other = SCENARIOS["completed"](World(setting("completed")))
    assert scoring.grade(result.verdict, other) is Grade.BLAME


@pytest.mark.parametrize("skew", [0.0, 10.0])
@pytest.mark.parametrize("scenario", ["oom", "hang", "completed", "running", "time-limit"])
def test_what_is_clear_is_judged_right_at_any_skew(tmp_path, scenario, skew):
    for layout in (Layout.RANKS, Layout.SRUN):
        result = program.run(scenario, setting(scenario, skew=skew, layout=layout), tmp_path / layout)
        assert result.grade is Grade.RIGHT, scoring.named(result)
        assert result.outcome, scoring.named(result)


def test_true_offsets_are_within_the_uncertainty_that_is_told(tmp_path):
    result = program.run("completed", setting("completed", ranks=32, skew=10), tmp_path / "job")
    assert result.clocks.known == result.clocks.hosts == 3
    assert result.clocks.inside == 3
