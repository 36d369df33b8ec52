//! The user's standard input, on its way to rank 0, a part at a time: the next is read when the rank's host has taken the last.

use std::io;
use std::sync::mpsc;

use super::super::start::read_stdin;
use super::frame::{STDIN, frame};

const PART: usize = 32 * 1024;

pub(super) struct Tap(mpsc::Sender<()>);

impl Tap {
    /// Starts the thread that reads; `send` gets each part as a frame.
    pub(super) fn open(send: impl Fn(Vec<u8>) + Send + 'static) -> io::Result<Self> {
        let (tap, asked) = mpsc::channel();
        std::thread::Builder::new().name("stdin".into()).stack_size(128 * 1024).spawn(move || pour(&asked, &send))?;
        Ok(Self(tap))
    }

    pub(super) fn ask(&self) {
        let _ = self.0.send(());
    }
}

fn pour(asked: &mpsc::Receiver<()>, send: &dyn Fn(Vec<u8>)) {
    let mut bytes = vec![0; PART];
    while asked.recv().is_ok() {
        let count = read_stdin(&mut bytes);
        send(frame(STDIN, &bytes[..count]));
        if count == 0 {
            return;
        }
    }
}
