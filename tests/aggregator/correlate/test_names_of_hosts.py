"""Which host a failure is said to be on, and by which of its names."""

from correlate_jobs import box, failed, hello, lines, say, steps, traceback

KEY = "KeyError: 'input_ids'"


def test_a_host_is_called_by_its_short_name_where_the_logs_call_it_so(judge):
    text = lines(
        hello(0, 2, "node-a"), hello(1, 2, "node-b"), steps(0, 1, 5), steps(1, 1, 5), traceback(KEY, "[rank1]: ")
    )
    text += lines(failed(10, 1, 1, 4101), box(10, (1, 1, 1, 4101), host="node-b.hpc.example"))
    assert judge({"train.log": text}).first_failure.hosts == ("node-b",)


def test_a_host_is_called_by_its_full_name_where_it_has_no_other(judge):
    text = lines(hello(0, 2, "node-a.hpc.example"), hello(1, 2, "node-b.hpc.example"), traceback(KEY, "[rank1]: "))
    assert judge({"train.log": text}).first_failure.hosts == ("node-b.hpc.example",)


def test_the_one_host_that_a_large_job_s_logs_name_is_not_that_of_all_ranks(judge):
    files = {f"rank_{rank:02}.log": steps(rank, 1, 5) for rank in range(16)}
    files["rank_09.log"] += say(9, 9, "initialised process group: rank 9 of 16 on node-b pid 4109") + "\n"
    files["rank_03.log"] += traceback(KEY)
    assert judge(files).first_failure.hosts == ()
