"""How large the HTML report is and how soon a browser has drawn it, beside an empty page; and its picture for the docs.

python bench/report.py                              # 1,024 ranks x 20 bars, and 16,384 x 6
python bench/report.py --picture docs/report.png    # of a sample run
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from aggregator.pipeline import investigate
from aggregator.reports import reporter

BEGIN = datetime(2026, 3, 4, 11, tzinfo=UTC)
PHASE_S = 30
RUNS = 5
SAMPLE = Path(__file__).parent.parent / "sample_runs" / "torchrun-logdir-eval-oom" / "job"
EMPTY = "<!doctype html><title>empty</title><div id=chart data-drawn=yes></div>"


def stamp(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def rank_lines(rank: int, ranks: int, bars: int) -> list[str]:
    """One rank's log: start, training and evaluation in turn; the middle rank runs out of memory, the others wait."""
    lines = [f"{stamp(0)} INFO initialised process group: rank {rank} of {ranks} on node-{rank // 8:04} pid {rank + 9}"]
    for phase in range(bars - 2):
        at = 10 + phase * PHASE_S + rank % 7 / 10
        steps = [f"{stamp(at + n)} INFO step {phase * 100 + n} loss 2.{n}" for n in range(4)]
        lines += steps if phase % 2 == 0 else [f"{stamp(at)} INFO Running evaluation"]
    end = 10 + (bars - 2) * PHASE_S
    if rank == ranks // 2:
        return [*lines, f"{stamp(end)} ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB."]
    head = (BEGIN + timedelta(seconds=end + 600)).strftime("E%m%d %H:%M:%S.000123456")
    work = "WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000)"
    told = f"Watchdog caught collective operation timeout: {work} ran for 600133 milliseconds before timing out."
    return [*lines, f"[rank{rank}]:[{head} ProcessGroupNCCL.cpp:607] [Rank {rank}] {told}"]


def drawn_s(page: Page, file: Path) -> float:
    began = time.perf_counter()
    page.goto(file.as_uri())
    page.wait_for_function("document.getElementById('chart').dataset.drawn === 'yes'", timeout=60_000)
    page.screenshot()
    return time.perf_counter() - began


def measure(page: Page, folder: Path, ranks: int, bars: int) -> None:
    job, file, empty = folder / f"{ranks}", folder / f"{ranks}.html", folder / "empty.html"
    job.mkdir()
    empty.write_text(EMPTY)
    for rank in range(ranks):
        (job / f"rank_{rank}.log").write_text("\n".join(rank_lines(rank, ranks, bars)) + "\n")
    case = investigate([str(job)])
    began = time.process_time()
    with file.open("w") as out:
        reporter("html").render(case, out)
    made = time.process_time() - began
    bare = statistics.median(drawn_s(page, empty) for _ in range(RUNS))
    full = statistics.median(drawn_s(page, file) for _ in range(RUNS))
    page.goto(file.as_uri())
    began = time.perf_counter()
    page.evaluate("document.querySelector('[data-mode=ranks]').click()")
    page.screenshot()
    dense = time.perf_counter() - began
    size = file.stat().st_size / 1e6
    told = {"ranks": ranks, "bars": sum(len(lane.bars) for lane in case.timeline.lanes), "MB": round(size, 2)}
    told |= {"made, CPU s": round(made, 2), "empty page, s": round(bare, 2), "drawn, s": round(full, 2)}
    print(json.dumps(told | {"all ranks drawn, s": round(dense, 2)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path, help="only take a picture of a sample run's report")
    asked = parser.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 1240})
        if asked.picture is None:
            for ranks, bars in ((1024, 20), (16_384, 6)):
                measure(page, Path(folder), ranks, bars)
        else:
            file = Path(folder) / "report.html"
            with file.open("w") as out:
                reporter("html").render(investigate([str(SAMPLE)]), out)
            drawn_s(page, file)
            page.screenshot(path=asked.picture)
        browser.close()


if __name__ == "__main__":
    main()
