use super::bench::*;
use crate::hosts::{Notice, millipage};
#[test]
fn probe() {
    let us = |ps: u64| ps as f64 / 1e6;
    for notice in [Notice::Polling, Notice::Interrupts] {
        let m = millipage(notice);
        eprintln!("{notice:?}");
        for b in [128, 512, 1024, 2048, 4096] {
            eprintln!(
                "read {b}: idle {:.1} busy {:.1}",
                us(read(&m, b, false).unwrap()),
                us(read(&m, b, true).unwrap())
            );
        }
        for b in [128, 4096] {
            for c in [0, 1, 3, 6] {
                eprintln!("write {b} copies {c}: {:.1}", us(write(&m, b, c).unwrap()));
            }
        }
        eprintln!(
            "lock fresh {:.1} had {:.1} two {:.1}",
            us(lock(&m, 8, false).unwrap()),
            us(lock(&m, 8, true).unwrap()),
            us(lock(&m, 2, true).unwrap())
        );
        for n in [1, 2, 4, 8] {
            eprintln!("barrier {n}: {:.1}", us(barrier(&m, n).unwrap()));
        }
    }
}
