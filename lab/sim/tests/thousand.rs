//! A cluster of 1,000 nodes fits into the memory of an ordinary computer. The one test of its program: it measures the memory of its process.

use mapwire_sim::{Scenario, Wanted, Workload, parse_rules};

/// What the process may take at most.
#[cfg(target_os = "linux")]
const MOST_BYTES: u64 = 1 << 30;

#[test]
fn a_busy_cluster_of_1000_nodes_takes_less_than_a_gibibyte() {
    let wanted =
        Wanted { nodes: Some(1_000), rules: parse_rules("all").unwrap(), calls: Some(200_000), ..Wanted::default() };
    let scenario = Scenario::draw(1, &wanted).unwrap();
    let outcome = scenario.run().unwrap();
    assert!(outcome.violation.is_none(), "{:?}", outcome.violation);
    assert!(outcome.packets > 50_000, "{} packets", outcome.packets);
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|text| text.trim().strip_suffix(" kB"));
        let bytes = 1024 * peak.unwrap().trim().parse::<u64>().unwrap();
        assert!(bytes < MOST_BYTES, "{bytes} bytes");
    }
}
