//! Files in the TSPLIB 95 format: symmetric problems of type EXPLICIT, EUC_2D and GEO.
//!
//! A file is a specification (`KEYWORD : value` a line) and data sections of numbers. Distances are integers by
//! TSPLIB's own rules: EUC_2D rounds to the nearest, GEO works on a sphere of 6378.388 km with π = 3.141592, and adds
//! one before it cuts off. GEO coordinates are degrees and minutes (`38.24` is 38° 24′), cut at the point, as the library's
//! published optima have them.

use super::instance::{Distances, Instance, MAX_CITIES, MAX_DISTANCE, MIN_CITIES, Unit};

/// Why a file is not a problem that can be solved here.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum TsplibError {
    /// A line of the specification or of a section is invalid.
    #[error("line {line}: {what} {value:?}; {mend}")]
    Line {
        /// Line number, from 1.
        line: usize,
        what: &'static str,
        /// The value as written.
        value: String,
        /// How to fix it.
        mend: &'static str,
    },
    /// The file ends too early.
    #[error("{section} ends after {found} of {wanted} {what}")]
    Short {
        section: &'static str,
        /// Number of values found.
        found: usize,
        /// Number of values expected.
        wanted: usize,
        /// Kind of the values.
        what: &'static str,
    },
    /// The specification lacks a required item.
    #[error("the file has no {0}")]
    Missing(&'static str),
    /// Too many cities or too few.
    #[error("line {line}: DIMENSION {value}; tsp solves {MIN_CITIES} to {MAX_CITIES} cities")]
    Dimension {
        /// Line number, from 1.
        line: usize,
        /// Number of cities.
        value: usize,
    },
    /// The distances there and back differ.
    #[error(
        "the distance from city {from} to city {to} is {there}, but back it is {back}; tsp solves symmetric problems only"
    )]
    Asymmetric {
        /// City number, from 1.
        from: usize,
        /// City number, from 1.
        to: usize,
        /// Distance from `from` to `to`.
        there: u32,
        /// Distance back.
        back: u32,
    },
    /// Two cities are too far apart.
    #[error("the distance from city {from} to city {to} is {value}; tsp takes distances up to {MAX_DISTANCE}")]
    TooFar {
        /// City number, from 1.
        from: usize,
        /// City number, from 1.
        to: usize,
        /// Distance as computed.
        value: f64,
    },
}

use TsplibError::{Line, Missing, Short};

#[derive(Clone, Copy, PartialEq, Eq)]
enum WeightType {
    Explicit,
    Euclidean,
    Geographic,
}

/// Position of an explicit file's numbers in the matrix, row by row (a column-wise format is the other triangle row by row).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Full,
    Upper { diagonal: bool },
    Lower { diagonal: bool },
}

/// The specification and the data as read so far.
#[derive(Default)]
struct File {
    name: Option<String>,
    dimension: Option<usize>,
    weight_type: Option<WeightType>,
    format: Option<Format>,
    coordinates: Vec<Option<(f64, f64)>>,
    weights: Vec<u32>,
}

