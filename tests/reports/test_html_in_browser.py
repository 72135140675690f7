"""The HTML report in a real browser: it draws, it reacts, it runs nothing of a log, it asks nobody."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from browsing import NEEDS_BROWSER, chromium
from payloads import PAYLOADS

from aggregator.case import Case
from aggregator.pipeline import investigate
from aggregator.reports import ReportOptions, reporter
from aggregator.verdict import Status

SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
TOP, ROW = 34, 18
"""Pixels of the chart above its rows, and of a row; as in page.js."""

LISTEN = """
    window.labels = [];
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        window.labels.push([text, this.fillStyle, document.documentElement.className, this.canvas.width]);
        return write.call(this, text, ...rest);
    };
"""
"""Keeps what is written on the chart: its colour, for what it was drawn, how wide the chart is."""

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the report on a job or a case; gives the page, and in the end holds that it was silent and asked nobody."""
    heard = []
    contexts = []

    def show(job, *, wait=True, **options):
        file = tmp_path / "report.html"
        with file.open("w", encoding="utf-8") as out:
            case = job if isinstance(job, Case) else investigate([str(job)])
            reporter("html", ReportOptions()).render(case, out)
        context = browser.new_context(viewport={"width": 1200, "height": 2000}, **options)
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(LISTEN)
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: heard.append(f"request: {request.url}"))
        page.goto(file.as_uri())
        heard.remove(f"request: {file.as_uri()}")
        if wait and options.get("java_script_enabled", True):
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
    clocks = page.locator("h3:text-is('Clocks') + details li")  # one for all hosts of whose clocks the same is known
    assert 0 < clocks.count() < 20
    assert "more: +" in clocks.first.text_content()
    nodes = int(page.locator("#chart").get_attribute("data-rows"))
    assert nodes == 128 + 3
    box = page.locator("#chart").bounding_box()
    page.mouse.click(box["x"] + 120, box["y"] + TOP + ROW / 2)  # the name of the first node in sight
    assert page.locator("#chart").get_attribute("data-rows") == str(nodes + 8)
    page.locator("[data-mode='ranks']").click()
    assert page.locator("#chart").get_attribute("data-rows") == "1024"
    assert colours(page) > 10


START = "2026-03-04 11:"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB."
LOST = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.2]:4242"


def story(rank, of, minute, end, host="node-a"):
    """One rank's log: ten steps, then its end, which is told twenty seconds after the start."""
    steps = [f"{START}{minute:02}:{5 + n:02},000 INFO step {n} loss 2.0" for n in range(10)]
    start = f"{START}{minute:02}:00,000 INFO initialised process group: rank {rank} of {of} on {host} pid 4"
    return "\n".join([start, *steps, f"{START}{minute:02}:20,000 ERROR {end}", ""])


