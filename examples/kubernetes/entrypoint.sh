#!/bin/sh
# The container's first process: starts the program, passes SIGTERM on, and outlives it by a second.
#
# A program that is killed has its guardian (crash.guardian.enable) leave the group for it within milliseconds. When the
# first process of a container ends, the kernel ends all the others at once, the guardian too; so it must not be the
# program itself, and must not end with it.
"$@" &
program=$!
trap 'kill -TERM "$program" 2>/dev/null' TERM INT
while true; do
  wait "$program"
  code=$?
  # A signal ends the first wait; the program may go on for a while.
  kill -0 "$program" 2>/dev/null || break
done
sleep 1
exit "$code"
