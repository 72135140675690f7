"""`diagnose`, `explain` and `catalogue`, as a user runs them."""

import json
import os
import subprocess
import sys

import pytest

TRACEBACK = """\
step 10 loss 2.1
step 20 loss 1.9
Running evaluation
Traceback (most recent call last):
  File "/job/train.py", line 40, in evaluate
    out = model(batch)
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1775, in _call_impl
    return forward_call(*args, **kwargs)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of \
which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated \
memory 76.00 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.
"""


def run(*words, given=None):
    command = [sys.executable, "-m", "aggregator", *map(str, words)]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)


def flat(text):
    """Without the line breaks of a narrow report."""
    return " ".join(text.split())


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(TRACEBACK)
    return path


def test_a_pasted_traceback_is_named(log):
    for done in (run("diagnose", given=TRACEBACK), run("diagnose", "-", given=TRACEBACK), run("diagnose", log)):
        assert done.returncode == 0
        assert "[eval-oom-missing-no-grad, supported]" in flat(done.stdout)
        assert "torch.inference_mode()" in done.stdout


def test_what_only_its_kind_speaks_for_is_not_called_supported():
    bare = 'Traceback (most recent call last):\n  File "/job/train.py", line 4, in main\n    x = x.cuda()\n'
    done = run("diagnose", given=bare + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert "[oom-unclassified, kind-only]" in flat(done.stdout)


def test_as_json_it_is_the_verdict(log):
    verdict = json.loads(run("diagnose", log, "--json").stdout)
    diagnosis = verdict["first_failure"]["diagnosis"]
    assert diagnosis["entry"] == "eval-oom-missing-no-grad"
    assert diagnosis["matched"]
    assert diagnosis["nearest"] == "eval-oom-batch-too-large"


def test_the_source_confirms_or_refutes(log, tmp_path):
    source = tmp_path / "project" / "train.py"
    source.parent.mkdir()
    body = "\n" * 37 + "def evaluate(model, batch):\n    if batch:\n        out = model(batch)\n"
    source.write_text(body)
    done = run("postmortem", log, "--source", source.parent)
    assert "[eval-oom-missing-no-grad, confirmed]" in flat(done.stdout)
    assert "/job/train.py:40: called with autograd on" in flat(done.stdout)
    source.write_text(body[1:].replace("def evaluate", "@torch.no_grad()\ndef evaluate"))
    done = run("postmortem", log, "--source", source.parent)
    assert "[eval-oom-missing-no-grad" not in flat(done.stdout)
    assert "Not: eval-oom-missing-no-grad: /job/train.py:37: autograd is turned off here" in flat(done.stdout)


def test_an_entry_is_explained_in_full():
    done = run("explain", "eval-oom-missing-no-grad")
    assert done.returncode == 0
    assert done.stdout.startswith("# Evaluation loop OOM due to missing torch.no_grad\n")
    assert run("catalogue", "show", "eval-oom-missing-no-grad").stdout == done.stdout


def test_an_entry_that_is_misspelled_is_guessed():
    done = run("explain", "eval-oom-missing-no-gard")
    assert done.returncode == 3
    assert "perhaps eval-oom-missing-no-grad" in done.stderr


@pytest.mark.parametrize(
    "asked",
    ["EVAL-OOM-Missing-No-Grad", "Evaluation loop OOM due to missing torch.no_grad", "eval oom missing no grad"],
)
def test_an_entry_is_found_in_other_cases_and_by_its_title(asked):
    assert run("explain", asked).stdout == run("explain", "eval-oom-missing-no-grad").stdout


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("eval-oom", "perhaps eval-oom-"),
        ("missing no_grad", "eval-oom-missing-no-grad"),
        ("torch.no_grad", "eval-oom-missing-no-grad"),
        ("qqqq", "`denpex-agg catalogue list` names them all"),
        ("", "`denpex-agg catalogue list` names them all"),
        ("a" * 5000, "`denpex-agg catalogue list` names them all"),
    ],
)
def test_a_part_of_an_id_or_of_a_title_is_answered_with_what_may_be_meant(asked, told):
    done = run("explain", asked)
    assert done.returncode == 3
    assert told in done.stderr


def test_the_list_has_every_entry_and_the_facts_are_told():
    assert "oom-fragmentation" in run("catalogue", "list").stdout
    assert "ranks_on_gpu0" in run("catalogue", "facts").stdout


def test_what_cannot_be_read_is_told_without_a_traceback(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for words, says in (
        (("diagnose", tmp_path), "`denpex-agg postmortem` reads folders"),
        (("diagnose", "/dev/zero"), "not a regular file but a device"),
        (("diagnose", "/dev/null"), "not a regular file but a device"),
        (("diagnose", "-"), "the input is empty"),
        (("diagnose", tmp_path / ("n" * 300)), "File name too long"),
        (("diagnose", "-", "--source", fifo), "not a folder but a FIFO"),
        (("catalogue", "check", fifo), "not a folder but a FIFO"),
        (("formats", "check", "/dev/zero"), "not a folder but a device"),
        (("diagnose", tmp_path / "none.log"), "no such file"),
        (("diagnose", "-", "--source", tmp_path / "none"), "no such folder"),
        (("catalogue", "check", tmp_path / "none"), "no such folder"),
        (("catalogue", "check", tmp_path), "families.toml"),
        (("catalogue", "list", "--catalogue", tmp_path), "families.toml"),
    ):
        done = run(*words, given="")
        assert done.returncode == 3, words
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_entries_of_a_site_are_checked_against_their_samples(tmp_path):
    (tmp_path / "families.toml").write_text('site = ["cuda_oom"]\n')
    texts = ("symptom", "cause", "mechanism", "fix", "verify", "prevention", "fingerprint")
    (tmp_path / "site.toml").write_text(
        '[[entry]]\nid = "site-oom"\ntitle = "Ours"\nkinds = ["cuda_oom"]\nlayer = "software"\nbase = 1.0\n'
        + "".join(f'{name} = "{name}"\n' for name in texts)
    )
    done = run("catalogue", "check", tmp_path)
    assert done.returncode == 3
    assert "site-oom: has no positive sample" in done.stdout
    samples = tmp_path / "samples"
    samples.mkdir()
    jobs = {
        "positive": TRACEBACK.replace("Running evaluation\n", "").replace("evaluate", "step"),
        "sibling": "Fatal Python error: Segmentation fault",
        "quoted": "on: CUDA out of memory",
    }
    (samples / "site.toml").write_text(
        "".join(
            f"[[sample]]\nentry = 'site-oom'\nwhat = '{what}'\nlog = '''{job}'''\n" for what, job in jobs.items()
        ).replace("what = 'sibling'", "what = 'sibling'\nis = 'segfault'")
    )
    assert run("catalogue", "check", tmp_path).stdout == "1 entries checked, 0 problems\n"
