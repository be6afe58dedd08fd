#!/usr/bin/env bash
# Runs a command beside another, on the CPUs that this one leaves idle, and prints its output behind.
# usage: scripts/beside.sh LOG COMMAND OTHER
#
# The output of COMMAND, with one test at a time, is in LOG until OTHER has ended. Fails if one of them does.
set -u

log=$1
# A background command ignores SIGINT.
trap 'cat "$log"; trap - TERM; kill 0' INT TERM
RUST_TEST_THREADS=1 bash -c "$2" > "$log" 2>&1 &
status=0
bash -c "$3" || status=1
wait $! || status=1
cat "$log"
exit $status