pub(super) fn parse(text: &str) -> Result<Instance, TsplibError> {
    let mut file = File::default();
    let mut lines = text.lines().enumerate().map(|(at, text)| (at + 1, text.trim()));
    while let Some((line, text)) = lines.next() {
        let (keyword, value) = match text.split_once(':') {
            Some((keyword, value)) => (keyword.trim(), value.trim()),
            None => text.split_once(char::is_whitespace).map_or((text, ""), |(k, v)| (k, v.trim())),
        };
        let fail = |what, mend| Err(Line { line, what, value: value.to_string(), mend });
        match keyword {
            "" | "COMMENT" | "DISPLAY_DATA_TYPE" | "NODE_COORD_TYPE" => {}
            "NAME" => file.name = Some(value.to_string()),
            "TYPE" if value.split_whitespace().next() == Some("TSP") => {}
            "TYPE" => return fail("TYPE", "tsp solves TYPE: TSP only"),
            "DIMENSION" => file.dimension = Some(parse_dimension(line, value)?),
            "EDGE_WEIGHT_TYPE" => {
                file.weight_type = Some(match value {
                    "EXPLICIT" => WeightType::Explicit,
                    "EUC_2D" => WeightType::Euclidean,
                    "GEO" => WeightType::Geographic,
                    _ => return fail("EDGE_WEIGHT_TYPE", "tsp reads EXPLICIT, EUC_2D and GEO"),
                });
            }
            "EDGE_WEIGHT_FORMAT" => {
                file.format = match value {
                    "FULL_MATRIX" => Some(Format::Full),
                    "UPPER_ROW" | "LOWER_COL" => Some(Format::Upper { diagonal: false }),
                    "LOWER_ROW" | "UPPER_COL" => Some(Format::Lower { diagonal: false }),
                    "UPPER_DIAG_ROW" | "LOWER_DIAG_COL" => Some(Format::Upper { diagonal: true }),
                    "LOWER_DIAG_ROW" | "UPPER_DIAG_COL" => Some(Format::Lower { diagonal: true }),
                    "FUNCTION" => None,
                    _ => {
                        return fail(
                            "EDGE_WEIGHT_FORMAT",
                            "tsp reads FULL_MATRIX and UPPER_, LOWER_, UPPER_DIAG_ and LOWER_DIAG_, each _ROW or _COL",
                        );
                    }
                };
            }
            "NODE_COORD_SECTION" => file.read_coordinates(&mut lines)?,
            "EDGE_WEIGHT_SECTION" => file.read_weights(&mut lines)?,
            "DISPLAY_DATA_SECTION" => {
                let points = file.dimension.ok_or(Missing("DIMENSION before its data"))?;
                let skipped = lines.by_ref().filter(|(_, text)| !text.is_empty()).take(points).count();
                if skipped < points {
                    return Err(Short {
                        section: "DISPLAY_DATA_SECTION",
                        found: skipped,
                        wanted: points,
                        what: "points",
                    });
                }
            }
            "EOF" => break,
            _ => {
                return Err(Line {
                    line,
                    what: "unknown keyword",
                    value: keyword.to_string(),
                    mend: "tsp reads symmetric TSPLIB 95 problems",
                });
            }
        }
    }
    file.finish()
}

fn parse_dimension(line: usize, value: &str) -> Result<usize, TsplibError> {
    match value.parse() {
        Ok(cities) if (MIN_CITIES..=MAX_CITIES).contains(&cities) => Ok(cities),
        Ok(value) => Err(TsplibError::Dimension { line, value }),
        Err(_) => Err(Line { line, what: "DIMENSION", value: value.to_string(), mend: "a number of cities is needed" }),
    }
}

