//! Who may use whom.

use std::collections::BTreeSet;

use crate::Violation;
use crate::rules::{LAB, NOT_FOR_LAB, ORDER, OUTSIDE, OUTSIDE_PURE, OUTSIDE_PURE_TESTS, PURE, Place};
use crate::workspace::{Crate, Use};

/// Whether a folder lies in one of `parents`, which end with `/`.
#[must_use]
pub fn lies_in(folder: &str, parents: &[&str]) -> bool {
    parents.iter().any(|parent| format!("{folder}/").starts_with(parent))
}

/// Checks every use of one crate by another against the order, and the list of what may be used from outside.
#[must_use]
pub fn check(crates: &[Crate]) -> Vec<Violation> {
    check_against(crates, ORDER)
}

fn check_against(crates: &[Crate], order: &[Place]) -> Vec<Violation> {
    let mut found = Vec::new();
    for user in crates {
        let Some(place) = order.iter().position(|place| place.name == user.name) else {
            found.push(Violation::Unplaced(user.name.clone()));
            continue;
        };
        if order[place].folder != user.folder {
            found.push(Violation::Misplaced {
                name: user.name.clone(),
                folder: user.folder.clone(),
                expected: order[place].folder.to_owned(),
            });
        }
        for used in &user.dependencies {
            let (user, name) = (user.name.clone(), used.package.clone());
            match order.iter().position(|place| place.name == name) {
                Some(at) if at < place => {}
                Some(_) => found.push(Violation::Below { user, used: name }),
                None if used.local => found.push(Violation::Unplaced(name)),
                None => {
                    let pure = lies_in(order[place].folder, PURE);
                    let known = if pure {
                        OUTSIDE_PURE.contains(&name.as_str())
                            || used.usage == Use::Test && OUTSIDE_PURE_TESTS.contains(&name.as_str())
                    } else {
                        OUTSIDE.contains(&name.as_str())
                    };
                    if !known {
                        let kind = if pure { "pure" } else { "other" };
                        found.push(Violation::Unknown { user, used: name, kind });
                    }
                }
            }
        }
    }
    found.extend(check_lab(crates));
    found
}

