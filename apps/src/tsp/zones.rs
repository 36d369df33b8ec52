//! Cities from the system's time-zone table: each zone is named after a city and gives its coordinates.
//!
//! The table (`zone1970.tab`) has a zone a line, columns apart by tabs: country codes, coordinates, the zone's name
//! (`Europe/Vienna`), a comment or nothing. Lines that begin with `#` are comments.

use super::geography::{Coordinates, great_circle_metres, parse_coordinates};
use super::instance::{Distances, Instance};

/// Why a zone table does not provide the cities requested.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ZoneError {
    /// A line has too few columns.
    #[error("line {line}: {columns} columns where a zone table has at least 3, apart by tabs")]
    Columns {
        /// Line number, from 1.
        line: usize,
        /// Number of its columns.
        columns: usize,
    },
    /// Coordinates in no known form.
    #[error("line {line}: coordinates {value:?} are neither ±DDMM±DDDMM nor ±DDMMSS±DDDMMSS")]
    Coordinates {
        /// Line number, from 1.
        line: usize,
        /// Coordinates as written.
        value: String,
    },
    /// The region has no zone.
    #[error("no zone named {region}/...; give a region that the table has, such as Europe")]
    NoRegion { region: String },
    /// The region has too few cities.
    #[error("{wanted} cities wanted, but the table has {found} of {region}; ask for fewer")]
    TooFew {
        /// Number of cities requested.
        wanted: usize,
        /// Number of cities in the table.
        found: usize,
        region: String,
    },
}

/// A city of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct City {
    /// The zone's name without its region, spaces for underscores.
    pub(super) name: String,
    pub(super) place: Coordinates,
}

/// All cities of a region (`Europe`), in the table's order.
pub(super) fn parse(table: &str, region: &str) -> Result<Vec<City>, ZoneError> {
    let mut cities = Vec::new();
    for (at, text) in table.lines().enumerate() {
        if text.starts_with('#') || text.trim().is_empty() {
            continue;
        }
        let line = at + 1;
        let columns: Vec<_> = text.split('\t').collect();
        let &[_, coordinates, zone, ..] = &columns[..] else {
            let columns = columns.len();
            return Err(ZoneError::Columns { line, columns });
        };
        let name = zone.strip_prefix(region).and_then(|n| n.strip_prefix('/'));
        let Some(name) = name else { continue };
        let place = parse_coordinates(coordinates)
            .ok_or_else(|| ZoneError::Coordinates { line, value: coordinates.to_string() })?;
        cities.push(City { name: name.replace('_', " "), place });
    }
    Ok(cities)
}

/// A problem of `count` cities of the region, spread evenly over the table: the table is cut into `count` equal parts and the city in the
/// middle of each is taken.
pub(super) fn instance(table: &str, region: &str, count: usize) -> Result<Instance, ZoneError> {
    let all = parse(table, region)?;
    let region = region.to_string();
    if all.is_empty() {
        return Err(ZoneError::NoRegion { region });
    }
    if count > all.len() {
        return Err(ZoneError::TooFew { wanted: count, found: all.len(), region });
    }
    let cities: Vec<_> = (0..count).map(|part| &all[(2 * part + 1) * all.len() / (2 * count)]).collect();
    Ok(Instance {
        title: format!("{count} cities of {region}"),
        cities: cities.iter().map(|city| city.name.clone()).collect(),
        distances: Distances::new(count, |a, b| great_circle_metres(cities[a].place, cities[b].place)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TABLE: &str = "# a comment\tof\tEurope/Nowhere\n\
        AD\t+4230+00131\tEurope/Andorra\n\
        GB,GG\t+513030-0000731\tEurope/London\tmost of it\n\
        \n\
        US\t+404251-0740023\tAmerica/New_York\n\
        XX\t+0000+00000\tEuropean/Trap\n";

    #[test]
    fn cities_of_one_region_are_found_in_order() {
        let names = |region| -> Vec<String> {
            let cities = parse(TABLE, region).unwrap();
            cities.into_iter().map(|city| city.name).collect()
        };
        assert_eq!(names("Europe"), ["Andorra", "London"]);
        assert_eq!(names("America"), ["New York"]);
        assert!(names("Asia").is_empty());
    }

    #[test]
    fn cities_are_taken_from_the_middles_of_equal_parts() {
        let table: String = (0..38).map(|k| format!("X\t+{k:02}00+00000\tR/c{k}\n")).collect();
        let odd: Vec<_> = (0..19).map(|k| format!("c{}", 2 * k + 1)).collect();
        assert_eq!(instance(&table, "R", 19).unwrap().cities, odd);
        assert_eq!(instance(&table, "R", 38).unwrap().cities.len(), 38);
        assert_eq!(instance(&table, "R", 3).unwrap().cities, ["c6", "c19", "c31"]);
    }

    #[test]
    fn errors_name_the_line_and_the_value() {
        let error = parse("#\nAD\t+42x0+00131\tEurope/Andorra\n", "Europe").unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 2: coordinates \"+42x0+00131\" are neither ±DDMM±DDDMM nor ±DDMMSS±DDDMMSS"
        );
        let error = parse("AD +4230+00131 Europe/Andorra\n", "Europe").unwrap_err();
        assert_eq!(error, ZoneError::Columns { line: 1, columns: 1 });
        let error = instance(TABLE, "Atlantis", 3).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("Atlantis"));
        let error = instance(TABLE, "Europe", 3).map(|_| ()).unwrap_err();
        assert!(error.to_string().starts_with("3 cities wanted, but the table has 2 of Europe"));
    }

    proptest! {
        #[test]
        fn no_table_makes_the_reader_panic(table in "(\\PC{0,12}[\t\n#/]){0,20}") {
            let _ = parse(&table, "Europe");
        }
    }
}
