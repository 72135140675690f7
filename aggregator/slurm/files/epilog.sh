#!/bin/sh
# Slurm's Epilog: says in the system's log why a job failed, and which rank was first. Runs as root on every node.
# Slurm takes a node out of service whose epilog fails or takes too long: this script does neither.

python="@PYTHON@"
limit=60 # seconds, more than `time_limit_s` of the settings; for a program that cannot even be read, on a dead file server

timeout=
[ -x /usr/bin/timeout ] && timeout="/usr/bin/timeout -k 2 $limit"
if ! $timeout "$python" -I -m aggregator slurm-epilog </dev/null >/dev/null 2>&1; then
    [ -x /usr/bin/logger ] && /usr/bin/logger -t denpex-agg -p daemon.warning "job $SLURM_JOB_ID: $python did not run"
fi
exit 0
