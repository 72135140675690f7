# For batch scripts, in bash or sh. Put this before the work, or read it in with `. ./batch_trap.sh`:
# when the script ends, the cause of a failure is printed, and a report is written beside the job's output.
# The script keeps its exit code.

denpex_report() {
    code=$?
    trap - EXIT
    # Where this script's own output goes, whatever name `#SBATCH -o` gave it. A % in it is no mark of Slurm's.
    for stream in 1 2; do
        file=$(readlink "/proc/$$/fd/$stream" | sed 's/%/%%/g')
        case $stream$file in
        1/*) export SLURM_JOB_STDOUT="$file" ;;
        2/*) export SLURM_JOB_STDERR="$file" ;;
        esac
    done
    SLURM_JOB_EXIT_CODE2="$code:0" "@PYTHON@" -I -m aggregator slurm-epilog </dev/null
    exit "$code"
}
trap denpex_report EXIT
trap 'exit 143' TERM # a time limit, or scancel: the report has to be ready before Slurm's KillWait is over
