//! Dynamic handle lookup: Tables I to III, and what the paper's text and axes say of Figure 5.

use super::{Claim, Paper, PublishedFigure, PublishedTable, Statement};

const TABLE_I: &str = "
    NIC price | 995 | 1,295 | 1,595
";

const TABLE_II: &str = "
    Processors | 2 x Intel Pentium III, 800 MHz
    Cache | 32K (L1), 512K (L2)
    Memory | 512MB SDRAM
    OS | RedHat Linux Kernel 2.2.16-3smp
    PCI buses | 32 bits, 33 MHz, 133MBytes/s
    NIC | Myricom M3M-PCI64B
    NIC CPU | LANai9, 133 MHz
    Network Link | Bi-directional, 160MBytes/s/direction
";

const TABLE_III: &str = "
    Cache Size (C) | 8K, 16K, 32K | entries
    Cache Line (L) | 8, 16, 64, 128 | entries
    Associativity (A) | 2, 4, 8 | lines
";

pub(super) fn tables() -> Vec<PublishedTable> {
    let new = |name, caption, unit, keys, columns: &[&'static str], text| {
        PublishedTable {
            paper: Paper::DynamicHandleLookup,
            name,
            caption,
            unit,
            keys: vec![keys],
            columns: columns.to_vec(),
            ..PublishedTable::default()
        }
        .read(text)
    };
    vec![
        new("Table I", "Memory and price of Myrinet NICs, by MBytes", "USD", "item", &["2", "4", "8"], TABLE_I),
        new("Table II", "The cluster's nodes", "-", "item", &["value"], TABLE_II),
        new("Table III", "Values of the VMH lookup cache's parameters", "-", "parameter", &["values", "of"], TABLE_III),
    ]
}

/// What the text says of Figure 5. The heights of its bars are not legible in the project's copy.
pub(super) const FIGURE_5: PublishedFigure = PublishedFigure {
    paper: Paper::DynamicHandleLookup,
    name: "Figure 5",
    caption: "VMH lookup cache misses of the SPLASH-2 applications, by path and kind",
    prose: &[
        Statement::of("§V.C", "Misses lie between about 0 and 40 % over the configurations.")
            .that(Claim::AtMostPercent(40.0)),
        Statement::of(
            "§V.C",
            "WaterNsquared, WaterSpatial, Ocean, Raytrace and Volrend stay within 0 to 2 % (though WaterSpatial's axis reaches 3); \
             FFT, LUContiguous and Radix are much larger.",
        ),
        Statement::of("§V.C", "Longer lines are very effective prefetching for most applications up to 128 entries.")
            .that(Claim::LongLinesMissLess),
        Statement::of("§V.C", "Ocean's non-cold misses more than double from L16 to L64 to L128 when C < 32K."),
        Statement::of(
            "§V.C",
            "Size matters little with short lines and much with long ones: from 16K to 32K entries the misses of FFT and \
             LUContiguous more than halve at L128.",
        ),
        Statement::of(
            "§V.C",
            "Associativity matters mostly for small caches with short lines; 2 to 4 helps most applications, 4 to 8 seems to help less.",
        ),
        Statement::of("§V.C", "The best compromise is C16.L64.A4."),
    ],
};

/// What the text says of Figure 3 (§V.A). The parts of its bars are not legible in the project's copy.
pub(super) const FIGURE_3: PublishedFigure = PublishedFigure {
    paper: Paper::DynamicHandleLookup,
    name: "Figure 3",
    caption: "NIC memory, with tables on the NIC and with dynamic handle lookup",
    prose: &[Statement::of(
        "§V.A",
        "With 64 GB of communication buffers tables would take about 32 MB of NIC memory for VMH translation alone; dynamic \
             handle lookup would take at most 8 MB in all.",
    )],
};

/// KB of NIC memory by §V.A: what, with tables on the NIC, with dynamic handle lookup.
pub const FIGURE_3_KB: [(&str, f64, f64); 2] = [("lookup structures", 520.0, 130.0), ("all", 800.0, 400.0)];

/// The parts of a bar of Figure 5, as its legend lists them.
pub const FIGURE_5_LEGEND: [&str; 4] = ["Non-cold Recv", "Non-cold Send", "Cold Recv", "Cold Send"];

/// One panel of Figure 5: its application, and the highest label on its axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Panel {
    pub application: &'static str,
    /// The highest label, as printed, in percent: about as high as the highest bar.
    pub top_percent: &'static str,
}

/// The panels of Figure 5 in the paper's order. The labels of their axes are the only numbers that are legible.
pub const FIGURE_5_PANELS: [Panel; 8] = [
    panel("FFT", "40"),
    panel("Radix", "15"),
    panel("WaterNsquared", "1.9"),
    panel("Raytrace", "0.95"),
    panel("LUContiguous", "30"),
    panel("Ocean", "1.9"),
    panel("Volrend", "0.95"),
    panel("WaterSpatial", "3.0"),
];

const fn panel(application: &'static str, top_percent: &'static str) -> Panel {
    Panel { application, top_percent }
}

/// One configuration of the VMH lookup cache, as Figure 5 names it on its axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure5Configuration {
    pub entries: usize,
    pub line_entries: usize,
    pub ways: usize,
}

impl std::fmt::Display for Figure5Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("C{}.L{}.A{}", self.entries / 1024, self.line_entries, self.ways))
    }
}

/// The 36 configurations of Figure 5, left to right.
pub fn figure_5_configurations() -> impl Iterator<Item = Figure5Configuration> {
    [8192, 16384, 32768].into_iter().flat_map(|entries| {
        [8, 16, 64, 128].into_iter().flat_map(move |line_entries| {
            [2, 4, 8].into_iter().map(move |ways| Figure5Configuration { entries, line_entries, ways })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_5_has_36_configurations_from_the_smallest_to_the_largest() {
        let names: Vec<_> = figure_5_configurations().map(|it| it.to_string()).collect();
        assert_eq!(names.len(), 36);
        assert_eq!(names[..4], ["C8.L8.A2", "C8.L8.A4", "C8.L8.A8", "C8.L16.A2"]);
        assert_eq!(names[35], "C32.L128.A8");
    }

    #[test]
    fn the_prices_rise_as_the_text_says() {
        let table = &tables()[0];
        let price = |memory| table.cell(&["NIC price"], memory).unwrap().value().unwrap();
        assert!(price("4") > 1.30 * price("2"));
        assert!(price("8") > 1.60 * price("2"));
    }
}
