//! What every translation design must do, as tests that any design can run.
