"""What the figures of CUDA's out-of-memory messages show."""

import pytest

from aggregator.catalogue.oom import read_figures
from parsers.lexicon import default_lexicon

TOTAL = "GPU 3 has a total capacity of 79.15 GiB of which"


def figures(text):
    return read_figures({k: v for _, fields in default_lexicon().match(text) for k, v in fields.items()})


def message(need, free, in_use, allocated, idle, process="", allowed="", pools=""):
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {need}. {TOTAL} {free} is free.{process} "
        f"Including non-PyTorch memory, this process has {in_use} memory in use.{allowed} Of the allocated memory "
        f"{allocated} is allocated by PyTorch,{pools} and {idle} is reserved by PyTorch but unallocated."
    )


OTHER = " Process 4711 has 40.00 GiB memory in use."
POOLS = " with 30.00 GiB allocated in private pools (e.g., CUDA Graphs),"
CASES = {
    "giant": message("60.00 GiB", "50.00 GiB", "28.00 GiB", "26.00 GiB", "512.00 MiB"),
    "others": message("2.00 GiB", "10.00 MiB", "38.00 GiB", "36.00 GiB", "512.00 MiB", process=OTHER),
    "capped": message("2.00 GiB", "40.00 GiB", "38.70 GiB", "37.00 GiB", "500.00 MiB", allowed=" 39.00 GiB allowed;"),
    "fragmented": message("2.00 GiB", "100.00 MiB", "78.50 GiB", "70.00 GiB", "7.90 GiB"),
    "pools": message("2.00 GiB", "100.00 MiB", "78.50 GiB", "76.90 GiB", "900.00 MiB", pools=POOLS),
    "outside": message("2.00 GiB", "100.00 MiB", "78.50 GiB", "60.00 GiB", "900.00 MiB"),
    "full": message("2.00 GiB", "100.00 MiB", "78.50 GiB", "76.90 GiB", "900.00 MiB"),
    "untold": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
}


@pytest.mark.parametrize(("pattern", "text"), CASES.items(), ids=CASES)
def test_the_figures_show_where_the_memory_went(pattern, text):
    assert figures(text).pattern == pattern


def test_a_few_idle_megabytes_are_no_fragmentation_even_if_less_was_asked_for():
    assert figures(message("110.00 MiB", "80.00 MiB", "78.90 GiB", "78.00 GiB", "220.00 MiB")).pattern == "full"


def test_the_old_form_tells_the_same():
    text = (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.75 GiB total capacity; 20.10 GiB "
        "already allocated; 1.20 GiB free; 29.00 GiB reserved in total by PyTorch)"
    )
    found = figures(text)
    assert (found.pattern, found.unallocated, found.others) == ("fragmented", pytest.approx(8.9), None)


def test_in_a_container_the_process_is_told_by_a_number_that_it_does_not_know():
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. {TOTAL} 32.00 MiB is free. Process "
        "8812 has 78.90 GiB memory in use. Of the allocated memory 77.00 GiB is allocated by PyTorch, and 700.12 MiB "
        "is reserved by PyTorch but unallocated."
    )
    assert figures(text).pattern == "full"


@pytest.mark.parametrize("need", ["", "-1 GiB", "1 parsec", "1e9 GiB", "9" * 400 + " GiB", "NaN GiB"])
def test_what_is_no_size_is_not_read(need):
    assert read_figures({"need": need, "capacity": "79.15 GiB"}).requested is None
