#!/bin/sh
# The first process of the container: it starts the program, forwards SIGTERM, and ends one second after the program.
#
# If the program is killed, its guardian (crash.guardian.enable) leaves the group on its behalf within milliseconds.
# When the first process of a container ends, the kernel ends all other processes, including the guardian. Therefore
# the program must not be the first process, and the first process must not end together with the program.
"$@" &
program=$!
trap 'kill -TERM "$program" 2>/dev/null' TERM INT
while true; do
  wait "$program"
  code=$?
  # A signal interrupts the wait, although the program may still run.
  kill -0 "$program" 2>/dev/null || break
done
# If the program ended immediately after the signal, `code` is the code of the signal, and the shell still has the code
# of the program.
wait "$program" 2>/dev/null
last=$?
[ "$last" -eq 127 ] || code=$last
sleep 1
exit "$code"
