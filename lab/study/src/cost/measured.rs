//! A profile of this machine, from what `mapwire bench --json` printed.

use serde_json::Value;

use super::{Between, CostProfile, HandleMissCost, PerCount};

/// Rows that give no profile.
#[derive(Debug, thiserror::Error)]
pub enum MeasuredError {
    /// A line that is not one of the bench's.
    #[error("line {line} is not a row of `mapwire bench --json`: {cause}")]
    NotARow {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
    /// A row has no figure, or one that is no cost.
    #[error("line {line}: `{field}` is missing or makes no sense in a row of `mapwire bench {bench} --json`")]
    Field {
        /// Its number, from 1.
        line: usize,
        /// The bench that the row names.
        bench: String,
        /// The field.
        field: &'static str,
    },
    /// What the equations need and no row gives.
    #[error("no row tells {what}; add the output of `mapwire bench {bench} --json`")]
    Missing {
        /// The cost.
        what: &'static str,
        /// Which bench gives it.
        bench: &'static str,
    },
}

/// What the rows said so far.
#[derive(Default)]
struct Found {
    user_check: Option<u64>,
    nic_hit: Option<u64>,
    nic_miss: Option<u64>,
    interrupt: Option<u64>,
    pins: Vec<(String, u64, u64)>,
    unpins: Vec<(String, u64)>,
}

/// Reads the rows of `mapwire bench lookup --json` and `mapwire bench pin --json`, one JSON object a line; rows of
/// `notify-latency` with `wait` = `event` give the cost of an interrupt, without which the interrupt designs have no cost.
/// Rows of other benches are passed over.
///
/// io_uring's rows count, where there are any, otherwise mlock's. The host of an interrupt design pins by the same
/// calls, so they cost the same there. A miss of dynamic handles costs an interrupt and its pins; the packet that is sent again is
/// not in it. A NIC miss costs what the row of misses has over the row of hits.
///
/// # Errors
/// Lines that are no such rows, and costs that no row tells.
pub fn from_bench_rows(text: &str, name: &str) -> Result<CostProfile, MeasuredError> {
    let mut found = Found::default();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row = serde_json::from_str(line).map_err(|cause| MeasuredError::NotARow { line: at + 1, cause })?;
        found.take(&row).map_err(|field| MeasuredError::Field {
            line: at + 1,
            bench: text_of(&row, "bench").unwrap_or("?").to_owned(),
            field,
        })?;
    }
    found.profile(name)
}

fn text_of<'a>(row: &'a Value, field: &str) -> Option<&'a str> {
    row.get(field)?.as_str()
}

