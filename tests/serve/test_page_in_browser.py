"""The page in a real browser: paste, drop, the list; nothing of a log or a name runs; other sites get nothing."""

import io
import os
import re
import shutil
import threading
import zipfile
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from asking import ROOT_TRACEBACK, ask, port_of, zip_of
from browsing import NEEDS_BROWSER, chromium
from payloads import PAYLOADS

SAMPLES = Path(__file__).parent.parent.parent / "sample_runs"
BOOM = ROOT_TRACEBACK.format("boom")
WAIT_MS = 20_000

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def browser():
    with chromium("--host-resolver-rules=MAP evil.example 127.0.0.1") as started:
        yield started


@pytest.fixture
def opened(browser, serve):
    """Opens the page; in the end holds that it was silent and asked nobody but its server."""
    heard = []
    contexts = []

    def show(root=None, **options):
        server = serve(root)
        context = browser.new_context(viewport={"width": 1200, "height": 900}, **options)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (heard.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith(server.url) or heard.append(request.url))
        page.goto(server.url)
        return server, page

    yield show
    for context in contexts:
        context.close()
    assert [message for message in heard if "Failed to load resource" not in message] == []  # of what was refused


def drop(page, *files):
    """As a user does it: the browser itself reads the files."""
    session = page.context.new_cdp_session(page)
    data = {"items": [], "files": list(map(str, files)), "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": kind, "x": 600, "y": 200, "data": data})


def report_of(page):
    page.wait_for_url("**/upload/*")
    return page.locator("h1").inner_text()


def problem_of(page):
    page.locator("#problem:not(:empty)").wait_for()
    return page.locator("#problem").inner_text()


def test_a_pasted_traceback_opens_as_its_report_and_is_listed_until_then(opened):
    _, page = opened()
    page.get_by_label("A log, or a traceback").fill(BOOM)
    page.get_by_role("button", name="Judge the text").click()
    assert "rank 2" in report_of(page)
    assert "RuntimeError: boom" in page.locator("main").inner_text()
    page.go_back()
    page.reload()
    given = page.get_by_role("region", name="What you gave")
    assert "pasted text: failed. First failure: rank 2" in given.inner_text()
    given.get_by_role("link", name="pasted text", exact=True).click()
    assert "rank 2" in report_of(page)


def test_it_is_used_with_the_keyboard_alone(opened):
    _, page = opened()
    page.keyboard.press("Tab")
    page.keyboard.insert_text(BOOM)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "rank 2" in report_of(page)


def test_a_dropped_file_is_judged(opened, tmp_path):
    _, page = opened()
    (tmp_path / "rank_2.log").write_text(BOOM)
    drop(page, tmp_path / "rank_2.log")
    assert "rank 2" in report_of(page)
    assert "rank_2.log:" in page.locator("main").inner_text()


def test_a_dropped_zip_of_a_job_is_judged(opened, tmp_path):
    _, page = opened()
    job = SAMPLES / "torchrun-logdir-eval-oom" / "job"
    (tmp_path / "job.zip").write_bytes(zip_of(job, job.parent))
    drop(page, tmp_path / "job.zip")
    assert "rank 3" in report_of(page)
    assert page.locator("#chart").get_attribute("data-drawn") == "yes"
    assert page.locator("#chart").get_attribute("data-rows") == "4"


def test_a_chosen_file_is_judged(opened, tmp_path):
    _, page = opened()
    (tmp_path / "rank_2.log").write_text(BOOM)
    page.get_by_label("or a file").set_input_files(tmp_path / "rank_2.log")
    assert "rank 2" in report_of(page)


def test_a_folder_or_several_files_are_asked_for_as_a_zip(opened, tmp_path):
    _, page = opened()
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text(BOOM)
    drop(page, tmp_path / "a.log", tmp_path / "b.log")
    assert problem_of(page) == "one file at a time: zip the folder of a job that has several"
    drop(page, tmp_path)
    page.get_by_text("a folder: zip it, and drop that").wait_for()


def test_what_is_too_large_is_told_without_being_sent(opened, tmp_path):
    server, page = opened()
    with (tmp_path / "large.log").open("wb") as file:
        file.truncate((128 << 20) + 1)
    drop(page, tmp_path / "large.log")
    assert problem_of(page).startswith("larger than 128 MB (run denpex-agg postmortem on it")
    assert "What you gave" not in ask(server)[2]


def test_a_bomb_is_refused_in_words(opened, tmp_path):
    _, page = opened()
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank_0.log", b"\0" * (80 << 20))
    drop(page, tmp_path / "bomb.zip")
    assert problem_of(page).startswith("bomb.zip: stopped: unfolds to more than 200 times its size (unpack it")


def test_what_is_no_log_and_an_empty_field_are_told(opened, tmp_path):
    _, page = opened()
    page.locator("#judge").click()
    assert problem_of(page) == "there is nothing in it"
    (tmp_path / "a.log").write_bytes(b"\0\1\2\3" * 999)
    drop(page, tmp_path / "a.log")
    page.get_by_text("a.log: no log to read").wait_for()


def test_a_server_that_has_ended_is_told(opened):
    server, page = opened()
    server.shutdown()
    server.server_close()
    page.locator("#text").fill(BOOM)
    page.locator("#judge").click()
    assert "is denpex-agg serve still running?" in problem_of(page)


HOSTILE = """\
2026-03-04 11:00:00,000 INFO initialised process group: rank 0 of 2 on {payload} pid 41
2026-03-04 11:00:20,000 ERROR Traceback (most recent call last):
  File "/w/{payload}.py", line 3, in {payload}
    {payload}()
RuntimeError: {payload}
"""
ELEMENTS = "img, svg, iframe, object, embed, form, base"


