//! Tests of the TSPLIB reader: small problems with published optima, and invalid files.

use proptest::prelude::*;

use super::*;
use crate::tsp::tests::shortest;

const BURMA14: &str = "NAME: burma14
TYPE: TSP
COMMENT: 14 cities in Burma (Zaw Win)
DIMENSION: 14
EDGE_WEIGHT_TYPE: GEO
EDGE_WEIGHT_FORMAT: FUNCTION
DISPLAY_DATA_TYPE: COORD_DISPLAY
NODE_COORD_SECTION
1 16.47 96.10
2 16.47 94.44
3 20.09 92.54
4 22.39 93.37
5 25.23 97.24
6 22.00 96.05
7 20.47 97.02
8 17.20 96.29
9 16.30 97.38
10 14.05 98.12
11 16.53 97.38
12 21.52 95.59
13 19.41 97.13
14 20.09 94.55
EOF
";

const ULYSSES16: &str = "NAME: ulysses16.tsp
TYPE: TSP
COMMENT: Odyssey of Ulysses (Groetschel/Padberg)
DIMENSION: 16
EDGE_WEIGHT_TYPE: GEO
DISPLAY_DATA_TYPE: COORD_DISPLAY
NODE_COORD_SECTION
 1 38.24 20.42
 2 39.57 26.15
 3 40.56 25.32
 4 36.26 23.12
 5 33.48 10.54
 6 37.56 12.19
 7 38.42 13.11
 8 37.52 20.44
 9 41.23 9.10
 10 41.17 13.05
 11 36.08 -5.21
 12 38.47 15.13
 13 38.15 15.35
 14 37.51 15.17
 15 35.49 14.32
 16 39.36 19.56
 EOF
";

const GR17: &str = "NAME: gr17
TYPE: TSP
COMMENT: 17-city problem (Groetschel)
DIMENSION: 17
EDGE_WEIGHT_TYPE: EXPLICIT
EDGE_WEIGHT_FORMAT: LOWER_DIAG_ROW
EDGE_WEIGHT_SECTION
 0 633 0 257 390 0 91 661 228 0 412 227
 169 383 0 150 488 112 120 267 0 80 572 196
 77 351 63 0 134 530 154 105 309 34 29 0
 259 555 372 175 338 264 232 249 0 505 289 262
 476 196 360 444 402 495 0 353 282 110 324 61
 208 292 250 352 154 0 324 638 437 240 421 329
 297 314 95 578 435 0 70 567 191 27 346 83
 47 68 189 439 287 254 0 211 466 74 182 243
 105 150 108 326 336 184 391 145 0 268 420 53
 239 199 123 207 165 383 240 140 448 202 57 0
 246 745 472 237 528 364 332 349 202 685 542 157
 289 426 483 0 121 518 142 84 297 35 29 36
 236 390 238 301 55 96 153 336 0
EOF
";

#[test]
fn the_optima_are_those_that_the_library_publishes() {
    for (text, optimum) in [(BURMA14, 3323), (ULYSSES16, 6859), (GR17, 2085)] {
        assert_eq!(shortest(&parse(text).unwrap()), optimum);
    }
}

#[test]
fn euclidean_distances_round_to_the_nearest() {
    let text = "NAME : square\nTYPE : TSP\nDIMENSION : 4\nEDGE_WEIGHT_TYPE : EUC_2D\n\
        NODE_COORD_SECTION\n1 0 0\n2 1.0e1 0\n4 0 10\n3 10 10.0\nEOF\n";
    let instance = parse(text).unwrap();
    assert_eq!(instance.title, "4 cities of square");
    assert_eq!(instance.distances.between(0, 2), 14);
    assert_eq!(instance.distances.between(0, 3), 10);
    assert_eq!(shortest(&instance), 40);
}

/// The same four cities in every format.
fn explicit_file(format: &str, numbers: &str) -> String {
    format!(
        "DIMENSION: 4\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: {format}\nEDGE_WEIGHT_SECTION\n{numbers}\nEOF\n"
    )
}

#[test]
fn every_matrix_format_gives_the_same_distances() {
    let full = parse(&explicit_file("FULL_MATRIX", "0 1 2 3 1 0 4 5 2 4 0 6 3 5 6 0")).unwrap();
    assert_eq!(full.distances.between(1, 3), 5);
    for (format, numbers) in [
        ("UPPER_ROW", "1 2 3\n4 5\n6"),
        ("LOWER_COL", "1 2 3 4 5 6"),
        ("LOWER_ROW", "1\n2 4\n3 5 6"),
        ("UPPER_COL", "1 2 4 3 5 6"),
        ("UPPER_DIAG_ROW", "0 1 2 3 0 4 5 0 6 0"),
        ("LOWER_DIAG_COL", "0 1 2 3 0 4 5 0 6 0"),
        ("LOWER_DIAG_ROW", "0 1 0 2 4 0 3 5 6 0"),
        ("UPPER_DIAG_COL", "0 1 0 2 4 0 3 5 6 0"),
    ] {
        let parsed = parse(&explicit_file(format, numbers)).unwrap();
        assert!(parsed.distances == full.distances, "{format}");
    }
}

