"""What the source that failed says: confirmed, refuted, or nothing where it is not there or not what ran."""

import textwrap

import pytest

from aggregator.catalogue.naming import naming_of
from aggregator.catalogue.source import Finding, Sources, look
from aggregator.limits import processor_time
from aggregator.pipeline import postmortem
from parsers.records import Frame


def told(tmp_path, check, text, *functions, marks=("#!",)):
    """Writes a file; the frames are the lines that are marked, outermost first, in functions of these names."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text))
    lines = [number for number, line in enumerate(path.read_text().splitlines(), 1) if any(m in line for m in marks)]
    frames = [Frame(str(path), line, name) for line, name in zip(lines, functions, strict=True)]
    library = Frame("/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", 1500, "_call_impl")
    return look(check, [*frames, library], Sources())


ON = {
    "plain": """
        def evaluate(model, loader):
            model.eval()
            for batch in loader:
                loss = model(batch)  #!
    """,
    "off only in another function": """
        @torch.no_grad()
        def predict(model, loader):
            pass
        def evaluate(model, loader):
            return model(loader)  #!
    """,
}
UNREAD = {
    "off only before": """
        def evaluate(model, loader):
            with torch.no_grad():
                warm_up(model)
            for batch in loader:
                model(batch)  #!
    """,
    "switched on again inside": """
        def evaluate(model, loader):
            with torch.no_grad():
                for batch in loader:
                    with torch.enable_grad():
                        model(batch)  #!
    """,
    "given a flag that keeps it on": """
        def evaluate(model, loader):
            with torch.inference_mode(False):
                model(loader)  #!
    """,
}
OFF = {
    "with": """
        def evaluate(model, loader):
            with torch.no_grad():
                for batch in loader:
                    model(batch)  #!
    """,
    "with several": """
        def evaluate(model, loader):
            with autocast(), inference_mode():
                model(loader)  #!
    """,
    "decorator": """
        class Trainer:
            @torch.inference_mode()
            def evaluate(self, loader):
                if loader:
                    try:
                        self.model(loader)  #!
                    finally:
                        pass
    """,
    "decorator without a call": """
        @torch.no_grad
        def evaluate(model, loader):
            model(loader)  #!
    """,
    "switch": """
        def evaluate(model, loader):
            torch.set_grad_enabled(False)
            for batch in loader:
                model(batch)  #!
    """,
}


OPEN = {
    "a flag": "with torch.set_grad_enabled(train):\n        model(loader)  #!",
    "a choice": "with torch.no_grad() if not train else nullcontext():\n        model(loader)  #!",
    "a variable": "ctx = torch.inference_mode()\n    with ctx:\n        model(loader)  #!",
    "kept from before": "prev = torch.set_grad_enabled(False)\n    model(loader)  #!",
    "a stack": "stack.enter_context(torch.no_grad())\n    model(loader)  #!",
    "under a condition": "if not train:\n        torch.set_grad_enabled(False)\n    model(loader)  #!",
    "a context of one's own": "with self.no_training:\n        model(loader)  #!",
}


@pytest.mark.parametrize("text", UNREAD.values(), ids=UNREAD)
def test_where_autograd_is_switched_elsewhere_in_the_function_nothing_is_decided(tmp_path, text):
    assert told(tmp_path, "grad-mode", text, "evaluate") is None


@pytest.mark.parametrize("body", OPEN.values(), ids=OPEN)
def test_a_switch_that_cannot_be_read_decides_nothing(tmp_path, body):
    assert told(tmp_path, "grad-mode", f"def evaluate(model, loader, train=False):\n    {body}\n", "evaluate") is None


@pytest.mark.parametrize(
    "body",
    [
        "loss = out.loss\n        loss += out.aux_loss\n        loss.backward()",
        "loss = out.loss\n        loss = loss.item()\n        total += loss",
        "losses = []\n        losses.append(out.loss)",
    ],
    ids=["within the step", "a number by then", "a list of the step"],
)
def test_what_does_not_outlive_its_step_is_no_leak(tmp_path, body):
    text = f"def train(model, loader):\n    for batch in loader:\n        out = model(batch)  #!\n        {body}\n"
    assert told(tmp_path, "graph-kept", text, "train") is None


@pytest.mark.parametrize("text", ON.values(), ids=ON)
def test_an_evaluation_with_autograd_on_is_confirmed_at_the_line_that_calls(tmp_path, text):
    found = told(tmp_path, "grad-mode", text, "evaluate")
    assert found.finding is Finding.CONFIRMED
    line = next(number for number, line in enumerate(textwrap.dedent(text).splitlines(), 1) if "#!" in line)
    assert found.place == f"{tmp_path / 'train.py'}:{line}"


@pytest.mark.parametrize("text", OFF.values(), ids=OFF)
def test_an_evaluation_with_autograd_off_is_refuted(tmp_path, text):
    assert told(tmp_path, "grad-mode", text, "evaluate").finding is Finding.REFUTED


def test_a_caller_may_turn_autograd_off(tmp_path):
    text = """
        def evaluate(model):
            model(1)  #! inner
        def main(model):
            with torch.no_grad():
                evaluate(model)  #! outer
    """
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(text))
    frames = [Frame(str(path), 6, "main"), Frame(str(path), 3, "evaluate")]
    assert look("grad-mode", frames, Sources()).finding is Finding.REFUTED


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\n\n\n" + text,
        lambda text: text.replace("evaluate", "other"),
        lambda text: text + "def broken(:\n",
        lambda text: text + "#" * (3 << 20),
        lambda text: "\0" + text,
    ],
    ids=["moved", "renamed", "no syntax", "too large", "binary"],
)
def test_a_file_that_is_not_what_ran_decides_nothing(tmp_path, change):
    path = tmp_path / "train.py"
    path.write_text(change("def evaluate(model):\n    return model(1)\n"))
    assert look("grad-mode", [Frame(str(path), 2, "evaluate")], Sources()) is None


def test_a_file_that_is_missing_a_link_or_no_file_decides_nothing(tmp_path):
    secret, link, folder = tmp_path / "secret.py", tmp_path / "link.py", tmp_path / "folder.py"
    secret.write_text("def evaluate(model):\n    return model(1)\n")
    link.symlink_to(secret)
    folder.mkdir()
    for path in (tmp_path / "missing.py", link, folder, tmp_path / "a\0b.py"):
        assert look("grad-mode", [Frame(str(path), 2, "evaluate")], Sources()) is None


def test_very_much_source_is_read_within_a_budget_and_the_rest_is_told(tmp_path):
    source = "def evaluate(model):\n    return model(1)\n" + "a=1\n" * 100_000
    frames = []
    for number in range(60):
        path = tmp_path / f"part{number}.py"
        path.write_text(source)
        frames.append(Frame(str(path), 2, "evaluate"))
    sources = Sources()
    with processor_time(15):
        assert look("grad-mode", frames, sources) is None
    (told,) = sources.unread.items()
    assert told[0] == str(tmp_path / "part1.py")
    assert "500,000 words and signs" in told[1]


def test_a_file_that_was_not_read_is_to_be_looked_at_by_hand(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def evaluate(model):\n    return model(1)\n" + "#" * (3 << 20))
    log = tmp_path / "train.log"
    log.write_text(f"""\
