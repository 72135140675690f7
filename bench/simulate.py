"""Simulates training jobs with known faults and skewed clocks, and scores the verdicts on them.

`python bench/simulate.py --ranks 8,64,512 --skew 0,0.1,1,10 --runs 5` prints Markdown tables (docs/simulation.md).
`python bench/simulate.py --scale 64,1024,16384` measures the correlator alone. The same options give the same jobs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simulation import layouts, scale
from simulation.scenarios import SCENARIOS, possible, simulate
from simulation.scoring import ClockCheck, Grade, Result, check_clocks, grade, named
from simulation.world import Layout, Setting, Stamps, World

from aggregator.pipeline import postmortem


def run(scenario: str, setting: Setting, folder: Path, *, shuffle: bool = False) -> Result:
    """Simulate one job in `folder` and judge it."""
    world = World(setting)
    truth = simulate(scenario, world)
    files = [str(path) for path in layouts.write(world, folder)]
    world.rng.shuffle(files)
    started = time.perf_counter()
    try:
        verdict = postmortem(files if shuffle else [str(folder)])
    except Exception as error:  # noqa: BLE001 - a crash is one of the results
        told = f"{type(error).__name__}: {error}"
        return Result(scenario, world, truth, Grade.CRASH, False, False, ClockCheck(), 0.0, None, str(folder), told)
    seconds = time.perf_counter() - started
    failure = verdict.first_failure
    kind = (failure.kind if failure else None) in (truth.kinds or {None})
    right = verdict.outcome in truth.outcomes
    clocks = check_clocks(verdict, world, truth.at)
    return Result(scenario, world, truth, grade(verdict, truth), right, kind, clocks, seconds, verdict, str(folder))


def settings(options: argparse.Namespace) -> Iterator[tuple[str, Setting, bool]]:
    """Every job to simulate; the layouts take turns, and every second set of rank files is given in random order."""
    for ranks in options.ranks:
        for stamps in options.stamps:
            for skew in options.skew:
                for place, scenario in enumerate(options.scenarios):
                    for number in range(options.runs if possible(scenario, ranks) else 0):
                        turn = number + place + options.ranks.index(ranks) + options.skew.index(skew)
                        layout = options.layouts[turn % len(options.layouts)]
                        seed = f"{options.seed}/{scenario}/{ranks}/{skew:g}/{stamps}/{layout}/{number}"
                        setting = Setting(ranks, skew, stamps, layout, seed, options.drift, options.steps)
                        yield scenario, setting, options.shuffle and number % 2 == 1


def table(results: Sequence[Result], head: str, key: Callable[[Result], str]) -> str:
    """Shares of the grades by a key, in per cent, as Markdown."""
    rows = [f"| {head} | jobs | " + " | ".join(Grade) + " | outcome right | kind right |"]
    rows.append("|---" * (len(Grade) + 4) + "|")
    keys = list(dict.fromkeys(key(result) for result in results))
    for name in [*keys, "all"]:
        of = [result for result in results if name == "all" or key(result) == name]
        grades = Counter(result.grade for result in of)
        shares = [grades[word] for word in Grade] + [sum(r.outcome for r in of), sum(r.kind for r in of)]
        rows.append(f"| {name} | {len(of)} | " + " | ".join(_share(count, len(of)) for count in shares) + " |")
    return "\n".join(rows)


def _share(count: int, of: int) -> str:
    return f"{100 * count / of:.1f}" if count else "0"


def clock_table(results: Sequence[Result]) -> str:
    """By stamps and skew: how many clocks are known, and how many hold the true offset."""
    rows = [
        "| stamps | skew ± s | hosts | offset given % | true offset inside % | mean uncertainty s | largest error s |",
        "|---|---|---|---|---|---|---|",
    ]
    for stamps, skew in dict.fromkeys((r.world.setting.stamps, r.world.setting.skew) for r in results):
        of = [r.clocks for r in results if (r.world.setting.stamps, r.world.setting.skew) == (stamps, skew)]
        total = sum(of, ClockCheck())
        if total.hosts:
            known = max(1, total.known)
            rows.append(
                f"| {stamps} | {skew:g} | {total.hosts} | {100 * total.known / total.hosts:.1f} |"
                f" {100 * total.inside / known:.1f} | {total.width / known:.3f} | {total.error:.3f} |"
            )
    return "\n".join(rows)


def report(results: Sequence[Result], *, seconds: float) -> None:
    """Print all tables."""
    print(f"{len(results)} jobs, {seconds:.0f} s\n")
    print("Per cent of the jobs, stamps in ms, by skew of the hosts' clocks (± s):\n")
    fine = [r for r in results if r.world.setting.stamps is Stamps.MS] or list(results)
    print(table(fine, "skew ± s", lambda r: f"{r.world.setting.skew:g}"))
    for title, head, key in (
        ("scenario", "scenario", lambda r: r.scenario),
        (
            "scenario and skew, where not all is right",
            "scenario, ± s",
            lambda r: f"{r.scenario}, {r.world.setting.skew:g}",
        ),
        ("stamps of the program's lines", "stamps", lambda r: str(r.world.setting.stamps)),
        ("size", "ranks", lambda r: f"{r.world.setting.ranks:,}"),
        ("layout", "layout", lambda r: str(r.world.setting.layout)),
    ):
        print(f"\nBy {title}, all stamps:\n")
        lines = table(results, head, key).split("\n")
        shown = [line for line in lines if "not all" not in title or line.split("|")[3].strip() != "100.0"]
        print("\n".join(shown))
    print("\nClocks of the hosts other than the reference, when the fault struck:\n")
    print(clock_table(results))


def misses(results: Sequence[Result]) -> None:
    """List what was not right."""
    print("\nNot right:\n")
    for result in results:
        if result.grade is not Grade.RIGHT or not result.outcome:
            setting, ranks = result.world.setting, sorted(result.truth.ranks)[:6]
            print(f"- {result.grade}: {setting.seed}: {named(result)}; truth {ranks}; {result.folder}")


def words(kind: type[Stamps | Layout]) -> Callable[[str], list[Stamps | Layout]]:
    return lambda text: [kind(word) for word in text.split(",")]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=lambda text: [int(word) for word in text.split(",")], default=[8, 64])
    parser.add_argument(
        "--skew",
        type=lambda text: [float(word) for word in text.split(",")],
        default=[0, 0.1, 1, 10],
        help="bounds of the hosts' clock errors, s",
    )
    parser.add_argument("--drift", type=float, default=50.0, help="bound of the clocks' rates, ppm")
    parser.add_argument("--stamps", type=words(Stamps), default=[Stamps.MS, Stamps.NONE], help=",".join(Stamps))
    parser.add_argument(
        "--layouts", type=words(Layout), default=list(Layout), help="they take turns: " + ",".join(Layout)
    )
    parser.add_argument(
        "--scenarios", type=lambda text: text.split(","), default=list(SCENARIOS), help=",".join(SCENARIOS)
    )
    parser.add_argument("--steps", type=int, default=12, help="healthy steps at most")
    parser.add_argument("--runs", type=int, default=2, help="jobs of each combination")
    parser.add_argument("--seed", default="1")
    parser.add_argument(
        "--no-shuffle", dest="shuffle", action="store_false", help="never give files one by one in random order"
    )
    parser.add_argument("--keep", type=Path, help="keep the folders of jobs that were not judged right here")
    parser.add_argument("--misses", action="store_true", help="list what was not right")
    parser.add_argument(
        "--scale",
        type=lambda text: [int(word) for word in text.split(",")],
        help="measure the correlator alone, with so many ranks",
    )
    return parser.parse_args()


def main() -> None:
    chosen = options()
    if chosen.scale:
        print(scale.table(chosen.scale, chosen.seed))
        return
    results, started = [], time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="denpex-simulation-") as scratch:
        for number, (scenario, setting, shuffle) in enumerate(settings(chosen)):
            folder = Path(scratch) / f"{number:05d}-{scenario}-{setting.ranks}-{setting.layout}"
            result = run(scenario, setting, folder, shuffle=shuffle)
            results.append(result)
            if chosen.keep and (result.grade is not Grade.RIGHT or not result.outcome):
                shutil.copytree(folder, chosen.keep / folder.name, dirs_exist_ok=True)
            shutil.rmtree(folder)
    report(results, seconds=time.perf_counter() - started)
    if chosen.misses:
        misses(results)


if __name__ == "__main__":
    main()