impl Found {
    /// Takes what a row says. The error is the field that is missing.
    fn take(&mut self, row: &Value) -> Result<(), &'static str> {
        let bench = text_of(row, "bench").ok_or("bench")?;
        if !["lookup", "pin", "notify-latency"].contains(&bench) {
            return Ok(());
        }
        let unit_ps = match text_of(row, "unit") {
            Some("ns") => 1e3,
            Some("us") => 1e6,
            _ => return Err("unit"),
        };
        let value = row.get("value").and_then(Value::as_f64).filter(|value| *value >= 0.0 && *value < 1e12);
        let ps = (value.ok_or("value")? * unit_ps).round() as u64;
        if bench == "notify-latency" {
            if text_of(row, "wait") == Some("event") {
                self.interrupt = Some(self.interrupt.map_or(ps, |least| least.min(ps)));
            }
            return Ok(());
        }
        let pages = row.get("pages").and_then(Value::as_u64).ok_or("pages")?;
        match (bench, text_of(row, "case").ok_or("case")?) {
            ("lookup", "user-level check") if pages == 1 => self.user_check = Some(ps),
            ("lookup", "NIC cache hit") => self.nic_hit = Some(ps),
            ("lookup", "NIC cache miss") => self.nic_miss = Some(ps),
            ("pin", "pin") => self.pins.push((text_of(row, "pinner").ok_or("pinner")?.to_owned(), pages, ps)),
            ("pin", "unpin") if pages == 1 => {
                self.unpins.push((text_of(row, "pinner").ok_or("pinner")?.to_owned(), ps));
            }
            _ => {}
        }
        Ok(())
    }

    fn profile(self, name: &str) -> Result<CostProfile, MeasuredError> {
        let missing = |what, bench| MeasuredError::Missing { what, bench };
        let pinner = match self.pins.iter().any(|pin| pin.0 == "io_uring") {
            true => "io_uring",
            false => "mlock",
        };
        let pins = self.pins.iter().filter(|pin| pin.0 == pinner).map(|pin| (pin.1, pin.2)).collect();
        let user_pin_ps = PerCount::new(pins).ok_or(missing("what pinning costs", "pin"))?;
        let unpin = self.unpins.iter().find(|unpin| unpin.0 == pinner).map(|unpin| unpin.1);
        let user_unpin_ps = unpin.ok_or(missing("what unpinning a page costs", "pin"))?;
        let nic_check_ps = self.nic_hit.ok_or(missing("what a hit in the NIC's cache costs", "lookup"))?;
        let whole_miss = self.nic_miss.ok_or(missing("what a miss in the NIC's cache costs", "lookup"))?;
        let nic_miss_ps = PerCount::new(vec![(1, whole_miss.saturating_sub(nic_check_ps))])
            .ok_or(missing("what a miss in the NIC's cache costs", "lookup"))?;
        Ok(CostProfile {
            name: name.to_owned(),
            user_check_ps: self.user_check.ok_or(missing("what a user-level check costs", "lookup"))?,
            kernel_pin_ps: Some(user_pin_ps.of(1)),
            kernel_unpin_ps: Some(user_unpin_ps),
            user_pin_ps,
            user_unpin_ps,
            nic_check_ps,
            nic_miss_ps,
            interrupt_ps: self.interrupt,
            // No bench tells what a packet costs that is sent again.
            handle_miss: self.interrupt.map(|wake_ps| HandleMissCost {
                delay: Between::new(wake_ps, wake_ps),
                processing: Between::new(0, 0),
                resend: Between::new(0, 0),
                pins_apart: true,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"lookup","case":"user-level check","pages":1,"value":4.52775,"unit":"ns"}
{"bench":"lookup","case":"user-level check","pages":2,"value":9.0,"unit":"ns"}
{"bench":"lookup","case":"NIC cache hit","pages":1,"value":3.9625,"unit":"ns"}
{"bench":"lookup","case":"NIC cache miss","pages":1,"value":9.083,"unit":"ns"}
{"bench":"pin","case":"pin","pinner":"mlock","pages":1,"value":2.15345,"unit":"us"}
{"bench":"pin","case":"unpin","pinner":"mlock","pages":1,"value":1.5599,"unit":"us"}
{"bench":"pin","case":"pin","pinner":"io_uring","pages":16,"value":2.0,"unit":"us"}
{"bench":"pin","case":"pin","pinner":"io_uring","pages":1,"value":0.75,"unit":"us"}
{"bench":"pin","case":"unpin","pinner":"io_uring","pages":1,"value":0.5,"unit":"us"}
{"bench":"views","value":1}
{"bench":"notify-latency","wait":"poll","value":0.2,"unit":"us"}
{"bench":"notify-latency","wait":"event","value":7.85,"unit":"us"}
"#;

    #[test]
    fn rows_of_three_benches_make_a_profile() {
        let profile = from_bench_rows(ROWS, "rows.jsonl").unwrap();
        assert_eq!(profile.user_check_ps, 4528);
        assert_eq!((profile.nic_check_ps, profile.nic_miss_ps.of(1)), (3963, 5120));
        assert_eq!((profile.user_pin_ps.of(1), profile.user_pin_ps.of(16)), (750_000, 2_000_000));
        assert_eq!(profile.user_unpin_ps, 500_000);
        assert_eq!(profile.interrupt_ps, Some(7_850_000));
    }

    #[test]
    fn without_io_uring_the_rows_of_mlock_count_and_without_notifications_interrupts_have_no_cost() {
        let rows: String = ROWS
            .lines()
            .filter(|l| !l.contains("io_uring") && !l.contains("notify"))
            .map(|l| format!("{l}\n"))
            .collect();
        let profile = from_bench_rows(&rows, "rows").unwrap();
        assert_eq!(profile.user_pin_ps.of(1), 2_153_450);
        assert_eq!(profile.interrupt_ps, None);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_its_line() {
        let error = |text: &str| from_bench_rows(text, "rows").unwrap_err().to_string();
        assert!(error("").contains("mapwire bench pin --json"));
        assert!(error("\n{").starts_with("line 2 is not a row"));
        assert!(error(r#"{"bench":"pin","case":"pin","pages":1,"unit":"us","value":-4}"#).contains("line 1: `value`"));
        assert!(error(r#"{"bench":"pin","case":"pin","unit":"us","value":4}"#).contains("`pages`"));
        let no_lookup: String = ROWS.lines().filter(|l| !l.contains("lookup")).map(|l| format!("{l}\n")).collect();
        assert!(error(&no_lookup).contains("mapwire bench lookup --json"));
    }
}
