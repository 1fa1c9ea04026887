# Runs one private PostgreSQL server and outlives the program that asked for it, so that the
# server and its directory are gone also when that program was killed.
#
#     sh -c SCRIPT awa-devpg DIRECTORY BIN KEEP POSTGRES-OPTION...
#
# Standard input is a pipe whose other end only the program holds. Its end of file means "stop",
# whether the program closed it, exited or was killed. The line "leave" means: end and let the
# server run.
# Standard output takes one line, `pid N`, `initdb-failed` or, after the reason, `directory-failed`.
# After `pid` only the server holds it: its end of file tells the program that the server is gone.

directory=$1 bin=$2 keep=$3
shift 3
server=

# Signals for the program's process group or session are not for us: we leave at end of file.
trap '' HUP INT QUIT TERM PIPE
umask 077

# Made here and not by the program: a program killed at any moment leaves no directory behind.
if ! mkdir "$directory" 2>&1; then
    echo directory-failed
    exit 11
fi
exec 3>&1 >>"$directory/log" 2>&1

# Sends signal $1 to the server, at most $2 times, until the server is gone. It is sent again and
# again because a server that has just been started does not hear it yet; a second one does no harm.
signal_until_gone() {
    attempts=$2
    while kill -s "$1" "$server" 2>/dev/null; do
        attempts=$((attempts - 1))
        [ "$attempts" -gt 0 ] || return 1
        sleep 0.02 2>/dev/null || sleep 1
    done
}

if (
    trap - HUP INT QUIT TERM PIPE
    exec "$bin/initdb" -D "$directory/data" -U postgres --auth=trust --encoding=UTF8 --locale=C \
        --no-sync --no-instructions </dev/null 3>&-
); then
    (
        trap - HUP INT QUIT TERM PIPE
        exec "$bin/postgres" -D "$directory/data" "$@" </dev/null 3>&3
    ) &
    server=$!
    echo "pid $server" >&3
else
    echo initdb-failed >&3
fi
exec 3>&-

while read -r word; do
    [ "$word" != leave ] || exit 0
done

# Fast shutdown for 5 s, immediate shutdown for 2 s, and then without asking.
status=0
if [ -n "$server" ]; then
    signal_until_gone INT 250 || signal_until_gone QUIT 100 || signal_until_gone KILL 250 || status=12
fi
[ "$keep" = keep ] || rm -rf "$directory" || status=13
exit "$status"
