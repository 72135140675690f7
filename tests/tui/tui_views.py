"""Pictures of jobs, and a feed that hands them to an app without a watch behind it."""

import asyncio
from dataclasses import replace

from aggregator import verdict as v
from aggregator.live.view import Counters, LiveEvent, LiveState, LiveView, RankHealth, RankState, Suspicion
from aggregator.tui.app import WatchApp
from parsers.records import Skipped

S = 10**9
NOON = 1_772_625_600 * S


def health(rank, state=RankState.OK, **known):
    known = {"host": f"node-{rank // 8:02}", "step": 1200 + rank % 3, "idle_s": 1.0 + rank % 5} | known
    return RankHealth(rank, state, path=f"logs/rank{rank}.log", last_line=f"step 1200 loss 2.{rank:03}", **known)


def ranks(size, **others):
    """OK ranks, but for those given as `rank_3=RankState.FAILED`."""
    states = {int(name.removeprefix("rank_")): state for name, state in others.items()}
    return tuple(health(rank, states.get(rank, RankState.OK)) for rank in range(size))


def event(number, text="", level="info", rank=0):
    return LiveEvent(NOON + number * S, text or f"event {number}", level, NOON + number * S, rank,
                     f"node-{rank // 8:02}", f"logs/rank{rank}.log", number + 1)  # fmt: skip


def healthy(size=16, events=(), now=600, **changes):
    view = LiveView(
        "runs/4242", LiveState.HEALTHY, NOON, NOON + now * S, "All ranks make progress; the last step was 1,202.",
        ranks(size), size, tuple(events),
        counters=Counters(files=size, open_files=size, bytes=3_200_000_000, lines=12_345_678, lines_per_s=4321.0),
    )  # fmt: skip
    return replace(view, **changes)


VERDICT = v.Verdict(
    job=v.Job(path="runs/4242", id="4242", world_size=16, ranks_seen=tuple(range(16)), hosts=("node-00", "node-01")),
    outcome=v.Outcome.FAILED,
    first_failure=v.Failure(
        status=v.Status.IDENTIFIED,
        confidence=0.97,
        kind="cuda_oom",
        message="CUDA out of memory.",
        ranks=(3,),
        hosts=("node-00",),
        time=NOON + 300 * S,
        evidence=(
            v.Evidence(file="logs/rank3.log", line=1234, text="CUDA out of memory.", why="the first error", rank=3),
        ),
        reasons=("rank 3 printed its error 600 s before any other rank",),
    ),
    collateral=tuple(
        v.Collateral(rank=rank, kind="collective_timeout", message="timeout", because="it waited for rank 3")
        for rank in range(16)
        if rank != 3
    ),
    attempts=(),
    clocks=(),
    coverage=v.Coverage(files=16, bytes=10**6, lines=54321),
)


def failed():
    victims = {f"rank_{rank}": RankState.VICTIM for rank in range(16)}
    return healthy(
        state=LiveState.FAILED,
        headline="Rank 3 (node-00) failed first: CUDA out of memory.",
        ranks=ranks(16, **(victims | {"rank_3": RankState.FAILED})),
        events=(event(0), event(1, "CUDA out of memory.", "error", 3), event(2, "NCCL timeout", "warning", 4)),
        verdict=VERDICT,
        warnings=("rank 7's log ends in the middle of a line",),
        skipped=(Skipped("core.4242", "not text"),),
    )


def suspect():
    return healthy(
        state=LiveState.SUSPECT,
        headline="Rank 5 keeps the others waiting.",
        ranks=ranks(16, rank_5=RankState.SUSPECT, rank_6=RankState.SLOW, rank_7=RankState.SILENT),
        suspicion=Suspicion((5,), ("node-00",), "15 ranks reached step 1,201, it did not", NOON + 560 * S),
    )


class Feed:
    """Stands for the watch: gives the view that it holds, and counts how often a post-mortem was asked for."""

    def __init__(self, view, *, redact=True):
        self.view = view
        self.asked = 0
        self.front = None  # the screen that was in front at the end of `drive`
        self.app = WatchApp(lambda: self.view, redact=redact, on_postmortem=self._ask)

    def _ask(self):
        self.asked += 1

    def drive(self, *keys, size=(80, 24), act=None):
        """Run the app without a terminal, press the keys, and give back what the screen shows; `act(pilot)` is last."""

        async def session():
            async with self.app.run_test(size=size, notifications=True) as pilot:
                await pilot.pause()
                await press(pilot, *keys)
                if act is not None:
                    await act(pilot)
                await pilot.pause()
                self.front = self.app.screen
                return screen_text(self.app)

        return asyncio.run(session())

    async def give(self, pilot, view):
        """Hand another view to the app, as its timer would."""
        self.view = view
        self.app.poll()
        await pilot.pause()


async def press(pilot, *keys):
    """Press keys, each once the one before has had its effect."""
    for key in keys:
        await pilot.press("space" if key == " " else key)
        await pilot.pause()


def screen_text(app):
    """What is on the screen, line by line."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())
