//! Synchronisation objects by number, each kept by its home: mutexes, reader-writer locks, conditions, semaphores, flags, barriers of some
//! threads, what is done once, and reductions.
//!
//! The home of an object is the rank that a hash of its number decides. A thread's call goes there and is answered when it can be granted
//! ([`server`]). To release, a rank first has its writes in place, like before the token of a lock; then the call tells the home what the
//! rank has published and learned ([`Coherence`]). The home keeps all that its objects' releases have told, and every answer tells the
//! asker what it lacks of that: more than the object's own past, as with locks, but never less.

mod call;
mod server;
mod table;

#[cfg(test)]
mod tests;

use crate::coherence::{Coherence, Release};
use crate::context::{Context, Wait};
use crate::{Config, Error, Message, Outcome, Rank, Thread, Violation};
use call::Answer;
pub(crate) use call::releases;
pub use call::{Combine, NumberType, ObjectCall, ObjectKind, Problem, Reduce, SEMAPHORE_MAX, Verb};
use server::Server;
use table::home;

/// Objects of this home, and calls of this rank's threads.
#[derive(Debug)]
pub(crate) struct Objects {
    server: Server,
}

impl Objects {
    /// `None` if the machine refuses memory.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        Some(Self { server: Server::new(config)? })
    }

    /// Begins a call of an idle thread.
    pub(crate) fn call(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        thread: Thread,
        call: ObjectCall,
    ) -> Result<(), Error> {
        if !call.is_legal() {
            return Err(Error::Object { object: call.object, kind: call.kind, problem: Problem::NoSuchCall });
        }
        context.set_wait(thread, Wait::Object { call, is_sent: false });
        if !call.releases() || coherence.release(Release::Call { thread }) {
            self.send(context, thread);
        }
        Ok(())
    }

    /// Sends the call of a thread to the object's home, once what it releases is in place.
    pub(crate) fn send(&mut self, context: &mut Context, thread: Thread) {
        let Some(Wait::Object { call, is_sent: false }) = context.wait(thread) else { return };
        context.set_wait(thread, Wait::Object { call, is_sent: true });
        let home = home(call.object, context.ranks());
        if home == context.rank() {
            self.server.serve(home, thread, call);
            return self.answer_all(context);
        }
        let ObjectCall { object, kind, verb, argument } = call;
        let (kind, verb) = (kind as u8, verb.code());
        context.send(home, Message::ObjectRequest { thread, object, kind, verb, argument });
    }

    /// Gives up the call of a thread, unless it releases: that waits for the homes of pages, or is over soon.
    pub(crate) fn cancel(&mut self, context: &mut Context, thread: Thread) {
        let Some(Wait::Object { call: ObjectCall { object, .. }, is_sent: true }) = context.wait(thread) else {
            return;
        };
        let home = home(object, context.ranks());
        if home == context.rank() {
            self.server.cancel(home, thread, object);
            return self.answer_all(context);
        }
        context.send(home, Message::ObjectCancel { thread, object });
    }

    /// Objects of this home that a rank holds.
    pub(crate) fn held_by(&self, rank: Rank) -> impl Iterator<Item = (u64, ObjectKind)> + '_ {
        self.server.held_by(rank)
    }

    pub(crate) fn handle_request(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        (from, thread): (Rank, Thread),
        call: ObjectCall,
        payload: &[u8],
    ) -> Result<(), Violation> {
        self.check(context, thread, call.object)?;
        if self.server.is_waiting(from, thread) {
            return Err(Violation::Repeated);
        }
        match call.releases() {
            true => coherence.acquire(context, from, payload)?,
            false => coherence.note_request(from, from, payload)?,
        }
        self.server.serve(from, thread, call);
        self.answer_all(context);
        Ok(())
    }

    pub(crate) fn handle_cancel(
        &mut self,
        context: &mut Context,
        (from, thread): (Rank, Thread),
        object: u64,
    ) -> Result<(), Violation> {
        self.check(context, thread, object)?;
        // Its answer may be on its way.
        self.server.cancel(from, thread, object);
        self.answer_all(context);
        Ok(())
    }

    /// Checks that a message to the home of an object may be for this rank.
    fn check(&self, context: &Context, thread: Thread, object: u64) -> Result<(), Violation> {
        if thread >= context.config().threads {
            return Err(Violation::OutOfRange);
        }
        if home(object, context.ranks()) == context.rank() { Ok(()) } else { Err(Violation::NotManager) }
    }

    pub(crate) fn handle_answer(
        &mut self,
        context: &mut Context,
        coherence: &mut impl Coherence,
        (from, thread): (Rank, Thread),
        (result, value): (u8, u64),
        payload: &[u8],
    ) -> Result<(), Violation> {
        let Some(Wait::Object { call, is_sent: true }) = context.wait(thread) else { return Err(Violation::Unasked) };
        if home(call.object, context.ranks()) != from {
            return Err(Violation::NotManager);
        }
        let answer = Answer::of_message(result, value).ok_or(Violation::OutOfRange)?;
        coherence.acquire(context, from, payload)?;
        conclude(context, thread, answer);
        Ok(())
    }

    /// Answers all calls that were decided.
    fn answer_all(&mut self, context: &mut Context) {
        while let Some((rank, thread, answer)) = self.server.answers.pop_front() {
            if rank == context.rank() {
                conclude(context, thread, answer);
            } else {
                let (result, value) = answer.to_message();
                context.send(rank, Message::ObjectAnswer { thread, result, value });
            }
        }
    }
}

/// Ends the call of a thread of this rank.
fn conclude(context: &mut Context, thread: Thread, answer: Answer) {
    let Some(Wait::Object { call: ObjectCall { object, kind, .. }, .. }) = context.wait(thread) else { return };
    let outcome = match answer {
        Answer::Granted(value) => Outcome::Value(value),
        Answer::NotNow => Outcome::NotNow,
        Answer::Failed(problem) => Outcome::Failed(Error::Object { object, kind, problem }),
    };
    context.resume(thread, outcome);
}
