#!/bin/sh
# Slurm's EpilogSlurmctld: puts the cause of a failure into the job's AdminComment, once the nodes' epilog has written
# its report into `report_dir`. Runs as Slurm's user on the controller; reads one file there, and no log.
# Needs slurmdbd, and Slurm 22.05 or newer: the controller changes nothing of a job that has ended, only the accounts do.

python="@PYTHON@"
sacctmgr=/usr/bin/sacctmgr
# export SLURM_CONF=/path/to/slurm.conf    # if it is not where the commands look for it: Slurm does not pass it on

comment=$("$python" -I -m aggregator slurm-epilog --comment </dev/null 2>/dev/null)
if [ -n "$comment" ]; then
    "$sacctmgr" -i modify job where JobID="$SLURM_JOB_ID" set AdminComment="$comment" </dev/null >/dev/null 2>&1
fi
exit 0
