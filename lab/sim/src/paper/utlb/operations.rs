//! Tables 1 and 2, as the machine gives them.

use mapwire_translation::{DesignConfig, HierarchicalConfig, PAGE_BYTES, PinLimit, PinRules};

use super::constants::machine;
use crate::computers::{Computers, ComputersError, Do, FIRST_ADDRESS, Load, Send, Shape};
use crate::hardware::Cost;
use crate::paper::numbers::{tenths, us, whole};
use crate::paper::vmmc::bench::at;
use crate::paper::{Cell, Role, Table};

use Role::{Input, Predicted};

const PAGE: u64 = PAGE_BYTES as u64;
/// Pages, or entries, of a call.
const COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// What the sender has spent after sends of so many bytes, from one page after the other.
fn load(shape: Shape, sends: u64, bytes: u64) -> Result<Load, ComputersError> {
    let mut computers = Computers::new(machine(), shape)?;
    computers.export(at(1), "target", FIRST_ADDRESS, bytes)?;
    let import = computers.import(at(0), at(1), "target")?;
    let send = move |page| Send { import, offset: 0, address: FIRST_ADDRESS + page * PAGE, bytes };
    computers.start(at(0), (0..sends).rev().flat_map(move |page| [Do::Send(send(page)), Do::Await(0)]));
    computers.run()?;
    Ok(computers.load(at(0).node))
}

fn shape(prefetch: u32) -> Shape {
    let config = HierarchicalConfig::default().with_prefetch(prefetch);
    Shape { design: DesignConfig::Hierarchical(config), ..Shape::default() }
}

pub(super) fn table_1() -> Result<Table, ComputersError> {
    let columns = COUNTS.map(|count| count.to_string());
    let caption = "what the library takes for so many pages";
    let mut table = Table::new("Table 1", caption, "us", &["operation"], &columns);
    let check_ps = machine().of(Cost::HostCheck);
    let pinned = [27, 30, 36, 47, 70, 115];
    let mut pins = Vec::new();
    for (count, theirs) in COUNTS.into_iter().zip(pinned) {
        let took_ps = load(shape(1), 1, count * PAGE)?.checks_ps - check_ps;
        pins.push(Cell::beside(us(took_ps), whole(theirs), Input));
    }
    table.row(&["pin"], pins);
    let pin_ps = machine().of(Cost::HostPin1);
    let limited = Shape { pin_rules: PinRules::default().with_limit(PinLimit::Pages(1)), ..shape(1) };
    let both_ps = load(limited, 2, PAGE / 2)?.checks_ps;
    let unpin = us(both_ps - 2 * (check_ps + pin_ps));
    let mut unpins = vec![Cell::beside(unpin, whole(25), Input)];
    unpins.resize(COUNTS.len(), Cell::NONE);
    table.row(&["unpin"], unpins);
    table.note("The library unpins one page at a time (§6.5). The check takes 0.5 us here, as in §6.2; Table 1 has 0.2 to 0.4 us for a page, and 0.2 to 0.7 us for 32.");
    Ok(table)
}

pub(super) fn table_2() -> Result<Table, ComputersError> {
    let columns = COUNTS.map(|count| count.to_string());
    let caption = "what the NIC takes for a miss that fetches so many entries";
    let mut table = Table::new("Table 2", caption, "us", &["operation"], &columns);
    let profile = machine();
    let transfer = |(count, theirs)| {
        let milli = us(profile.host_dma(4 * count));
        Cell::beside(milli, tenths(theirs), Input)
    };
    let printed = COUNTS.into_iter().zip([1_500, 1_600, 1_600, 1_900, 2_100, 2_500]);
    table.row(&["DMA cost"], printed.map(transfer));
    let hit_ps = profile.of(Cost::NicTranslate);
    let mut misses = Vec::new();
    for (count, theirs) in COUNTS.into_iter().zip([1_800, 1_900, 1_900, 2_300, 2_800, 3_200]) {
        let took_ps = load(shape(count as u32), 1, PAGE / 2)?.lookups_ps - hit_ps;
        let role = match count {
            1 | 32 => Input,
            _ => Predicted,
        };
        misses.push(Cell::beside(us(took_ps), tenths(theirs), role));
    }
    table.row(&["total miss cost"], misses);
    table.note("Of a miss, the DMA and what an entry and 32 entries take besides went in (0.3 and 0.7 us); those between lie on a line. The paper's 16 entries take 0.7 us besides, too, and are 7 % slower than on that line.");
    table.note("A hit takes 0.8 us here, as Table 2 and §6.2 have it. The abstract and §5 say 0.5 us in the best case, with 0.4 us for the check on the host.");
    Ok(table)
}
