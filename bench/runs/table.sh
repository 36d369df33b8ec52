#!/usr/bin/env bash
# A Markdown table of rows that `mapwire bench --json` printed: median value and ratio of all files, apart for each placement, with the
# range of the ratio in brackets.
#
#   bench/runs/table.sh FILE...
exec awk '
function median(list,    n, i, j, swap, values) {
    n = split(list, values, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && values[j - 1] + 0 > values[j] + 0; j--) { swap = values[j]; values[j] = values[j - 1]; values[j - 1] = swap }
    low = values[1]; high = values[n]
    return n % 2 ? values[(n + 1) / 2] : (values[n / 2] + values[n / 2 + 1]) / 2
}
function short(number) { return number + 0 >= 100 ? sprintf("%.0f", number) : sprintf("%.3g", number) }
function cell(key,    value, ratio) {
    if (!(key in ratios)) return " "
    value = short(median(values_of[key])); ratio = sprintf("%.2f", median(ratios[key]))
    return value " " unit[key] ", " ratio (low == high ? "" : sprintf(" (%.2f–%.2f)", low, high))
}
# Splits a row into its fields, in order; what names the case is what is not a figure.
{
    line = $0; gsub(/^{|}$/, "", line); what = ""; delete row
    while (match(line, /^"[^"]*":("[^"]*"|[^,]*),?/)) {
        pair = substr(line, 1, RLENGTH); line = substr(line, RLENGTH + 1); sub(/,$/, "", pair)
        at = index(pair, "\":"); name = substr(pair, 2, at - 2); text = substr(pair, at + 2); gsub(/"/, "", text)
        row[name] = text
        if (name !~ /^(bench|placement|flag_ns|value|unit|baseline|baseline_value|ratio|min|max|runs|dropped|transport)$/)
            what = what (what == "" ? "" : ", ") name " " text
    }
    case_of = "`" row["bench"] "` | " what " | " row["baseline"]
    if (!(case_of in seen)) { seen[case_of] = 1; order[++count] = case_of }
    key = case_of SUBSEP row["placement"]
    values_of[key] = values_of[key] " " row["value"]; ratios[key] = ratios[key] " " row["ratio"]; unit[key] = row["unit"]
    if (!(row["placement"] in placements)) { placements[row["placement"]] = 1; columns[++width] = row["placement"] }
}
END {
    printf "| bench | case | beside |"; for (c = 1; c <= width; c++) printf " %s |", columns[c]
    printf "\n|---|---|---|"; for (c = 1; c <= width; c++) printf "---|"; print ""
    for (i = 1; i <= count; i++) {
        printf "| %s |", order[i]; for (c = 1; c <= width; c++) printf " %s |", cell(order[i] SUBSEP columns[c]); print ""
    }
}' "$@"