Running evaluation
Traceback (most recent call last):
  File "{path}", line 2, in evaluate
    return model(1)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of \
which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use. Of the allocated \
memory 76.00 GiB is allocated by PyTorch, and 900.00 MiB is reserved by PyTorch but unallocated.
""")
    diagnosis = postmortem([str(log)], naming=naming_of()).first_failure.diagnosis
    assert diagnosis.status == "supported"
    assert diagnosis.check_next[0] == f"the source by hand: {path} was not read: larger than 2 MiB"


def test_the_source_may_be_elsewhere(tmp_path):
    there = tmp_path / "src" / "project" / "train.py"
    there.parent.mkdir(parents=True)
    there.write_text("def evaluate(model):\n    return model(1)\n")
    frames = [Frame("/workspace/project/train.py", 2, "evaluate")]
    assert look("grad-mode", frames, Sources(here=False)) is None
    found = look("grad-mode", frames, Sources([tmp_path / "src"], here=False))
    assert (found.finding, found.place) == (Finding.CONFIRMED, "/workspace/project/train.py:2")
    frames = [Frame("/workspace/../../../project/train.py", 2, "evaluate")]
    assert look("grad-mode", frames, Sources([tmp_path / "src" / "other"], here=False)) is None


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("total += loss", True),
        ("losses.append(out.loss)", True),
        ("total_loss += loss / steps", True),
        ("outputs.append(logits)", True),
        ("total += loss.item()", False),
        ("losses.append(loss.detach().cpu())", False),
        ("steps += 1", False),
        ("names.append(name)", False),
    ],
)
def test_what_keeps_the_graph_of_each_step_is_found_in_the_loop(tmp_path, line, kept):
    text = f"""
        def train(model, loader):
            for batch in loader:
                loss = model(batch)  #!
                {line}
    """
    found = told(tmp_path, "graph-kept", text, "train")
    assert (found is not None) == kept
    if kept:
        assert found.place.endswith(":5")


@pytest.mark.parametrize(
    ("test", "found"),
    [
        ("rank == 0", True),
        ("dist.get_rank() == 0", True),
        ("accelerator.is_main_process", True),
        ("step % 10 == 0", False),
    ],
)
def test_a_collective_under_a_condition_on_the_rank_is_found(tmp_path, test, found):
    text = f"""
        def save(model):
            if {test}:
                dist.barrier()  #!
    """
    assert (told(tmp_path, "rank-condition", text, "save") is not None) == found


def test_what_the_parser_thinks_of_the_source_is_not_printed(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def evaluate(m):\n    m(1 if m is 1else 2, '\\d')\n")
    sources = Sources()
    look("grad-mode", [Frame(str(path), 2, "evaluate")], sources)  # a warning would be an error here
    assert sources.unread == {}
