//! UTLB (ASPLOS 1998): Tables 1 to 8, and what its text says of Figures 7 and 8.

use super::{Cell, Claim, Paper, PublishedFigure, PublishedTable, Statement, table};

/// The seven applications, in the order of Table 4.
pub const APPLICATIONS: [&str; 7] = ["Barnes", "FFT", "LU", "Radix", "Raytrace", "Volrend", "Water"];

/// The cache sizes of Tables 4, 5 and 8, in entries.
pub const CACHE_SIZES: [(&str, usize); 5] = [("1K", 1024), ("2K", 2048), ("4K", 4096), ("8K", 8192), ("16K", 16384)];

const NUMBERS: [&str; 6] = ["1", "2", "4", "8", "16", "32"];

const TABLE_1: &str = "
    check, min | 0.2 | 0.2 | 0.2 | 0.2 | 0.2 | 0.2
    check, max | 0.4 | 0.6 | 0.6 | 0.6 | 0.6 | 0.7
    pin | 27 | 30 | 36 | 47 | 70 | 115
    unpin | 25 | 30 | 36 | 50 | 80 | 139
";

const TABLE_2: &str = "
    DMA cost | 1.5 | 1.6 | 1.6 | 1.9 | 2.1 | 2.5
    total miss cost | 1.8 | 1.9 | 1.9 | 2.3 | 2.8 | 3.2
";

const TABLE_3: &str = "
    FFT | 4M elements | 10,803 | 43,132
    LU | 4K x 4K matrix | 12,507 | 25,198
    Barnes | 32K particles | 2,235 | 35,904
    Radix | 4M keys | 6,393 | 11,775
    Raytrace | 256 x 256 car | 6,319 | 14,594
    Volrend | 256^3 CST head | 2,371 | 9,438
    Water-spatial | 15,625 molecules | 1,890 | 8,488
";

const TABLE_4: &str = "
    1K | check misses | 0.04 | - | 0.25 | - | 0.49 | - | 0.54 | - | 0.43 | - | 0.25 | - | 0.10 | -
    1K | NI misses | 0.10 | 0.10 | 0.50 | 0.50 | 0.50 | 0.50 | 0.62 | 0.62 | 0.48 | 0.48 | 0.31 | 0.31 | 0.35 | 0.35
    1K | unpins | 0.00 | 0.09 | 0.00 | 0.49 | 0.00 | 0.46 | 0.00 | 0.54 | 0.00 | 0.41 | 0.00 | 0.22 | 0.00 | 0.31
    2K | check misses | 0.04 | - | 0.25 | - | 0.49 | - | 0.54 | - | 0.43 | - | 0.25 | - | 0.10 | -
    2K | NI misses | 0.07 | 0.07 | 0.50 | 0.50 | 0.49 | 0.49 | 0.60 | 0.60 | 0.46 | 0.46 | 0.29 | 0.29 | 0.27 | 0.27
    2K | unpins | 0.00 | 0.04 | 0.00 | 0.48 | 0.00 | 0.43 | 0.00 | 0.44 | 0.00 | 0.33 | 0.00 | 0.13 | 0.00 | 0.21
    4K | check misses | 0.04 | - | 0.25 | - | 0.49 | - | 0.54 | - | 0.43 | - | 0.25 | - | 0.10 | -
    4K | NI misses | 0.05 | 0.05 | 0.49 | 0.49 | 0.49 | 0.49 | 0.57 | 0.57 | 0.45 | 0.45 | 0.27 | 0.27 | 0.12 | 0.12
    4K | unpins | 0.00 | 0.02 | 0.00 | 0.46 | 0.00 | 0.37 | 0.00 | 0.30 | 0.00 | 0.24 | 0.00 | 0.07 | 0.00 | 0.03
    8K | check misses | 0.04 | - | 0.25 | - | 0.49 | - | 0.54 | - | 0.43 | - | 0.25 | - | 0.10 | -
    8K | NI misses | 0.04 | 0.04 | 0.46 | 0.46 | 0.49 | 0.49 | 0.55 | 0.55 | 0.44 | 0.44 | 0.25 | 0.25 | 0.11 | 0.11
    8K | unpins | 0.00 | 0.01 | 0.00 | 0.40 | 0.00 | 0.33 | 0.00 | 0.16 | 0.00 | 0.14 | 0.00 | 0.03 | 0.00 | 0.02
    16K | check misses | 0.04 | - | 0.25 | - | 0.49 | - | 0.54 | - | 0.43 | - | 0.25 | - | 0.10 | -
    16K | NI misses | 0.04 | 0.04 | 0.38 | 0.38 | 0.49 | 0.49 | 0.54 | 0.54 | 0.43 | 0.43 | 0.25 | 0.25 | 0.10 | 0.10
    16K | unpins | 0.00 | 0.00 | 0.00 | 0.25 | 0.00 | 0.17 | 0.00 | 0.09 | 0.00 | 0.07 | 0.00 | 0.01 | 0.00 | 0.00
