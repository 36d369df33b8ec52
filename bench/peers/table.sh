#!/usr/bin/env bash
# Tables of the rows that run.sh wrote: the median ratio of all rounds, apart for each placement.
#
#   bench/peers/table.sh [--markdown] ROWS
markdown=0
[[ ${1-} != --markdown ]] || { markdown=1; shift; }
exec awk -v markdown="$markdown" '
function field(name,    at, text) {
    at = index($0, "\"" name "\":")
    if (!at) return ""
    text = substr($0, at + length(name) + 3)
    if (substr(text, 1, 1) == "\"") { text = substr(text, 2); return substr(text, 1, index(text, "\"") - 1) }
    sub(/[,}].*/, "", text)
    return text
}
function median(list,    n, i, j, swap, values) {
    n = split(list, values, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) { swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}
function size(bytes) {
    bytes += 0
    return bytes < 1024 ? bytes " B" : bytes < 1048576 ? bytes / 1024 " KB" : bytes / 1048576 " MB"
}
{
    bench = field("bench"); placement = field("placement"); peer = field("peer"); bytes = field("bytes")
    table = bench SUBSEP placement
    ratios[table, peer, bytes] = ratios[table, peer, bytes] " " field("ratio")
    base[table] = field("baseline")
    if (!(table in tables)) { tables[table] = 1; heads[++count] = table }
    if (!((table, peer) in has)) has[table, peer] = 1
    if (!(peer in seen)) { seen[peer] = 1; order[++peers] = peer }
    if (!(bytes in sizes)) { sizes[bytes] = 1; lengths[++columns] = bytes }
}
END {
    first = markdown ? "| %s |" : "%-40s"; cell = markdown ? " %s |" : " %7s"
    for (t = 1; t <= count; t++) {
        split(heads[t], head, SUBSEP)
        what = (head[1] == "peers-latency" ? "one way, ratio to " : "stream, share of ") base[heads[t]]
        printf "%s%s; %s\n%s", (t > 1 ? "\n" : ""), what, head[2], (markdown ? "\n" : "")
        printf first, ""
        for (c = 1; c <= columns; c++) printf cell, size(lengths[c])
        print ""
        if (markdown) { printf "|---|"; for (c = 1; c <= columns; c++) printf "---|"; print "" }
        for (p = 1; p <= peers; p++) {
            if (!((heads[t], order[p]) in has)) continue
            printf first, order[p]
            for (c = 1; c <= columns; c++) {
                key = heads[t] SUBSEP order[p] SUBSEP lengths[c]
                printf cell, (key in ratios) ? sprintf("%.2f", median(ratios[key])) : "-"
            }
            print ""
        }
    }
}' "$@"
