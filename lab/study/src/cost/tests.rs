//! Table 6 follows from Table 4, and from it the costs that the paper does not print.

use super::{Cost, CostProfile, Equation};
use crate::counts::Counts;
use crate::published::{Paper, PrintedRates, printed_rates, table};

/// Microseconds to pin and to unpin a page in the interrupt handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct KernelCosts {
    pin_us: u64,
    unpin_us: u64,
}

/// A cell of Table 6: computed from Table 4's printed rates, and as printed. Tenths of a microsecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Table6Cell {
    entries: &'static str,
    application: &'static str,
    /// Whether it is the interrupt design's; otherwise UTLB's.
    interrupt: bool,
    computed_tenths_us: u64,
    printed_tenths_us: u64,
}

/// Counts with the rates that the paper prints, per 100 lookups.
fn counts(rates: PrintedRates, interrupt: bool) -> Counts {
    let blank = Counts { lookups: 100, ..Counts::default() };
    if interrupt {
        Counts {
            nic_misses: rates.intr_nic_misses,
            interrupts: rates.intr_nic_misses,
            pins: rates.intr_nic_misses,
            unpins: rates.intr_unpins,
            ..blank
        }
    } else {
        Counts {
            check_misses: rates.check_misses,
            nic_misses: rates.utlb_nic_misses,
            unpins: rates.utlb_unpins,
            ..blank
        }
    }
}

/// All twelve cells of Table 6 under a profile. Empty if the profile lacks the costs of interrupts.
fn table_6_from_table_4(profile: &CostProfile) -> Vec<Table6Cell> {
    let Some(printed) = table(Paper::Utlb, "Table 6") else { return Vec::new() };
    let cell = |entries: &'static str, application: &'static str, interrupt: bool| {
        let equation = if interrupt { Equation::Interrupt } else { Equation::Utlb { prefetch: 1, prepin: 1 } };
        let rates = printed_rates("Table 4", entries, application)?;
        let design = if interrupt { "Intr" } else { "UTLB" };
        let value = printed.cell(&[entries], &format!("{application} {design}"))?.value()?;
        Some(Table6Cell {
            entries,
            application,
            interrupt,
            computed_tenths_us: equation.cost(profile, &counts(rates, interrupt))?.low.tenths_us(),
            printed_tenths_us: (value * 10.0).round() as u64,
        })
    };
    let mut cells = Vec::new();
    for entries in ["1K", "4K", "16K"] {
        for application in ["Barnes", "FFT"] {
            cells.extend(cell(entries, application, false));
            cells.extend(cell(entries, application, true));
        }
    }
    cells
}

/// Every pair of whole microseconds up to `most_us` with which the interrupt equation gives all six cells of Table 6 from
/// Table 4's printed rates. The paper prints neither cost. There is one such pair: 17 to pin, 15 to unpin, each 10 less
/// than the user-level call, which is what the paper charges for the interrupt.
fn kernel_costs(most_us: u64) -> Vec<KernelCosts> {
    let pairs = (0..=most_us).flat_map(|pin_us| (0..=most_us).map(move |unpin_us| KernelCosts { pin_us, unpin_us }));
    let mut profile = CostProfile::papers();
    pairs
        .filter(|pair| {
            profile.kernel_pin_ps = Some(pair.pin_us * 1_000_000);
            profile.kernel_unpin_ps = Some(pair.unpin_us * 1_000_000);
            let cells = table_6_from_table_4(&profile);
            let mut interrupt = cells.iter().filter(|cell| cell.interrupt);
            interrupt.all(|cell| cell.computed_tenths_us == cell.printed_tenths_us)
        })
        .collect()
}

#[test]
fn table_4s_rates_give_all_twelve_cells_of_table_6() {
    let cells = table_6_from_table_4(&CostProfile::papers());
    assert_eq!(cells.len(), 12);
    for cell in cells {
        assert_eq!(cell.computed_tenths_us, cell.printed_tenths_us, "{cell:?}");
    }
}

#[test]
fn the_kernel_pins_in_17_and_unpins_in_15_microseconds_and_no_other_pair_fits() {
    assert_eq!(kernel_costs(40), [KernelCosts { pin_us: 17, unpin_us: 15 }]);
}

#[test]
fn the_user_level_costs_do_not_fit_the_interrupt_cells() {
    let profile =
        CostProfile { kernel_pin_ps: Some(27_000_000), kernel_unpin_ps: Some(25_000_000), ..CostProfile::papers() };
    let cells = table_6_from_table_4(&profile);
    let wrong = cells.iter().filter(|cell| cell.computed_tenths_us != cell.printed_tenths_us).count();
    assert_eq!(wrong, 6);
}

#[test]
fn a_half_rounds_up() {
    let cost = |total_ps, lookups| Cost { total_ps, lookups }.tenths_us();
    assert_eq!(cost(8_950_000, 1), 90);
    assert_eq!(cost(8_949_999, 1), 89);
    assert_eq!(cost(21_650_000 * 7, 7), 217);
    assert_eq!(cost(0, 0), 0);
}

#[test]
fn without_interrupt_cost_there_is_no_cost_of_an_interrupt_design() {
    let profile = CostProfile { interrupt_ps: None, ..CostProfile::papers() };
    let counts = Counts { lookups: 1, ..Counts::default() };
    assert_eq!(Equation::Interrupt.cost(&profile, &counts), None);
    let utlb = Equation::Utlb { prefetch: 1, prepin: 1 };
    assert_eq!(utlb.cost(&profile, &counts).unwrap().low.tenths_us(), 13);
}

#[test]
fn pre_pinning_charges_calls_not_pages() {
    let counts = Counts { lookups: 100, check_misses: 3, pins: 48, ..Counts::default() };
    let cost = Equation::Utlb { prefetch: 1, prepin: 16 }.cost(&CostProfile::papers(), &counts).unwrap();
    // 0.5 + 0.8 + 3 × 70 ÷ 100
    assert_eq!((cost.low.us(), cost.is_exact()), (3.4, true));
}

#[test]
fn a_miss_of_dynamic_handles_costs_from_what_the_paper_calls_least_to_what_it_calls_most() {
    let counts = Counts { lookups: 10, nic_misses: 1, interrupts: 2, buffer_misses: 1, pins: 64, ..Counts::default() };
    let cost = Equation::DynamicHandle.cost(&CostProfile::papers(), &counts).unwrap();
    // 0.8 + 2 × 5 ÷ 10, and 0.8 + 2 × (50 + 500 + 56.4) ÷ 10: the pins are in the processing.
    assert!((cost.low.us() - 1.8).abs() < 1e-9, "{cost:?}");
    assert!((cost.high.us() - (0.8 + 0.2 * 606.4)).abs() < 0.01, "{cost:?}");
    let interrupts = Equation::Interrupt.cost(&CostProfile::papers(), &counts);
    assert!(interrupts.unwrap().low.us() > cost.low.us());
}
