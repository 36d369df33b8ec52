//! Bodies under each other's gravity, by all pairs, in steps of leapfrog.
//!
//! Each worker has a run of bodies. In a step it sums the forces on them, of all bodies in their order, and keeps these and the velocities
//! to itself; after a barrier it moves its bodies. Sums do not depend on the number of workers: the result equals the sequential one to the
//! last bit.

use clap::Args;
use serde_json::{Value, json};

use crate::crew::{Crew, Worker, share_of};
use crate::error::{Failure, ensure, ensure_same_bits};
use crate::phase::Blocks;
use crate::program::Program;
use crate::random::even;

const MAX_BODIES: usize = 1 << 20;
const TIME_STEP: f64 = 1e-3;
/// Added to each squared distance, so that near bodies do not fly apart.
const SOFTENING: f64 = 1e-4;

type Vector = [f64; 3];

/// The bodies, and how long they move.
#[derive(Args, Clone, Debug)]
pub struct NBody {
    /// How many bodies
    #[arg(long, default_value_t = 4096, value_name = "N")]
    pub bodies: usize,
    /// How many steps
    #[arg(long, default_value_t = 30, value_name = "S")]
    pub steps: usize,
}

impl NBody {
    /// Position of body `body` at the start, in a cube of side 2. Bodies start at rest, and have the same mass.
    fn start(&self, body: usize) -> Vector {
        core::array::from_fn(|axis| even((3 * body + axis) as u64))
    }
}

impl Program for NBody {
    /// A block for each worker: the positions of its bodies.
    type Memory<'c> = Blocks<'c, Vector>;
    /// The positions at the end.
    type Outcome = Vec<Vector>;

    fn name(&self) -> &'static str {
        "nbody"
    }

    fn check(&self) -> Result<(), Failure> {
        let Self { bodies, steps } = *self;
        if bodies == 0 || bodies > MAX_BODIES {
            return Err(Failure::Input(format!("--bodies {bodies}: must be between 1 and {MAX_BODIES}")));
        }
        if steps == 0 {
            return Err(Failure::Input("--steps 0: move the bodies at least once".to_string()));
        }
        Ok(())
    }

    fn problem(&self) -> String {
        format!("{} bodies, all pairs, {} steps", self.bodies, self.steps)
    }

    fn fields(&self) -> Value {
        json!({"bodies": self.bodies, "steps": self.steps})
    }

    fn shared_bytes(&self, workers: usize) -> u64 {
        ((self.bodies + workers) * size_of::<Vector>()) as u64
    }

    fn layout<'c>(&self, crew: &'c Crew) -> Result<Blocks<'c, Vector>, Failure> {
        let length = |worker| share_of(self.bodies, worker, crew.workers()).len().max(1);
        crew.blocks((0..crew.workers()).map(|worker| (length(worker), worker)))
    }

    fn prepare(&self, worker: &Worker<'_>, positions: &Blocks<'_, Vector>) -> Result<(), Failure> {
        let mut mine = positions[worker.id()].write();
        for (position, body) in mine.iter_mut().zip(worker.share_of(self.bodies)) {
            *position = self.start(body);
        }
        Ok(())
    }

    fn work(&self, worker: &Worker<'_>, positions: &Blocks<'_, Vector>) -> Result<(), Failure> {
        let count = worker.share_of(self.bodies).len();
        let mut velocities: Vec<Vector> = vec![[0.0; 3]; count];
        for _ in 0..self.steps {
            worker.note_must_move(((self.bodies - count) * size_of::<Vector>()) as u64);
            let all: Vec<_> = (0..worker.count()).map(|other| positions[other].read()).collect();
            for (velocity, position) in velocities.iter_mut().zip(all[worker.id()].iter()) {
                let mut force = [0.0; 3];
                for (other, theirs) in all.iter().enumerate() {
                    let bodies = share_of(self.bodies, other, worker.count()).len();
                    add_gravity(&mut force, position, &theirs[..bodies]);
                }
                step(velocity, &force, TIME_STEP / self.bodies as f64);
            }
            drop(all);
            worker.barrier()?;
            for (position, velocity) in positions[worker.id()].write().iter_mut().zip(&velocities) {
                step(position, velocity, TIME_STEP);
            }
            worker.barrier()?;
        }
        Ok(())
    }

    fn collect(&self, positions: &Blocks<'_, Vector>) -> Vec<Vector> {
        let of = |worker| share_of(self.bodies, worker, positions.count()).len();
        (0..positions.count()).flat_map(|worker| positions[worker].read()[..of(worker)].to_vec()).collect()
    }

    /// Gravity between the bodies moves their centre nowhere.
    fn verify(&self, positions: &Vec<Vector>) -> Result<(), Failure> {
        let drift = (0..3).map(|axis| {
            let sum: f64 = positions.iter().enumerate().map(|(body, at)| at[axis] - self.start(body)[axis]).sum();
            sum.abs() / self.bodies as f64
        });
        let drift = drift.fold(0.0, |most, axis| if axis < most { most } else { axis });
        ensure(drift < 1e-9, || format!("the centre of all bodies has moved by {drift:e}"))
    }

    fn compare(&self, positions: &Vec<Vector>, sequential: &Vec<Vector>) -> Result<(), Failure> {
        let (ours, theirs) = (positions.as_flattened(), sequential.as_flattened());
        ensure_same_bits(ours, theirs, "coordinates", |at| (at / 3, at % 3))
    }

    fn describe(&self, positions: &Vec<Vector>) -> Vec<String> {
        let most = positions.as_flattened().iter().fold(0.0f64, |most, x| most.max(x.abs()));
        vec![format!("largest coordinate at the end: {most:.6}")]
    }
}

