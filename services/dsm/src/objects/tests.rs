//! Tests of the home: each kind against what it must do.
