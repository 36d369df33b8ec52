# Sourced by test.sh: limits on what phases may take, which hold on a busy machine too.

# A command that does nothing for this long, in seconds, waits for something that will not come.
standstill=600

# The processes of session $1, one a line: number, and the processor seconds of it and its ended children.
session() {
    # Some end meanwhile.
    { cat /proc/[0-9]*/stat 2>/dev/null || true; } | sed 's/^\([0-9]*\) (.*) /\1 /' |
        awk -v session="$1" -v hz="$(getconf CLK_TCK)" '$5 == session { print $1, ($13 + $14 + $15 + $16) / hz }'
}

# Ends the session $1 when it has used $2 seconds of processor time, or none for too long.
watch() {
    local spent last=0 since=$SECONDS why=
    while sleep 2 2>/dev/null; do
        spent=$(session "$1" | awk '{ all += $2 } END { print int(all) }')
        if ((spent > last)); then last=$spent since=$SECONDS; fi
        if ((spent > $2)); then
            why="used more than $2 s of processor time"
        elif ((SECONDS - since > standstill)); then
            why="did nothing for $standstill s"
        else
            continue
        fi
        echo "test.sh: ended what $why" >&2
        session "$1" | cut -d ' ' -f 1 | xargs -r kill -TERM || true
        sleep 10 2>/dev/null
        session "$1" | cut -d ' ' -f 1 | xargs -r kill -KILL || true
        return
    done
}

# Runs a command, for at most $1 seconds of processor time unless someone watches, who can end it himself. Time on the clock is no
# measure of a command that shares the processors with others.
limited() {
    local seconds=$1 command watcher status=0
    shift
    if [[ -t 2 ]]; then
        "$@"
        return
    fi
    # A shell has what it starts in the background ignore Ctrl-C, which tests send.
    setsid env --default-signal=INT,QUIT "$@" &
    command=$!
    watch "$command" "$seconds" >/dev/null &
    watcher=$!
    # Of a phase that runs beside another, the other is over before its time.
    trap 'kill -TERM -- -"$command" 2>/dev/null; exit 143' TERM
    wait "$command" || status=$?
    kill "$watcher" 2>/dev/null || true
    return "$status"
}