";

const TABLE_5: &str = "
    1K | check misses | 0.04 | - | 0.49 | - | 0.49 | - | 0.55 | - | 0.43 | - | 0.25 | - | 0.10 | -
    1K | NI misses | 0.10 | 0.10 | 0.50 | 0.50 | 0.50 | 0.50 | 0.62 | 0.62 | 0.48 | 0.48 | 0.31 | 0.31 | 0.35 | 0.35
    1K | unpins | 0.00 | 0.09 | 0.40 | 0.49 | 0.33 | 0.46 | 0.21 | 0.54 | 0.13 | 0.41 | 0.00 | 0.22 | 0.00 | 0.31
    2K | check misses | 0.04 | - | 0.49 | - | 0.49 | - | 0.55 | - | 0.43 | - | 0.25 | - | 0.10 | -
    2K | NI misses | 0.07 | 0.07 | 0.50 | 0.50 | 0.49 | 0.49 | 0.60 | 0.60 | 0.46 | 0.46 | 0.29 | 0.29 | 0.27 | 0.27
    2K | unpins | 0.00 | 0.04 | 0.40 | 0.48 | 0.33 | 0.43 | 0.21 | 0.44 | 0.13 | 0.35 | 0.00 | 0.13 | 0.00 | 0.21
    4K | check misses | 0.04 | - | 0.49 | - | 0.49 | - | 0.55 | - | 0.43 | - | 0.25 | - | 0.10 | -
    4K | NI misses | 0.05 | 0.05 | 0.50 | 0.49 | 0.49 | 0.49 | 0.58 | 0.57 | 0.45 | 0.45 | 0.27 | 0.27 | 0.12 | 0.12
    4K | unpins | 0.00 | 0.02 | 0.40 | 0.46 | 0.33 | 0.37 | 0.21 | 0.31 | 0.13 | 0.28 | 0.00 | 0.07 | 0.00 | 0.03
    8K | check misses | 0.04 | - | 0.49 | - | 0.49 | - | 0.55 | - | 0.43 | - | 0.25 | - | 0.10 | -
    8K | NI misses | 0.04 | 0.04 | 0.50 | 0.48 | 0.49 | 0.49 | 0.56 | 0.56 | 0.44 | 0.44 | 0.25 | 0.25 | 0.11 | 0.11
    8K | unpins | 0.00 | 0.01 | 0.40 | 0.42 | 0.33 | 0.34 | 0.21 | 0.23 | 0.13 | 0.21 | 0.00 | 0.03 | 0.00 | 0.02
    16K | check misses | 0.04 | - | 0.49 | - | 0.49 | - | 0.55 | - | 0.43 | - | 0.25 | - | 0.10 | -
    16K | NI misses | 0.04 | 0.04 | 0.49 | 0.47 | 0.49 | 0.49 | 0.55 | 0.55 | 0.44 | 0.44 | 0.25 | 0.25 | 0.10 | 0.10
    16K | unpins | 0.00 | 0.00 | 0.40 | 0.39 | 0.33 | 0.33 | 0.21 | 0.21 | 0.13 | 0.17 | 0.00 | 0.01 | 0.00 | 0.00
";

