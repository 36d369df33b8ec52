//! A travelling salesman's problem: cities and the distances between them, as integers so that results compare exactly.

/// Most cities of a problem: a set of cities is one 64-bit word.
pub(super) const MAX_CITIES: usize = 64;
/// Fewest cities that leave a choice.
pub(super) const MIN_CITIES: usize = 3;

/// Symmetric distances between at most [`MAX_CITIES`] cities.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Distances {
    rows: Box<[[u32; MAX_CITIES]; MAX_CITIES]>,
}

impl Distances {
    /// From the distance of each pair of different cities; `between(a, b)` is asked for a < b < `cities` only.
    pub(super) fn new(cities: usize, mut between: impl FnMut(usize, usize) -> u32) -> Self {
        assert!(cities <= MAX_CITIES);
        let mut rows = Box::new([[0; MAX_CITIES]; MAX_CITIES]);
        for a in 0..cities {
            for b in a + 1..cities {
                let distance = between(a, b);
                rows[a][b] = distance;
                rows[b][a] = distance;
            }
        }
        Self { rows }
    }

    #[inline]
    pub(super) fn between(&self, a: usize, b: usize) -> u32 {
        self.rows[a % MAX_CITIES][b % MAX_CITIES]
    }

    /// Length of the closed tour.
    pub(super) fn tour_length(&self, tour: &[u8]) -> u32 {
        let next = tour.iter().cycle().skip(1);
        tour.iter().zip(next).map(|(&a, &b)| self.between(a.into(), b.into())).sum()
    }
}

#[derive(Clone)]
pub(super) struct Instance {
    /// Description in a few words.
    pub(super) title: String,
    pub(super) cities: Vec<String>,
    /// Their distances, in metres on the ground.
    pub(super) distances: Distances,
}

impl Instance {
    pub(super) fn show_length(&self, length: u32) -> String {
        format!("{:.1} km", f64::from(length) / 1000.0)
    }

    /// A tour as text: the names, the first again at the end.
    pub(super) fn show_tour(&self, tour: &[u8]) -> String {
        let mut names: Vec<&str> = tour.iter().map(|&city| self.cities[usize::from(city)].as_str()).collect();
        names.extend(names.first().copied());
        names.join(" - ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tour_is_closed_in_length_and_in_print() {
        let instance = Instance {
            title: "a line".into(),
            cities: ["A", "B", "C"].map(String::from).into(),
            distances: Distances::new(3, |a, b| (b - a) as u32 * 10),
        };
        assert_eq!(instance.distances.tour_length(&[0, 2, 1]), 40);
        assert_eq!(instance.show_tour(&[0, 2, 1]), "A - C - B - A");
        assert_eq!(instance.show_length(1250), "1.2 km");
    }
}
