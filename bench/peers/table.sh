#!/usr/bin/env bash
# Tables of the rows that run.sh wrote: the median ratio of all rounds, apart for each placement.
#
#   bench/peers/table.sh ROWS
exec awk '
function field(name,    at, text) {
    at = index($0, "\"" name "\":")
    if (!at) return ""
    text = substr($0, at + length(name) + 3)
    if (substr(text, 1, 1) == "\"") { text = substr(text, 2); return substr(text, 1, index(text, "\"") - 1) }
    sub(/[,}].*/, "", text)
    return text
}
function median(key,    n, i, j, swap, values) {
    n = split(ratios[key], values, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) { swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap }
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}
{
    bench = field("bench"); placement = field("placement"); peer = field("peer"); bytes = field("bytes")
    ratios[bench, placement, peer, bytes] = ratios[bench, placement, peer, bytes] " " field("ratio")
    if (!((bench, placement) in tables)) { tables[bench, placement] = ++count; heads[count] = bench SUBSEP placement }
    if (!(peer in seen)) { seen[peer] = 1; order[++peers] = peer }
    if (!(bytes in sizes)) { sizes[bytes] = 1; lengths[++columns] = bytes }
}
END {
    for (t = 1; t <= count; t++) {
        split(heads[t], head, SUBSEP)
        what = head[1] == "peers-latency" ? "one way, ratio to a plain put" : "stream, share of plain puts"
        printf "%s%s; %s\n%-40s", (t > 1 ? "\n" : ""), what, head[2], ""
        for (c = 1; c <= columns; c++) printf " %9s", lengths[c] " B"
        print ""
        for (p = 1; p <= peers; p++) {
            printf "%-40s", order[p]
            for (c = 1; c <= columns; c++) {
                key = head[1] SUBSEP head[2] SUBSEP order[p] SUBSEP lengths[c]
                if (key in ratios) printf " %9.2f", median(key); else printf " %9s", "-"
            }
            print ""
        }
    }
}' "$@"