const TABLE_8: &str = "
    1K | direct | (0.10) | (0.31) | (0.35) | (0.48) | (0.50) | (0.50) | (0.62)
    1K | 2-way | (0.12) | (0.30) | (0.32) | (0.48) | (0.49) | (0.50) | (0.63)
    1K | 4-way | (0.13) | (0.30) | (0.30) | (0.49) | (0.50) | (0.51) | (0.63)
    1K | direct-nohash | (0.36) | (0.50) | (0.51) | (0.57) | (0.60) | (0.78) | (0.90)
    2K | direct | (0.07) | (0.27) | (0.29) | (0.46) | (0.49) | (0.50) | (0.60)
    2K | 2-way | (0.06) | (0.26) | (0.27) | (0.46) | (0.48) | (0.50) | (0.60)
    2K | 4-way | (0.07) | (0.22) | (0.26) | (0.47) | (0.48) | (0.50) | (0.60)
    2K | direct-nohash | (0.35) | (0.42) | (0.48) | (0.57) | (0.60) | (0.74) | (0.90)
    4K | direct | (0.05) | (0.12) | (0.27) | (0.45) | (0.49) | (0.49) | (0.57)
    4K | 2-way | (0.05) | (0.11) | (0.25) | (0.45) | (0.47) | (0.49) | (0.57)
    4K | 4-way | (0.04) | (0.10) | (0.25) | (0.44) | (0.46) | (0.49) | (0.57)
    4K | direct-nohash | (0.27) | (0.35) | (0.47) | (0.56) | (0.60) | (0.71) | (0.90)
    8K | direct | (0.04) | (0.11) | (0.25) | (0.44) | (0.46) | (0.49) | (0.55)
    8K | 2-way | (0.04) | (0.10) | (0.25) | (0.44) | (0.44) | (0.49) | (0.55)
    8K | 4-way | (0.04) | (0.10) | (0.25) | (0.41) | (0.43) | (0.49) | (0.55)
    8K | direct-nohash | (0.27) | (0.35) | (0.46) | (0.56) | (0.57) | (0.71) | (0.90)
    16K | direct | (0.04) | (0.10) | (0.25) | (0.38) | (0.43) | (0.49) | (0.54)
    16K | 2-way | (0.04) | (0.10) | (0.25) | (0.37) | (0.43) | (0.49) | (0.54)
    16K | 4-way | (0.04) | (0.10) | (0.25) | (0.34) | (0.43) | (0.49) | (0.54)
    16K | direct-nohash | (0.27) | (0.35) | (0.46) | (0.50) | (0.55) | (0.71) | (0.90)
";

const TABLE_6: &str = "
    1K | 2.6 | 4.9 | 9.0 | 21.7
    4K | 2.5 | 2.5 | 8.9 | 20.9
    16K | 2.5 | 1.9 | 8.7 | 14.8
";

const TABLE_7: &str = "
    pin | 1 | 1.0 | 13.0 | 10.5 | 2.5 | 6.1 | 12.0
    pin | 16 | 0.8 | 7.3 | 5.0 | 1.5 | 15.8 | 2.3
    unpin | 1 | 0.1 | 0.1 | 0.8 | 0.1 | 0.1 | 0.1
    unpin | 16 | 0.1 | 10.8 | 3.5 | 0.1 | 93.0 | 0.1
";

const BREAKDOWN_REMARKS: &[&str] = &[
    "A dash: the interrupt design has no check at user level.",
    "NI misses include the compulsory ones, although §6.2 calls them \"caused by capacity or conflict\".",
];

fn new(name: &'static str, caption: &'static str, unit: &'static str) -> PublishedTable {
    PublishedTable { paper: Paper::Utlb, name, caption, unit, ..PublishedTable::default() }
}

/// Each application twice.
const PAIRS: &str = "Barnes UTLB, Barnes Intr, FFT UTLB, FFT Intr, LU UTLB, LU Intr, Radix UTLB, Radix Intr, Raytrace UTLB, \
                     Raytrace Intr, Volrend UTLB, Volrend Intr, Water UTLB, Water Intr";

