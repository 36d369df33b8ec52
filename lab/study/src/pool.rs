//! Work on several threads.

use std::sync::Mutex;

/// Does `work` with each item, on so many threads at most. After a failure, which it returns, no more is begun.
pub(crate) fn each<T: Send, E: Send>(
    threads: usize,
    items: Vec<T>,
    work: impl Fn(T) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let threads = threads.clamp(1, items.len().max(1));
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().ok()?.next();
    let work = || -> Result<(), E> {
        while let Some(item) = next() {
            work(item).inspect_err(|_| while next().is_some() {})?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut outcome = work();
        for other in others {
            match other.join() {
                Ok(other) => outcome = outcome.and(other),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        outcome
    })
}
