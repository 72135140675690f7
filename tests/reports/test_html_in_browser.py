"""The HTML report in a real browser: it draws, it reacts, it runs nothing of a log, it asks nobody."""

import io
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from aggregator.pipeline import investigate
from aggregator.reports import ReportOptions, reporter

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
TOP, ROW = 34, 18
"""Pixels of the chart above its rows, and of a row; as in page.js."""

pytestmark = [
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: the report is opened in none"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may be missing

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the report on a job; gives the page, and at the end holds that it made no sound and asked for nothing."""
    heard = []
    contexts = []

    def show(job, **options):
        file = tmp_path / "report.html"
        with file.open("w", encoding="utf-8") as out:
            reporter("html", ReportOptions()).render(investigate([str(job)]), out)
        context = browser.new_context(viewport={"width": 1200, "height": 2000}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: heard.append(f"request: {request.url}"))
        page.goto(file.as_uri())
        heard.remove(f"request: {file.as_uri()}")
        if options.get("java_script_enabled", True):
            page.wait_for_function("document.getElementById('chart').dataset.drawn === 'yes'")
        return page

    yield show
    for context in contexts:
        context.close()
    assert heard == []


@pytest.fixture
def report(opened):
    return opened(SAMPLES / "torchrun-logdir-eval-oom" / "job")


def colours(page):
    """How many colours the chart's first canvas holds: one if nothing is drawn."""
    return page.evaluate("""() => {
        const canvas = document.querySelector("#chart canvas");
        const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const seen = new Set();
        for (let n = 0; n < pixels.length; n += 4) seen.add(pixels[n] << 16 | pixels[n + 1] << 8 | pixels[n + 2]);
        return seen.size;
    }""")


def selected(page):
    return page.locator("#selected").get_attribute("data-rank")


def test_every_rank_has_a_lane_and_the_first_failure_is_selected(report):
    assert report.locator("#chart").get_attribute("data-rows") == "4"
    assert colours(report) > 10
    assert selected(report) == "3"
    assert "State: first failure" in report.locator("#selected").inner_text()
    assert "rank 3" in report.locator("h1").inner_text()


def test_a_click_on_a_lane_selects_its_rank(report):
    box = report.locator("#chart").bounding_box()
    for rank, x in ((0, 200), (2, 400), (1, 40)):
        report.mouse.click(box["x"] + x, box["y"] + TOP + ROW * rank + ROW / 2)
        assert selected(report) == str(rank)
        assert report.locator("tr.picked").get_attribute("data-rank") == str(rank)


def test_a_click_in_the_table_selects_the_rank(report):
    report.locator("tr[data-rank='1'] td").nth(2).click()
    assert selected(report) == "1"


def test_the_chart_follows_the_keyboard(report):
    chart = report.locator("#chart")
    chart.focus()
    chart.press("ArrowUp")
    assert selected(report) == "2"
    before = chart.screenshot()
    chart.press("Home")
    assert chart.screenshot() != before


def test_the_table_is_searched_filtered_and_ordered(report):
    rows = report.locator("#ranks-body tr:visible")
    assert rows.count() == 4
    report.locator("#ranks-state").select_option("first")
    assert rows.count() == 1
    report.locator("#ranks-state").select_option("")
    report.locator("#ranks-search").fill("network")
    assert [row.get_attribute("data-rank") for row in rows.all()] == ["2"]
    report.locator("#ranks-search").fill("")
    for order in (["0", "1", "2", "3"], ["3", "2", "1", "0"]):
        report.locator("th button").first.click()
        assert [row.get_attribute("data-rank") for row in rows.all()] == order


def test_frames_of_libraries_are_folded_and_lines_around_the_evidence_shown(report):
    assert report.locator("details[open]").count() == 0
    assert "of libraries" in report.locator("details summary").first.inner_text()
    assert "devmem.py:18 in pack" in report.locator("pre.frame-own").last.inner_text()
    cited = report.locator("mark.cited").first.inner_text()
    assert "60" in cited
    assert "CUDA out of memory" in cited


def test_without_scripts_all_but_the_chart_is_there(opened):
    page = opened(SAMPLES / "torchrun-logdir-eval-oom" / "job", java_script_enabled=False)
    assert "rank 3" in page.locator("h1").inner_text()
    assert page.locator("#ranks-body tr:visible").count() == 4
    assert page.locator("noscript").is_visible()
    assert not page.locator("#chart-tools").is_visible()


def test_dark_and_light_differ_and_it_prints(opened):
    back = []
    for scheme in ("light", "dark"):
        page = opened(SAMPLES / "two-node-segfault" / "job", color_scheme=scheme)
        back.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert back[0] != back[1]
    assert page.pdf()[:5] == b"%PDF-"
    assert page.locator("details:not([open])").count() == 0


PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "'-alert(5)-'",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(6)",
    "&lt;script&gt;",
    "\u2028\u2029\u202e\x1b]8;;http://evil/\x07link",
    "</style><style>*{display:none}</style>",
    "</title></head>",
)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_what_a_log_says_is_text(opened, tmp_path, payload):
    name = payload.replace("/", "_").replace("\0", "")[:60]
    job = tmp_path / "job"
    job.mkdir()
    start = [
        f"2026-03-04 11:00:00,000 INFO initialised process group: rank RANK of 2 on {payload} pid 41",
        f"2026-03-04 11:00:10,000 INFO step 5 {payload}",
    ]
    end = [
        "2026-03-04 11:00:20,000 ERROR Traceback (most recent call last):",
        f'  File "/w/{payload}.py", line 3, in {payload}',
        f"    {payload}()",
        f"RuntimeError: {payload}",
    ]
    (job / f"rank_0.{name}.log").write_text("\n".join([*start, *end, ""]).replace("RANK", "0"))
    (job / "rank_1.log").write_text("\n".join([*start, ""]).replace("RANK", "1"))
    page = opened(job)
    shown = page.locator("body").inner_text()
    assert "RuntimeError" in shown
    assert page.locator("script").count() == 3
    assert page.locator("img, svg, iframe, object, embed, form, base").count() == 0
    assert page.locator("style").count() == 1
    assert page.evaluate("[...document.querySelectorAll('a')].every((a) => a.protocol.startsWith('http'))")
    assert page.evaluate(
        "[...document.querySelectorAll('*')].every((e) => ![...e.attributes].some((a) => a.name.startsWith('on')))"
    )


