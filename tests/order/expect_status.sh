#!/bin/sh
# expect_status.sh STATUS SETTINGS PROGRAM [ARGUMENTS...]
# Runs the program once for each of the `/`-separated settings of the simulated CUDA. Fails with one
# line unless every run ends with exactly that status.
wanted=$1 settings=$2
shift 2
while [ -n "$settings" ]; do
    one=${settings%%/*}
    case $settings in
        */*) settings=${settings#*/} ;;
        *) settings= ;;
    esac
    SIMCUDA=$one "$@"
    got=$?
    if [ "$got" -ne "$wanted" ]; then
        echo "expect_status: status $got instead of $wanted with SIMCUDA=$one" >&2
        exit 1
    fi
done