pub(super) fn tables() -> Vec<PublishedTable> {
    let breakdown = |name, caption, text| {
        PublishedTable {
            keys: vec!["cache entries", "characteristic"],
            columns: PAIRS.split(", ").collect(),
            remarks: BREAKDOWN_REMARKS,
            ..new(name, caption, "per lookup")
        }
        .read(text)
    };
    vec![
        PublishedTable {
            keys: vec!["operation"],
            columns: NUMBERS.to_vec(),
            remarks: &["One call on that many pages. Platform: 300 MHz Pentium II, Windows NT 4.0."],
            ..new("Table 1", "UTLB overhead on the host processor, by pages", "us")
        }
        .read(TABLE_1),
        PublishedTable {
            keys: vec!["operation"],
            columns: NUMBERS.to_vec(),
            remarks: &[
                "A hit costs 0.8 us whatever the number. A miss costs this besides.",
                "Elsewhere the text says 0.5 us for the best case (§1, §5); Table 6 was computed with 0.8.",
            ],
            ..new("Table 2", "UTLB overhead on the network interface, by entries fetched", "us")
        }
        .read(TABLE_2),
        PublishedTable {
            keys: vec!["application"],
            columns: vec!["problem size", "footprint (4 KB pages)", "translation lookups"],
            remarks: &[
                "Per node: distinct pages of its five processes, mean over four nodes.",
                "Footprint over lookups is Table 4's check misses for five applications; not for Barnes and Water.",
            ],
            ..new("Table 3", "Problem size, communication footprint, lookups", "pages and lookups")
        }
        .read(TABLE_3),
        breakdown(
            "Table 4",
            "UTLB against interrupts: unlimited host memory, direct-mapped cache with offset, no prefetch",
            TABLE_4,
        ),
        breakdown(
            "Table 5",
            "UTLB against interrupts: 4 MB of host memory a process, direct-mapped cache with offset, no prefetch",
            TABLE_5,
        ),
        PublishedTable {
            keys: vec!["cache entries"],
            columns: vec!["Barnes UTLB", "Barnes Intr", "FFT UTLB", "FFT Intr"],
            remarks: &[
                "The text says that UTLB is faster in both; the table has a tie at Barnes 4K and the reverse at Barnes 16K.",
            ],
            ..new("Table 6", "Cost of a lookup: unlimited host memory, offset, no prefetch", "us")
        }
        .read(TABLE_6),
        PublishedTable {
            keys: vec!["cost", "pages"],
            columns: vec!["Barnes", "Radix", "Raytrace", "Water", "FFT", "LU"],
            remarks: &[
                "16 MB of host memory. Volrend is not in the table.",
                "With 27 us a pin, the row of single pins is 0.90 of what Table 4's check misses give; why is not said.",
                "The text calls FFT the only exception; Radix, too, costs more with 16 pages.",
            ],
            ..new("Table 7", "Amortised pinning and unpinning, one page at a time and 16 at once", "us per lookup")
        }
        .read(TABLE_7),
        PublishedTable {
            keys: vec!["cache entries", "associativity"],
            columns: vec!["Barnes", "FFT", "LU", "Raytrace", "Radix", "Volrend", "Water"],
            remarks: &[
                "The columns cannot be right: each row rises from left to right, and each direct row is Table 4's, sorted. \
                 Read a row as seven values without names.",
            ],
            ..new("Table 8", "NIC misses by size and associativity: unlimited host memory, no prefetch", "per lookup")
        }
        .read(TABLE_8),
    ]
}

