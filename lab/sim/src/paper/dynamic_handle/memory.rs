//! NIC memory (§II, §V.A, §V.C, Table I): what the figures that the paper prints say of one another, and what the design takes. Nothing of
//! that is predicted.

use mapwire_translation::{CacheError, DynamicHandle, TranslationDesign};

use super::misses::BEST;
use crate::paper::numbers::whole;
use crate::paper::{Cell, Role, Table};

/// Bytes of a translation in the paper (§IV.B); the firmware's take 8.
const ENTRY_BYTES: u64 = 4;
const PAGE: u64 = 4096;

/// Thousandths of a KB.
const fn kilobytes(bytes: u64) -> i64 {
    (1000 * bytes / 1024) as i64
}

/// Memory that a structure of this name takes in the design.
fn structure(design: &DynamicHandle, name: &str) -> u64 {
    let mut all = design.nic_memory();
    all.find(|row| row.0 == name).map_or(0, |row| row.1 as u64)
}

/// Figure 3 and what the text says around it.
pub(super) fn table() -> Result<Table, CacheError> {
    let keys = ["what", "by"];
    let caption = "memory of the NIC (Figure 3 and the text around it) and what follows from it";
    let mut table = Table::new("Figure 3", caption, "KB", &keys, &["memory"]);
    let design = DynamicHandle::new(BEST.config())?;
    let cache = structure(&design, "VMH cache");
    let entries = BEST.entries as u64;
    // The firmware's tags, with the paper's translations.
    let tags = cache - entries * size_of::<u64>() as u64;
    let best = BEST.name();
    let mut row = |what: &str, by: &str, bytes: u64, published: Option<i64>| {
        let cell = match published {
            Some(theirs) => Cell::beside(kilobytes(bytes), whole(theirs), Role::Input),
            None => Cell::new(kilobytes(bytes)),
        };
        table.row(&[what, by], vec![cell]);
    };
    let mut printed = |what: &str, kilo: i64| row(what, "§V.A", (kilo as u64) << 10, Some(kilo));
    printed("lookup structures, tables on the NIC", 520);
    printed("lookup structures, dynamic handles", 130);
    printed("all, tables on the NIC", 800);
    row("all, dynamic handles", "all else stays as it is", (800 - 520 + 130) << 10, Some(400));
    row(&format!("VMH cache {best}"), "the paper's entries, our tags", entries * ENTRY_BYTES + tags, Some(75));
    row(&format!("VMH cache {best}"), "the firmware's", cache, None);
    row("buffers that a VMH table of 256 KB reaches", "entries of 4 bytes", (256 << 10) / ENTRY_BYTES * PAGE, None);
    row("VMH table of 64 GB of buffers", "entries of 4 bytes", (64 << 30) / PAGE * ENTRY_BYTES, Some(64 << 10));
    row("CBH cache", "the firmware's, of 1,024 buffers", structure(&design, "CBH cache"), None);
    row("PCH cache", "the firmware's, of 64 processes", structure(&design, "PCH cache"), None);
    row("CBH and PCH of the paper", "130 KB without the VMH cache's 75", (130 - 75) << 10, None);
    table.note("These are sums of the paper's own figures, but for what is the firmware's. §V.C says of the full VMH table only that it has more than 256 KB.");
    table.note("The firmware's translations take 8 bytes, the paper's 4: its cache of that shape is that much larger.");
    table.note("§II says 64 MB for the VMH table of 64 GB, which entries of 4 bytes give. §V.A says 32 MB for the same: the paper contradicts itself there.");
    table.note("§V.A says that 520 KB become 130 KB, and 800 KB 400 KB: the rest of the NIC's memory must have become smaller, too, by 10 KB.");
    Ok(table)
}

/// What the figures say of savings and prices.
pub(super) fn ratios() -> Table {
    let caption = "savings and prices that the text states, calculated from the figures that it prints";
    let mut table = Table::new("Savings", caption, "%", &["what"], &["percent"]);
    let mut row = |what: &str, milli: i64, theirs: i64| {
        let cell = Cell::beside(milli, whole(theirs), Role::Input);
        table.row(&[what], vec![cell]);
    };
    let share = |part: i64, of: i64| 100_000 * part / of;
    row("lookup structures saved (§V.A)", share(520 - 130, 520), 75);
    row("all memory saved (§V.A)", share(800 - 400, 800), 50);
    row("2 MB more cost (Table I)", share(1295 - 995, 995), 30);
    row("6 MB more cost (Table I)", share(1595 - 995, 995), 60);
    table.note(
        "The abstract says that more than 80 % of the lookup structures are saved, §V.A and the conclusion say 75 %.",
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_cache_takes_the_papers_75_kb_with_its_entries_and_twice_as_much_with_ours() {
        let table = table().unwrap();
        let value = |by: &str| {
            let name = format!("VMH cache {}", BEST.name());
            table.cell(&[&name, by], "memory").unwrap().milli.unwrap()
        };
        assert_eq!(value("the paper's entries, our tags"), 68_000);
        assert_eq!(value("the firmware's"), 132_000);
    }
}