fn step(from: &mut Vector, by: &Vector, time: f64) {
    for (x, dx) in from.iter_mut().zip(by) {
        *x += time * dx;
    }
}

/// Adds the pull of `bodies` of mass 1 on a body at `here`. Never inlined, so that every mode runs the same machine code.
#[inline(never)]
fn add_gravity(force: &mut Vector, here: &Vector, bodies: &[Vector]) {
    for there in bodies {
        let way: Vector = core::array::from_fn(|axis| there[axis] - here[axis]);
        let square = way.iter().map(|x| x * x).sum::<f64>() + SOFTENING;
        step(force, &way, 1.0 / (square * square.sqrt()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::solve;

    #[test]
    fn any_number_of_workers_gives_the_sequential_positions_to_the_last_bit() {
        for (bodies, steps) in [(1, 1), (2, 5), (50, 4)] {
            let program = NBody { bodies, steps };
            let sequential = solve(&program, &Crew::plain(1)).unwrap();
            program.verify(&sequential).unwrap();
            for workers in [2, 3, 5] {
                program.compare(&solve(&program, &Crew::plain(workers)).unwrap(), &sequential).unwrap();
            }
        }
    }

    #[test]
    fn two_bodies_fall_toward_each_other() {
        let program = NBody { bodies: 2, steps: 10 };
        let end = solve(&program, &Crew::plain(2)).unwrap();
        let distance = |one: Vector, other: Vector| (0..3).map(|axis| (one[axis] - other[axis]).powi(2)).sum::<f64>();
        assert!(distance(end[0], end[1]) < distance(program.start(0), program.start(1)));
    }

    #[test]
    fn each_step_moves_the_positions_of_the_others() {
        let crew = Crew::plain(2);
        solve(&NBody { bodies: 10, steps: 3 }, &crew).unwrap();
        assert_eq!(crew.traffic().must_move_bytes, 3 * 10 * 24);
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_and_wrong_positions_found() {
        for (bodies, steps) in [(0, 1), (1 << 30, 1), (2, 0)] {
            assert_eq!(NBody { bodies, steps }.check().unwrap_err().exit_code(), 2);
        }
        let program = NBody { bodies: 2, steps: 1 };
        let moved = vec![[9.0; 3], [f64::NAN; 3]];
        assert!(program.verify(&moved).is_err());
        assert!(program.compare(&moved, &solve(&program, &Crew::plain(1)).unwrap()).is_err());
    }
}
