#!/bin/sh
# One rank of a training job, as its log sees it. Usage: rank.sh FAULT RANK
# All take three steps; then RANK has the FAULT and the others work on until they are stopped. `none`: all finish.
rank=$SLURM_PROCID

say() {
    printf '%s [rank%s] INFO %s\n' "$(date '+%Y-%m-%d %H:%M:%S,%3N')" "$rank" "$1"
}

for step in 1 2 3; do
    say "step $step loss 2.$((9 - step))00"
    sleep 0.2
done
if [ "$1" = none ]; then
    say "training finished"
    exit 0
fi
if [ "$rank" = "$2" ]; then
    case $1 in
    raise)
        sed "s/^/[rank$rank]: /" >&2 <<'TRACEBACK'
Traceback (most recent call last):
  File "/home/user/train.py", line 88, in <module>
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.13 GiB.
TRACEBACK
        exit 1
        ;;
    allocate)
        exec tail /dev/zero # keeps what it reads: there is no line end in it
        ;;
    esac
fi
while :; do
    step=$((step + 1))
    say "step $step loss 2.500"
    sleep 0.5
done