/// The laboratory reaches the machine neither directly nor through others.
fn check_lab(crates: &[Crate]) -> Vec<Violation> {
    let mut found = Vec::new();
    let of_name = |name: &str| crates.iter().find(|found| found.name == name);
    for user in crates.iter().filter(|user| lies_in(&user.folder, LAB)) {
        for by in &user.dependencies {
            let mut seen = BTreeSet::new();
            let mut next = vec![by.package.as_str()];
            while let Some(name) = next.pop() {
                let Some(reached) = of_name(name).filter(|_| seen.insert(name)) else {
                    continue;
                };
                if lies_in(&reached.folder, NOT_FOR_LAB) {
                    found.push(Violation::LabUsesMachine {
                        user: user.name.clone(),
                        used: reached.name.clone(),
                        by: by.package.clone(),
                    });
                    continue;
                }
                // What a crate's tests use does not come along with it.
                next.extend(
                    reached
                        .dependencies
                        .iter()
                        .filter(|used| used.usage != Use::Test)
                        .map(|used| used.package.as_str()),
                );
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn used(package: &str, usage: Use) -> Dependency {
        Dependency { package: package.to_owned(), usage, local: package.starts_with("mapwire") }
    }

    fn in_folder(name: &str, folder: &str, uses: &[&str]) -> Crate {
        Crate {
            name: name.to_owned(),
            folder: folder.to_owned(),
            dependencies: uses.iter().map(|name| used(name, Use::Normal)).collect(),
        }
    }

    fn named(name: &str, uses: &[&str]) -> Crate {
        let place = ORDER.iter().find(|place| place.name == name).unwrap();
        in_folder(name, place.folder, uses)
    }

    fn texts(crates: &[Crate]) -> Vec<String> {
        check(crates).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn uses_of_what_stands_above_are_allowed() {
        let crates = [
            named("mapwire-wire", &["zerocopy"]),
            named("mapwire-nic", &["mapwire-wire", "mapwire-translation"]),
            named("mapwire-cli", &["mapwire", "mapwire-study", "clap"]),
        ];
        assert_eq!(check(&crates), []);
    }

    #[test]
    fn a_use_of_what_stands_below_is_found_in_tests_and_build_scripts_too() {
        for usage in [Use::Normal, Use::Test, Use::Build] {
            let mut wire = named("mapwire-wire", &[]);
            wire.dependencies.push(used("mapwire-host", usage));
            assert_eq!(
                check(&[wire]),
                [Violation::Below { user: "mapwire-wire".to_owned(), used: "mapwire-host".to_owned() }]
            );
        }
    }

    #[test]
    fn a_crate_that_uses_itself_is_found() {
        assert_eq!(texts(&[named("mapwire-nic", &["mapwire-nic"])]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_place_is_found_as_member_and_as_dependency() {
        let member = in_folder("mapwire-extra", "extra", &[]);
        assert_eq!(check(&[member]), [Violation::Unplaced("mapwire-extra".to_owned())]);
        let user = named("mapwire-cli", &["mapwire-extra"]);
        assert_eq!(check(&[user]), [Violation::Unplaced("mapwire-extra".to_owned())]);
    }

    #[test]
    fn a_crate_in_the_folder_of_another_layer_is_found() {
        let texts = texts(&[in_folder("mapwire-dsm", "machine/dsm", &[])]);
        assert_eq!(texts.len(), 1);
        assert!(texts[0].contains("services/dsm"), "{texts:?}");
    }

    #[test]
    fn pure_crates_use_nothing_from_outside_that_could_call_the_operating_system() {
        for (name, finds) in [("libc", 1), ("serde_json", 1), ("thiserror", 0)] {
            assert_eq!(texts(&[named("mapwire-dsm", &[name])]).len(), finds, "{name}");
        }
        let mut dsm = named("mapwire-dsm", &["proptest"]);
        assert_eq!(texts(&[dsm.clone()]).len(), 1, "not outside tests");
        dsm.dependencies[0].usage = Use::Test;
        assert_eq!(check(&[dsm]), []);
    }

    #[test]
    fn a_crate_from_outside_that_nobody_listed_is_found() {
        let texts = texts(&[named("mapwire-cli", &["left-pad"])]);
        assert_eq!(texts.len(), 1);
        assert!(texts[0].contains("left-pad"), "{texts:?}");
    }

    #[test]
    fn the_laboratory_may_use_firmware_and_services_but_not_the_machine() {
        let crates = [
            named("mapwire-nic", &[]),
            named("mapwire-gms", &[]),
            named("mapwire-sim", &["mapwire-nic", "mapwire-gms"]),
        ];
        assert_eq!(check(&crates), []);
        for machine in ["mapwire-host", "mapwire-driver", "mapwire"] {
            let crates = [named(machine, &[]), named("mapwire-sim", &[machine])];
            assert_eq!(
                check(&crates),
                [Violation::LabUsesMachine {
                    user: "mapwire-sim".to_owned(),
                    used: machine.to_owned(),
                    by: machine.to_owned()
                }]
            );
        }
    }

    #[test]
    fn the_laboratory_does_not_reach_the_machine_through_another_crate() {
        let crates = [
            named("mapwire-host", &[]),
            named("mapwire-trace", &["mapwire-host"]),
            named("mapwire-study", &["mapwire-trace"]),
        ];
        let by: Vec<_> = check(&crates)
            .into_iter()
            .filter_map(|violation| match violation {
                Violation::LabUsesMachine { user, by, .. } => Some((user, by)),
                _ => None,
            })
            .collect();
        assert!(by.contains(&("mapwire-study".to_owned(), "mapwire-trace".to_owned())), "{by:?}");
    }

    #[test]
    fn no_two_crates_have_the_same_place() {
        for (index, place) in ORDER.iter().enumerate() {
            let same = |other: &Place| other.name == place.name || other.folder == place.folder;
            assert!(!ORDER[..index].iter().any(same), "{place:?}");
        }
    }
}