def written(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def drawn(page):
    """What the chart draws, and the marks of the first failure as (rank, ms since the start)."""
    data = page.evaluate("JSON.parse(document.getElementById('data').textContent)")
    lanes, marks = data["lanes"]["rank"], data["marks"]
    rows = zip(marks["lane"], marks["what"], marks["time"], strict=True)
    return data, [(lanes[lane], time) for lane, what, time in rows if data["what"][what] == "first failure"]


def test_of_several_attempts_the_picture_is_about_the_one_of_the_verdict(opened, tmp_path):
    files = {
        f"attempt_{n}/{rank}/stderr.log": story(rank, 4, 10 * n, OOM if rank == n + 1 else LOST)
        for n in range(3)
        for rank in range(4)
    }
    page = opened(written(tmp_path / "job", files))
    data, firsts = drawn(page)
    assert data["first"]["ranks"] == [3]
    assert data["first"]["time"] == 1_220_000
    assert (3, 1_220_000) in firsts
    assert data["decisive"][0] > 1_200_000


def test_the_first_failure_is_drawn_at_the_time_of_the_verdict(opened):
    """A traceback without a stamp has that of the line above it; torchrun tells when the rank ended."""
    page = opened(SAMPLES / "eval-oom-no-grad" / "job")
    data, firsts = drawn(page)
    assert firsts == [(3, data["first"]["time"])]
    assert page.evaluate("ms => new Date(ms).toISOString()", data["t0"] + firsts[0][1]).startswith(
        "2025-03-06T09:07:43"
    )
    assert data["first"]["eps"] == 2780


def test_a_rank_that_failed_without_a_log_has_a_lane(opened, tmp_path):
    """The others name it; it wrote nothing."""
    desync = (
        "[rank{}]:[E ProcessGroupNCCL.cpp:632] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=10000) "
        "ran for 10000 milliseconds before timing out.\n"
        "To the best of our knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "  - [2] joined but didn't finish collective #6 (count from 1)\n"
    )
    page = opened(
        written(tmp_path / "job", {f"rank_{n}.log": story(n, 3, 0, desync.format(n, n).strip()) for n in (0, 1)})
    )
    data, _ = drawn(page)
    assert data["first"]["ranks"] == [2]
    assert data["lanes"]["rank"] == [0, 1, 2]
    assert selected(page) == "2"


def test_what_is_not_settled_is_not_drawn_as_if_it_were(opened):
    case = investigate([str(SAMPLES / "torchrun-logdir-eval-oom" / "job")])
    failure = replace(case.verdict.first_failure, status=Status.AMBIGUOUS)
    page = opened(replace(case, verdict=replace(case.verdict, first_failure=failure)))
    assert "may be the first failure" in page.locator(".legend").inner_text()
    names = {label[0].split(" ")[0] for label in page.evaluate("window.labels") if "rank 3" in label[0]}
    assert names == {"◇"}


def test_no_mark_is_cut_by_an_edge(opened, tmp_path):
    page = opened(written(tmp_path / "job", {f"rank_{n}.log": story(n, 2, 0, OOM if n else LOST) for n in (0, 1)}))
    data, firsts = drawn(page)
    assert firsts == [(1, data["span"])]
    assert data["range"][0] < 0
    assert data["span"] < data["decisive"][1] <= data["range"][1] + 5_000


def test_where_no_times_are_known_it_says_so_and_the_table_still_works(opened, tmp_path):
    lines = {f"rank_{n}.log": f"rank {n} of 2 on node-a\n{OOM if n else LOST}\n" for n in (0, 1)}
    page = opened(written(tmp_path / "job", lines), wait=False)
    assert page.locator("#chart").count() == 0
    assert "Nothing to draw" in page.locator("main").inner_text()
    assert page.locator(".legend").count() == 0
    page.locator("#ranks-body td").first.click()
    page.locator("#ranks-search").fill("nothing like this")
    assert page.locator("#ranks-body tr:visible").count() == 0


def test_a_run_of_days_has_dates_on_its_axis(opened, tmp_path):
    early = "2026-02-27 23:00:00,000 INFO step 0 loss 2.0\n"
    page = opened(written(tmp_path / "job", {f"rank_{n}.log": early + story(n, 2, 0, OOM) for n in (0, 1)}))
    page.evaluate("window.labels.length = 0")
    page.locator("#zoom-all").click()
    page.wait_for_function("window.labels.some(([text]) => /^03-0[1-4] \\d\\d:\\d\\d:\\d\\dZ$/.test(text))")


CONTRAST = """() => {
    const parts = (color) => { const m = color.match(/[\\d.]+/g).map(Number); return [m.slice(0, 3), m[3] ?? 1]; };
    const light = (rgb) => {
        const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        const layers = [];
        for (let e = element; e; e = e.parentElement) layers.unshift(parts(getComputedStyle(e).backgroundColor));
        const over = (under, [rgb, alpha]) => under.map((v, n) => v * (1 - alpha) + rgb[n] * alpha);
        return layers.reduce(over, [255, 255, 255]);
    };
    document.querySelectorAll("details").forEach((part) => (part.open = true));
    return [...document.querySelectorAll("header *, main *, footer *")]
        .filter((e) => e.checkVisibility() && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
        .map((e) => {
            const [a, b] = [light(parts(getComputedStyle(e).color)[0]), light(behind(e))].sort((x, y) => y - x);
            return [(a + 0.05) / (b + 0.05), `${e.tagName} ${e.className}`];
        })
        .filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_on_what_is_behind_it(opened, scheme):
    page = opened(SAMPLES / "torchrun-logdir-eval-oom" / "job", color_scheme=scheme)
    assert page.evaluate(CONTRAST) == []


def test_a_narrow_window_scrolls_no_page_sideways_and_the_table_breaks_no_words(opened):
    page = opened(SAMPLES / "torchrun-logdir-eval-oom" / "job")
    for width in (400, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        heights = [cell.bounding_box()["height"] for cell in page.locator("th button").all()]
        assert max(heights) < 30  # one line


def test_dark_mode_is_printed_dark_on_light(opened):
    page = opened(SAMPLES / "torchrun-logdir-eval-oom" / "job", color_scheme="dark")
    page.pdf()
    printed = [label for label in page.evaluate("window.labels") if label[2] == "printed"]
    assert printed[-1][1] in {"#1c2330", "#5a6475"}
    assert printed[-1][3] == 660
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(228, 232, 239)"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 35, 48)"


def test_the_page_is_ascii_so_that_any_encoding_carries_it():
    out = io.StringIO()
    reporter("html").render(investigate([str(SAMPLES / "interleaved-nan" / "job")]), out)
    assert out.getvalue().isascii()