impl File {
    /// Reads `number x y` for every city.
    fn read_coordinates<'t>(&mut self, lines: &mut impl Iterator<Item = (usize, &'t str)>) -> Result<(), TsplibError> {
        let cities = self.dimension.ok_or(Missing("DIMENSION before its data"))?;
        self.coordinates = vec![None; cities];
        let mut found = 0;
        while found < cities {
            let Some((line, text)) = lines.next().filter(|&(_, text)| text != "EOF") else {
                return Err(Short { section: "NODE_COORD_SECTION", found, wanted: cities, what: "cities" });
            };
            if text.is_empty() {
                continue;
            }
            let fail = |what, mend| Line { line, what, value: text.to_string(), mend };
            let words: Vec<_> = text.split_whitespace().collect();
            let &[number, x, y] = &words[..] else {
                return Err(fail("a city's line is", "it has a number and two coordinates"));
            };
            let number = number.parse::<usize>().ok();
            let Some(slot) = number.and_then(|n| self.coordinates.get_mut(n.checked_sub(1)?)) else {
                return Err(fail("no such city:", "cities are numbered from 1 to DIMENSION"));
            };
            let number = |word: &str| word.parse::<f64>().ok().filter(|x| x.is_finite());
            let (Some(x), Some(y)) = (number(x), number(y)) else {
                return Err(fail("not coordinates:", "finite numbers are needed"));
            };
            if slot.replace((x, y)).is_some() {
                return Err(fail("a city's second line:", "each city is given once"));
            }
            found += 1;
        }
        Ok(())
    }

    /// Reads as many numbers as the format has, whatever the line breaks.
    fn read_weights<'t>(&mut self, lines: &mut impl Iterator<Item = (usize, &'t str)>) -> Result<(), TsplibError> {
        let cities = self.dimension.ok_or(Missing("DIMENSION before its data"))?;
        let format = self.format.ok_or(Missing("EDGE_WEIGHT_FORMAT before its EDGE_WEIGHT_SECTION"))?;
        let wanted = format.places(cities).count();
        self.weights = Vec::with_capacity(wanted);
        while self.weights.len() < wanted {
            let Some((line, text)) = lines.next().filter(|&(_, text)| text != "EOF") else {
                return Err(Short {
                    section: "EDGE_WEIGHT_SECTION",
                    found: self.weights.len(),
                    wanted,
                    what: "distances",
                });
            };
            for word in text.split_whitespace() {
                let fail = |what, mend| Line { line, what, value: word.to_string(), mend };
                if self.weights.len() == wanted {
                    return Err(fail("one distance too many:", "check DIMENSION and EDGE_WEIGHT_FORMAT"));
                }
                let weight = word.parse().ok().filter(|&w| w <= MAX_DISTANCE);
                let mend = "integers from 0 to 30000000 are needed";
                self.weights.push(weight.ok_or_else(|| fail("not a distance:", mend))?);
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Instance, TsplibError> {
        let cities = self.dimension.ok_or(Missing("DIMENSION"))?;
        let weight_type = self.weight_type.ok_or(Missing("EDGE_WEIGHT_TYPE"))?;
        let distances = match weight_type {
            WeightType::Explicit => {
                let format = self.format.ok_or(Missing("EDGE_WEIGHT_FORMAT"))?;
                if self.weights.is_empty() {
                    return Err(Missing("EDGE_WEIGHT_SECTION"));
                }
                explicit(&self.weights, format, cities)?
            }
            WeightType::Euclidean => from_coordinates(&self.coordinates, cities, euclidean)?,
            WeightType::Geographic => from_coordinates(&self.coordinates, cities, geographic)?,
        };
        Ok(Instance {
            title: match self.name {
                Some(name) if !name.is_empty() => format!("{cities} cities of {name}"),
                _ => format!("{cities} cities"),
            },
            cities: (1..=cities).map(|number| number.to_string()).collect(),
            unit: Unit::Plain,
            distances,
        })
    }
}

impl Format {
    /// Row and column of each number of a section, in order.
    fn places(self, cities: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..cities).flat_map(move |row| {
            let columns = match self {
                Self::Full => 0..cities,
                Self::Upper { diagonal } => row + usize::from(!diagonal)..cities,
                Self::Lower { diagonal } => 0..row + usize::from(diagonal),
            };
            columns.map(move |column| (row, column))
        })
    }
}

fn explicit(weights: &[u32], format: Format, cities: usize) -> Result<Distances, TsplibError> {
    let mut matrix = vec![None; cities * cities];
    for ((row, column), &weight) in format.places(cities).zip(weights) {
        let (from, to) = (row + 1, column + 1);
        let back = matrix[column * cities + row].filter(|_| row != column);
        if let Some(back) = back.filter(|&back| back != weight) {
            return Err(TsplibError::Asymmetric { from: to, to: from, there: back, back: weight });
        }
        matrix[row * cities + column] = Some(weight);
    }
    Ok(Distances::new(cities, |a, b| {
        let either = matrix[a * cities + b].or(matrix[b * cities + a]);
        either.expect("every format has each pair at least once")
    }))
}

fn from_coordinates(
    coordinates: &[Option<(f64, f64)>],
    cities: usize,
    distance: fn((f64, f64), (f64, f64)) -> f64,
) -> Result<Distances, TsplibError> {
    let all: Option<Vec<_>> = coordinates.iter().copied().collect();
    let all = all.filter(|all| !all.is_empty()).ok_or(Missing("NODE_COORD_SECTION"))?;
    let mut too_far = None;
    let distances = Distances::new(cities, |a, b| {
        let value = distance(all[a], all[b]);
        if value <= f64::from(MAX_DISTANCE) {
            return value as u32;
        }
        too_far.get_or_insert(TsplibError::TooFar { from: a + 1, to: b + 1, value });
        0
    });
    too_far.map_or(Ok(distances), Err)
}

fn euclidean(a: (f64, f64), b: (f64, f64)) -> f64 {
    let (dx, dy) = (a.0 - b.0, a.1 - b.1);
    ((dx * dx + dy * dy).sqrt() + 0.5).floor()
}

fn geographic(a: (f64, f64), b: (f64, f64)) -> f64 {
    // The library's own constants and rounding: other values give other distances than its published ones.
    #[allow(clippy::approx_constant)]
    const PI: f64 = 3.141592;
    const RADIUS: f64 = 6378.388;
    let radians = |coordinate: f64| {
        let degrees = coordinate.trunc();
        PI * (degrees + 5.0 * (coordinate - degrees) / 3.0) / 180.0
    };
    let q1 = (radians(a.1) - radians(b.1)).cos();
    let q2 = (radians(a.0) - radians(b.0)).cos();
    let q3 = (radians(a.0) + radians(b.0)).cos();
    let cosine = 0.5 * ((1.0 + q1) * q2 - (1.0 - q1) * q3);
    (RADIUS * cosine.clamp(-1.0, 1.0).acos() + 1.0).floor()
}

#[cfg(test)]
#[path = "tsplib_tests.rs"]
mod tests;
