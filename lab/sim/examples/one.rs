use mapwire_sim::*;
fn main() {
    let seed: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let wanted = scenario::Wanted {
        rules: parse_rules("all").unwrap(),
        ..Default::default()
    };
    let s = Scenario::draw(seed, &wanted).unwrap();
    println!("{s}");
    let shrunk = shrink::shrink(&s, 3000).unwrap().unwrap();
    let f = s.faults();
    for n in &shrunk.faults {
        println!("{:?}", f[*n]);
    }
    for m in &shrunk.history {
        println!("{m:?}");
    }
    println!("{} {:?}", shrunk.at_ns, shrunk.violation);
}