/// The figures that the laboratory draws. Neither has a value in the project's copy of the paper.
pub(super) const FIGURES: [PublishedFigure; 2] = [
    PublishedFigure {
        paper: Paper::Utlb,
        name: "Figure 7",
        caption: "NIC misses by cause, 1K to 16K entries: unlimited host memory, direct-mapped, no prefetch",
        prose: &[
            Statement::of(
                "§6.4",
                "\"the number of conflict misses and capacity misses decrease as the cache size increases\".",
            )
            .that(Claim::RestFallsWithSize),
            Statement::of("§6.4", "\"compulsory misses still constitute the majority of translation misses\".")
                .that(Claim::MostAreCompulsory),
        ],
    },
    PublishedFigure {
        paper: Paper::Utlb,
        name: "Figure 8",
        caption: "Prefetch and Radix: (a) miss rate, (b) cost of a lookup; unlimited host memory, direct-mapped",
        prose: &[
            Statement::of(
                "§6.4",
                "miss rate and cost of a lookup decrease \"as prefetching becomes more aggressive\" (Radix).",
            )
            .that(Claim::FallsWithPrefetch),
            Statement::of(
                "Table 4",
                "With one entry a miss, Radix misses 0.62, 0.60, 0.57, 0.55, 0.54 of its lookups with 1K to 16K entries.",
            ),
        ],
    },
];

/// Rates that Table 4 or 5 prints for one application and size, in hundredths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrintedRates {
    pub check_misses: u64,
    pub utlb_nic_misses: u64,
    pub utlb_unpins: u64,
    pub intr_nic_misses: u64,
    pub intr_unpins: u64,
}

/// What Table 4 or 5 (by name) prints for a cache size and an application; `None` if it has no such row or column.
pub fn printed_rates(name: &str, entries: &str, application: &str) -> Option<PrintedRates> {
    let table = table(Paper::Utlb, name)?;
    let hundredths = |characteristic: &str, design: &str| match table
        .cell(&[entries, characteristic], &format!("{application} {design}"))?
    {
        Cell::Printed(text) => text.replace('.', "").parse().ok(),
        _ => None,
    };
    Some(PrintedRates {
        check_misses: hundredths("check misses", "UTLB")?,
        utlb_nic_misses: hundredths("NI misses", "UTLB")?,
        utlb_unpins: hundredths("unpins", "UTLB")?,
        intr_nic_misses: hundredths("NI misses", "Intr")?,
        intr_unpins: hundredths("unpins", "Intr")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_designs_of_table_4_miss_alike_in_the_nic_cache() {
        for (entries, _) in CACHE_SIZES {
            for application in APPLICATIONS {
                let rates = printed_rates("Table 4", entries, application).unwrap();
                assert_eq!(rates.utlb_nic_misses, rates.intr_nic_misses, "{entries} {application}");
                assert_eq!(rates.utlb_unpins, 0);
                assert!(rates.check_misses <= rates.utlb_nic_misses);
            }
        }
    }

    #[test]
    fn each_direct_row_of_table_8_is_table_4s_sorted_so_its_columns_have_no_names() {
        let table_8 = table(Paper::Utlb, "Table 8").unwrap();
        for (entries, _) in CACHE_SIZES {
            let mut of_table_4: Vec<_> = APPLICATIONS
                .iter()
                .map(|application| printed_rates("Table 4", entries, application).unwrap().utlb_nic_misses)
                .collect();
            of_table_4.sort_unstable();
            let row = table_8.rows.iter().find(|row| row.keys == [entries, "direct"]).unwrap();
            let printed: Vec<u64> = row
                .cells
                .iter()
                .map(|cell| match cell {
                    Cell::Unlabelled(text) => text.replace('.', "").parse().unwrap(),
                    other => panic!("{other:?} has a usable label"),
                })
                .collect();
            assert_eq!(printed, of_table_4, "{entries}");
        }
    }

    #[test]
    fn the_pages_that_stay_cached_without_memory_limit_never_exceed_the_cache() {
        // Misses less unpins of the interrupt design are the pages that are cached at the end.
        let table_3 = table(Paper::Utlb, "Table 3").unwrap();
        for (name, entries) in CACHE_SIZES {
            for application in APPLICATIONS {
                let row = if application == "Water" { "Water-spatial" } else { application };
                let lookups = table_3.cell(&[row], "translation lookups").unwrap().value().unwrap();
                let rates = printed_rates("Table 4", name, application).unwrap();
                let left = (rates.intr_nic_misses - rates.intr_unpins) as f64 / 100.0 * lookups;
                assert!(left <= entries as f64 + 0.01 * lookups, "{name} {application}: {left}");
            }
        }
    }
}
