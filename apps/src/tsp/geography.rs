//! Places on the Earth and distances between them.

/// The Earth's mean radius, in metres (IUGG).
const EARTH_RADIUS_METRES: f64 = 6_371_008.8;

/// A place, in degrees, north and east positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coordinates {
    /// In degrees, north positive.
    pub(super) latitude: f64,
    /// In degrees, east positive.
    pub(super) longitude: f64,
}

/// The length of the great circle's arc between two places, in metres, on a sphere; by the haversine formula, which keeps
/// its precision over short distances.
pub(super) fn great_circle_metres(a: Coordinates, b: Coordinates) -> u32 {
    let (from, to) = (a.latitude.to_radians(), b.latitude.to_radians());
    let east = (b.longitude - a.longitude).to_radians();
    let haversine = ((to - from) / 2.0).sin().powi(2) + from.cos() * to.cos() * (east / 2.0).sin().powi(2);
    (2.0 * EARTH_RADIUS_METRES * haversine.sqrt().min(1.0).asin()).round() as u32
}

/// Parses ISO 6709 as in zone tables: ±DDMM±DDDMM or ±DDMMSS±DDDMMSS.
pub(super) fn parse_coordinates(text: &str) -> Option<Coordinates> {
    let split = text.get(1..)?.find(['+', '-'])? + 1;
    let (latitude, longitude) = text.split_at(split);
    Some(Coordinates {
        latitude: parse_degrees(latitude, 2).filter(|x| x.abs() <= 90.0)?,
        longitude: parse_degrees(longitude, 3).filter(|x| x.abs() <= 180.0)?,
    })
}

/// A sign, `degree_digits` digits of degrees, two of minutes, and two of seconds or none.
fn parse_degrees(text: &str, degree_digits: usize) -> Option<f64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1.0,
        b'-' => -1.0,
        _ => return None,
    };
    let digits = &text[1..];
    if !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let (degrees, rest) = digits.split_at_checked(degree_digits)?;
    let (minutes, seconds) = match rest.len() {
        2 => (rest, "0"),
        4 => rest.split_at(2),
        _ => return None,
    };
    let number = |text: &str| text.parse::<u32>().ok();
    let (degrees, minutes, seconds) = (number(degrees)?, number(minutes)?, number(seconds)?);
    if minutes >= 60 || seconds >= 60 {
        return None;
    }
    Some(sign * (f64::from(degrees) + f64::from(minutes * 60 + seconds) / 3600.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(latitude: f64, longitude: f64) -> Coordinates {
        Coordinates { latitude, longitude }
    }

    #[test]
    fn well_known_distances_come_out_right() {
        let quarter = 6_371_008.8 * std::f64::consts::FRAC_PI_2;
        let equator = great_circle_metres(place(0.0, 0.0), place(0.0, 90.0));
        assert_eq!(equator, quarter.round() as u32);
        let pole = great_circle_metres(place(0.0, 17.0), place(90.0, 0.0));
        assert_eq!(pole, quarter.round() as u32);
        let antipodes = great_circle_metres(place(30.0, 0.0), place(-30.0, 180.0));
        assert_eq!(antipodes, (2.0 * quarter).round() as u32);
        // London to Paris is 344 km, Lisbon to Moscow 3907 km, by any table, to the precision of whole minutes.
        let london = place(51.508, -0.125);
        let paris = place(48.867, 2.333);
        let (lisbon, moscow) = (place(38.717, -9.133), place(55.756, 37.617));
        assert!(great_circle_metres(london, paris).abs_diff(343_000) < 2_000);
        assert!(great_circle_metres(lisbon, moscow).abs_diff(3_907_000) < 5_000);
    }

    #[test]
    fn both_forms_of_coordinates_are_read() {
        assert_eq!(parse_coordinates("+4230-00131"), Some(place(42.5, -(1.0 + 31.0 / 60.0))));
        assert_eq!(parse_coordinates("-513030+0000731"), Some(place(-(51.0 + 1830.0 / 3600.0), 451.0 / 3600.0)));
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "+",
            "4230+00131",
            "+4230",
            "+4230+0131",
            "+42300+00131",
            "+4260+00131",
            "+423060+0013100",
            "+9130+00131",
            "+4230+18001",
            "+42x0+00131",
            "+4230+00131 ",
            "+é230+00131",
            "é+1",
        ] {
            assert_eq!(parse_coordinates(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,24}") {
            let _ = parse_coordinates(&text);
        }

        #[test]
        fn written_coordinates_are_read_back(
            north in any::<bool>(), degrees in 0u32..90, minutes in 0u32..60, seconds in 0u32..60,
            east in any::<bool>(), far in 0u32..180,
        ) {
            let sign = |positive| if positive { '+' } else { '-' };
            let text = format!(
                "{}{degrees:02}{minutes:02}{seconds:02}{}{far:03}{minutes:02}{seconds:02}", sign(north), sign(east)
            );
            let parsed = parse_coordinates(&text).unwrap();
            let rest = f64::from(minutes * 60 + seconds) / 3600.0;
            prop_assert_eq!(parsed.latitude.abs(), f64::from(degrees) + rest);
            prop_assert_eq!(parsed.longitude.abs(), f64::from(far) + rest);
            prop_assert!(parsed.latitude == 0.0 || (parsed.latitude > 0.0) == north);
            prop_assert!(parsed.longitude == 0.0 || (parsed.longitude > 0.0) == east);
        }

        #[test]
        fn distance_is_symmetric_and_obeys_the_triangle(
            points in prop::array::uniform3((-90.0f64..90.0, -180.0f64..180.0))
        ) {
            let [a, b, c] = points.map(|(latitude, longitude)| place(latitude, longitude));
            prop_assert_eq!(great_circle_metres(a, b), great_circle_metres(b, a));
            prop_assert_eq!(great_circle_metres(a, a), 0);
            prop_assert!(great_circle_metres(a, c) <= great_circle_metres(a, b) + great_circle_metres(b, c) + 2);
        }
    }
}
