#!/usr/bin/env bash
# Markdown tables of the rows that run.sh wrote: seconds and, in brackets, the ratio to no limit, medians where a run was made several
# times; then those in which a donor was killed, and the faults by themselves.
#
#   bench/far/table.sh ROWS...
exec awk '
function field(name,    at, text) {
    at = index($0, "\"" name "\": ")
    if (!at) return ""
    text = substr($0, at + length(name) + 4)
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
function mib(bytes) { return bytes == "" || bytes == "null" ? "" : sprintf("%.0f", bytes / 1048576) }
function head(line,    n, i, cells) {
    n = split(line, cells, "|")
    print "\n" line
    for (i = 2; i < n; i++) printf "|---"
    print "|"
}
{
    program = field("program"); store = field("store"); killed = field("killed")
    if (!(program in known)) { known[program] = 1; order[++count] = program }
    key = program SUBSEP store SUBSEP killed
    if (store == "no limit") peak[program] = field("peak_anonymous_bytes")
    else local_of[program] = field("local_bytes")
    if (killed == "" && !(store in columns_of)) { columns_of[store] = 1; columns[++width] = store }
    if (killed != "" && !((store, killed) in deaths_of)) { deaths_of[store, killed] = 1; deaths[++dead] = store SUBSEP killed }
    if (field("error") != "") { wrong[key] = field("error"); problems[++troubles] = program ", " store (killed == "" ? "" : ", " killed " killed") ": " field("error"); next }
    seconds[key] = seconds[key] " " field("seconds"); ratios[key] = ratios[key] " " field("ratio")
    if (field("identical") != "true") { differs[key] = 1; problems[++troubles] = program ", " store (killed == "" ? "" : ", " killed " killed") ": another result" }
    if (field("read_p50_us") != "") {
        if (!(store in faults)) { faults[store] = 1; touched[++touches] = store }
        p50[store] = p50[store] " " field("read_p50_us"); p99[store] = p99[store] " " field("read_p99_us")
        reads[store] = reads[store] " " field("scan_read_mbs"); writes[store] = writes[store] " " field("scan_write_mbs")
    }
    if (field("load_seconds") != "" && killed == "") {
        asks[++asked] = sprintf("| %s | %s | %s | %s | %s | %s | %s | %s |", program, store, field("load_seconds"), field("get_seconds"), field("get_p50_us"),
            field("get_p99_us"), field("fork_seconds"), field("save_seconds"))
    }
    if (killed == "") memory[++remembered] = sprintf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |", program, store, mib(field("peak_anonymous_bytes")),
        mib(field("peak_group_bytes")), mib(field("zram_bytes")), field("far_faults_fetched"), field("far_fault_p50"), field("far_fault_p99"), field("far_stored"))
}
function cell(key) {
    if (key in differs) return "another result"
    if (key in seconds) return sprintf("%.1f s (%.2f)", median(seconds[key]), median(ratios[key]))
    return (key in wrong) ? "failed" : ""
}
END {
    printf "| program | needs MiB | local MiB |"; for (c = 1; c <= width; c++) printf " %s |", columns[c]
    printf "\n|---|---|---|"; for (c = 1; c <= width; c++) printf "---|"; print ""
    for (p = 1; p <= count; p++) {
        printf "| %s | %s | %s |", order[p], mib(peak[order[p]]), mib(local_of[order[p]])
        for (c = 1; c <= width; c++) printf " %s |", cell(order[p] SUBSEP columns[c] SUBSEP "")
        print ""
    }
    if (dead) {
        line = "| a donor killed half way |"
        for (d = 1; d <= dead; d++) { split(deaths[d], part, SUBSEP); line = line " " part[1] ", " part[2] " |" }
        head(line)
        for (p = 1; p <= count; p++) {
            line = ""; any = 0
            for (d = 1; d <= dead; d++) { text = cell(order[p] SUBSEP deaths[d]); any = any || text != ""; line = line " " text " |" }
            if (any) print "| " order[p] " |" line
        }
    }
    if (touches) {
        head("| faults | random read p50 µs | p99 µs | scan read MB/s | scan write MB/s |")
        for (s = 1; s <= touches; s++) {
            store = touched[s]
            printf "| %s | %.2f | %.2f | %.0f | %.0f |\n", store, median(p50[store]), median(p99[store]), median(reads[store]), median(writes[store])
        }
    }
    if (asked) {
        head("| program | store | load s | gets s | get p50 µs | get p99 µs | fork s | save s |")
        for (a = 1; a <= asked; a++) print asks[a]
    }
    head("| program | store | peak MiB | with files | zram MiB | fetched | fault p50 µs | fault p99 µs | stored |")
    for (m = 1; m <= remembered; m++) print memory[m]
    if (troubles) { print "\nWhat failed:\n"; for (t = 1; t <= troubles; t++) print "* " problems[t] }
}' "$@"