fn error(text: &str) -> String {
    parse(text).err().expect("the file is wrong").to_string()
}

#[test]
fn errors_name_line_value_and_mend() {
    let upper = |numbers| error(&explicit_file("UPPER_ROW", numbers));
    for (message, expected) in [
        (upper("1 2 3\n4 x 6"), "line 6: not a distance: \"x\"; integers from 0 to 30000000 are needed"),
        (upper("1 2 3 4 -5 6"), "line 5: not a distance: \"-5\"; integers from 0 to 30000000 are needed"),
        (upper("1 2 3 4 5 6 7"), "line 5: one distance too many: \"7\"; check DIMENSION and EDGE_WEIGHT_FORMAT"),
        (upper("1 2 3 4 5"), "EDGE_WEIGHT_SECTION ends after 5 of 6 distances"),
        (
            error(&explicit_file("FULL_MATRIX", "0 1 2 3 1 0 4 5 2 4 0 6 3 9 6 0")),
            "the distance from city 2 to city 4 is 5, but back it is 9; tsp solves symmetric problems only",
        ),
        (error("DIMENSION: 0\n"), "line 1: DIMENSION 0; tsp solves 3 to 64 cities"),
        (error("DIMENSION: 65\n"), "line 1: DIMENSION 65; tsp solves 3 to 64 cities"),
        (error("DIMENSION: many\n"), "line 1: DIMENSION \"many\"; a number of cities is needed"),
        (error("TYPE: ATSP\n"), "line 1: TYPE \"ATSP\"; tsp solves TYPE: TSP only"),
        (error("EDGE_WEIGHT_TYPE: ATT\n"), "line 1: EDGE_WEIGHT_TYPE \"ATT\"; tsp reads EXPLICIT, EUC_2D and GEO"),
        (error("\nHELLO\n"), "line 2: unknown keyword \"HELLO\"; tsp reads symmetric TSPLIB 95 problems"),
        (error(""), "the file has no DIMENSION"),
        (error("DIMENSION: 5\n"), "the file has no EDGE_WEIGHT_TYPE"),
        (error("DIMENSION: 5\nEDGE_WEIGHT_TYPE: GEO\n"), "the file has no NODE_COORD_SECTION"),
        (error("NODE_COORD_SECTION\n"), "the file has no DIMENSION before its data"),
    ] {
        assert_eq!(message, expected);
    }
}

#[test]
fn coordinates_are_checked_city_by_city() {
    let file =
        |cities: &str| error(&format!("DIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_2D\nNODE_COORD_SECTION\n{cities}\nEOF"));
    assert!(file("1 0 0\n1 2 3\n3 0 0").starts_with("line 5: a city's second line"));
    assert!(file("1 0 0\n4 2 3\n3 0 0").starts_with("line 5: no such city"));
    assert!(file("0 0 0\n2 2 3\n3 0 0").starts_with("line 4: no such city"));
    assert!(file("1 0 nan\n2 2 3\n3 0 0").starts_with("line 4: not coordinates"));
    assert!(file("1 0\n2 2 3\n3 0 0").starts_with("line 4: a city's line is"));
    assert!(file("1 0 0\n2 2 3").starts_with("NODE_COORD_SECTION ends after 2 of 3"));
    assert!(file("1 0 0\n2 1e300 3\n3 0 0").starts_with("the distance from city 1 to city 2"));
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(lines in prop::collection::vec(
        prop_oneof![
            Just("TYPE: TSP".to_string()),
            (0usize..70).prop_map(|n| format!("DIMENSION: {n}")),
            prop::sample::select(vec![
                "EDGE_WEIGHT_TYPE: EXPLICIT", "EDGE_WEIGHT_TYPE: EUC_2D", "EDGE_WEIGHT_TYPE: GEO",
                "EDGE_WEIGHT_FORMAT: FULL_MATRIX", "EDGE_WEIGHT_FORMAT: LOWER_ROW", "EDGE_WEIGHT_FORMAT: FUNCTION",
                "NODE_COORD_SECTION", "EDGE_WEIGHT_SECTION", "DISPLAY_DATA_SECTION", "EOF",
            ]).prop_map(String::from),
            "[0-9]{1,3} -?[0-9.e]{1,8} [0-9.]{1,4}",
            "\\PC{0,12}",
        ], 0..20)) {
        let _ = parse(&lines.join("\n"));
    }

    #[test]
    fn a_written_matrix_is_read_back(weights in prop::collection::vec(0u32..1000, 21), per_line in 1usize..9) {
        // Seven cities, upper rows.
        let words: Vec<_> = weights.iter().map(u32::to_string).collect();
        let numbers: Vec<_> = words.chunks(per_line).map(|line| line.join(" ")).collect();
        let text = format!(
            "DIMENSION: 7\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: UPPER_ROW\nEDGE_WEIGHT_SECTION\n{}\n",
            numbers.join("\n")
        );
        let instance = parse(&text).unwrap();
        let mut next = weights.iter();
        for a in 0..7 {
            for b in a + 1..7 {
                prop_assert_eq!(instance.distances.between(b, a), *next.next().unwrap());
            }
        }
    }
}