def inert(page):
    return page.locator(ELEMENTS).count() == 0 and page.evaluate(
        "[...document.querySelectorAll('*')].every((e) => ![...e.attributes].some((a) => a.name.startsWith('on')))"
        " && [...document.querySelectorAll('a')].every((a) => a.protocol.startsWith('http'))"
    )


def test_what_logs_and_names_of_files_and_folders_say_is_text(opened, tmp_path):
    runs = tmp_path / "runs"
    names = [payload.replace("/", "_")[:60] for payload in PAYLOADS]
    for name, payload in zip(names, PAYLOADS, strict=True):
        (runs / name).mkdir(parents=True)
        (runs / name / f"rank_0.{name}.log").write_text(HOSTILE.format(payload=payload))
    _, page = opened(runs)
    page.locator(".state:not(:empty)").first.wait_for()
    assert page.locator("#jobs tr").count() == len(PAYLOADS)
    assert inert(page)
    hostile = io.BytesIO()
    with zipfile.ZipFile(hostile, "w") as archive:
        for name, payload in zip(names, PAYLOADS, strict=True):
            archive.writestr(f"rank_0.{name}.log", HOSTILE.format(payload=payload))
    (tmp_path / f"{names[3]}.zip").write_bytes(hostile.getvalue())
    drop(page, tmp_path / f"{names[3]}.zip")
    assert report_of(page)
    assert inert(page)
    assert page.locator("script").count() == 3
    page.go_back()
    page.reload()
    assert names[3] in page.get_by_role("region", name="What you gave").inner_text()
    assert page.locator("script").count() == 1
    assert page.locator("style").count() == 1
    assert inert(page)


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_log_is_a_report_in_which_nothing_runs(opened, payload):
    _, page = opened()
    page.locator("#text").fill(HOSTILE.format(payload=payload))
    page.locator("#judge").click()
    report_of(page)
    assert inert(page)
    assert page.locator("script").count() == 3


def test_jobs_in_sight_and_a_page_further_get_their_verdicts_and_can_be_searched(opened, tmp_path):
    shutil.copytree(SAMPLES, tmp_path / "runs")
    for moment, name in enumerate(sorted(path.name for path in SAMPLES.iterdir())):
        os.utime(tmp_path / "runs" / name, (moment, moment))  # the order of rows is not that of the checkout
    _, page = opened(tmp_path / "runs")
    row = page.get_by_role("row", name=re.compile("^completed-noisy-shutdown"))
    row.get_by_text("completed", exact=True).wait_for()
    page.get_by_role("row", name=re.compile("^two-node-segfault")).get_by_text("rank 3").wait_for()
    page.get_by_label("Search").fill("segfault")
    assert page.locator("#jobs tr:visible").count() == 1
    page.get_by_role("link", name="two-node-segfault").click()
    assert "rank 3" in page.locator("h1").inner_text()


def test_without_scripts_jobs_are_listed_and_open(opened):
    _, page = opened(SAMPLES, java_script_enabled=False)
    assert page.locator("noscript").is_visible()
    page.get_by_role("link", name="two-node-segfault").click()
    assert "rank 3" in page.locator("h1").inner_text()


def test_it_is_dark_where_the_system_is_and_fits_a_narrow_window(opened):
    backs = []
    for scheme in ("light", "dark"):
        _, page = opened(SAMPLES, color_scheme=scheme)
        backs.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert backs[0] != backs[1]
    page.set_viewport_size({"width": 400, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


ATTACK = """async (url) => {
    const told = [];
    const plant = { method: "POST", body: "RuntimeError: planted", mode: "no-cors" };
    for (const options of [{}, { mode: "no-cors" }, plant]) {
        try { told.push((await (await fetch(url + (options.method ? "upload" : ""), options)).text()).length); }
        catch { told.push(0); }
    }
    const frame = document.createElement("iframe");
    frame.src = url;
    document.body.append(frame);
    await new Promise((loaded) => (frame.onload = loaded));
    try { told.push(frame.contentDocument.body.textContent.length); } catch { told.push(0); }
    return told;
}"""


@contextmanager
def another_site():
    """A page of another server on this machine: of all origins the one that is nearest to ours."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>another</title><form method=post></form>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{port_of(other)}/"
        other.shutdown()
        thread.join()


def test_another_origin_that_knows_the_address_reads_and_writes_nothing(browser, serve):
    server = serve()
    with another_site() as origin:
        page = browser.new_page()
        page.goto(origin)
        assert page.evaluate(ATTACK, server.url) == [0, 0, 0, 0]
        page.evaluate("(url) => { document.forms[0].action = url + 'upload'; document.forms[0].submit(); }", server.url)
        page.get_by_text("only requests of this page itself are answered").wait_for()
        page.close()
    assert "What you gave" not in ask(server)[2]


def test_a_name_that_was_made_to_lead_here_is_refused(browser, serve):
    server = serve()
    page = browser.new_page()
    answer = page.goto(f"http://evil.example:{port_of(server)}/{server.token}/")
    assert answer.status == 403
    page.close()


@pytest.mark.parametrize("token", ["", "wrong/"])
def test_without_the_secret_the_browser_sees_nothing(browser, serve, token):
    server = serve()
    page = browser.new_page()
    assert page.goto(f"http://127.0.0.1:{port_of(server)}/{token}").status == 404
    assert server.token not in page.content()
    page.close()