def many(folder, ranks, phases):
    """A job in which one rank fails while the others wait; each goes to and fro between training and evaluation."""
    folder.mkdir()
    for rank in range(ranks):
        lines = [
            f"2026-03-04 11:00:00,000 INFO initialised process group: rank {rank} of {ranks} on node-{rank // 8} pid 4"
        ]
        for n in range(phases - 1):
            stamp = f"2026-03-04 11:{n + 1:02}:{rank % 60:02},000 INFO "
            lines += (
                [f"{stamp}step {100 * n + k} loss 2.0" for k in range(3)]
                if n % 2 == 0
                else [f"{stamp}Running evaluation"]
            )
        if rank == ranks // 2:
            lines.append(
                "2026-03-04 11:40:00,000 ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB."
            )
        (folder / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")


def test_a_thousand_ranks_are_one_small_file_that_opens_by_node(opened, tmp_path):
    many(tmp_path / "job", 1024, 20)
    page = opened(tmp_path / "job")
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    assert page.locator("[data-mode='nodes']").get_attribute("aria-pressed") == "true"
    nodes = int(page.locator("#chart").get_attribute("data-rows"))
    assert nodes == 128 + 3
    box = page.locator("#chart").bounding_box()
    page.mouse.click(box["x"] + 120, box["y"] + TOP + ROW / 2)  # the name of the first node in sight
    assert page.locator("#chart").get_attribute("data-rows") == str(nodes + 8)
    page.locator("[data-mode='ranks']").click()
    assert page.locator("#chart").get_attribute("data-rows") == "1024"
    assert colours(page) > 10


def test_the_page_is_ascii_so_that_any_encoding_carries_it():
    out = io.StringIO()
    reporter("html").render(investigate([str(SAMPLES / "interleaved-nan" / "job")]), out)
    assert out.getvalue().isascii()
