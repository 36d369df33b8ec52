//! `libpmix`, loaded at run time, behind safe functions.
//!
//! The library has a thread of its own, which calls back into this module. A callback copies what it is given, wakes who
//! waits for it, and runs nothing else. A call that takes too long is given up; what it needs then stays in memory until
//! the library calls back, if it ever does.

use std::collections::VecDeque;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use libloading::os::unix::Library as Object;

use super::abi::{self, ByteObject, Data, Info, Proc, Status, Value};
use crate::launcher::MAX_VALUE_BYTES;

const MAX_EVENTS: usize = 1 << 12;

#[derive(Clone, Debug)]
pub(super) struct PmixEvent {
    pub(super) status: Status,
    pub(super) about: Option<(String, u32)>,
}

/// Events that have come. A process has one PMIx client.
static EVENTS: Mutex<VecDeque<PmixEvent>> = Mutex::new(VecDeque::new());

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Datum {
    Bytes(Vec<u8>),
    Number(u32),
    /// Of another type, or too long.
    Other(u16),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Choice {
    /// `pmix.collect`.
    Collect,
    /// `pmix.immediate`: without asking other hosts.
    Immediate,
    /// `pmix.timeout`, in seconds.
    Timeout(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLate;

/// The loaded library, which is never unloaded: its thread may run until the process ends.
pub(super) struct Library {
    init: abi::Init,
    finalize: abi::Finalize,
    abort: abi::Abort,
    put: abi::Put,
    commit: abi::Commit,
    fence: abi::Fence,
    get: abi::Get,
    register: abi::Register,
    error_string: abi::ErrorString,
}

struct Request {
    who: Proc,
    key: CString,
    infos: Vec<Info>,
    answer: Mutex<Option<(Status, Option<Datum>)>>,
    answered: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics with the lock held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Library {
    pub(super) fn load() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL;
        // SAFETY: the library's initialisers are those of a system library that mpirun and Slurm load in the same way.
        let object = unsafe { Object::open(Some("libpmix.so.2"), flags) }.map_err(|e| e.to_string())?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type of each field below is the prototype of that name in pmix.h, which releases under this
                // file name keep; the object is never closed, so the pointer stays valid.
                *unsafe { object.get($name) }.map_err(|e| e.to_string())?
            };
        }
        let library = Self {
            init: function!(b"PMIx_Init\0"),
            finalize: function!(b"PMIx_Finalize\0"),
            abort: function!(b"PMIx_Abort\0"),
            put: function!(b"PMIx_Put\0"),
            commit: function!(b"PMIx_Commit\0"),
            fence: function!(b"PMIx_Fence_nb\0"),
            get: function!(b"PMIx_Get_nb\0"),
            register: function!(b"PMIx_Register_event_handler\0"),
            error_string: function!(b"PMIx_Error_string\0"),
        };
        std::mem::forget(object);
        Ok(library)
    }

    pub(super) fn describe(&self, status: Status) -> String {
        // SAFETY: takes any status and gives a static string or null.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: not null, so a static string.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({status})", text.to_string_lossy())
    }

    /// Connects to the launcher's server. Gives this process's job and rank.
    pub(super) fn init(&'static self, timeout: Duration) -> Result<Result<(String, u32), Status>, TooLate> {
        within(timeout, move || {
            let mut me = process("", 0);
            // SAFETY: `me` can be written; no options are passed.
            let status = unsafe { (self.init)(&mut me, std::ptr::null_mut(), 0) };
            match status {
                abi::SUCCESS => Ok((text_of(&me.namespace), me.rank)),
                status => Err(status),
            }
        })
    }

    pub(super) fn finalize(&'static self, timeout: Duration) -> Result<Status, TooLate> {
        // SAFETY: no options are passed. A later call of another function answers that the library is not initialised.
        within(timeout, move || unsafe { (self.finalize)(std::ptr::null(), 0) })
    }

    pub(super) fn abort(&'static self, code: i32, message: &str, timeout: Duration) -> Result<Status, TooLate> {
        let message = c_string(message);
        within(timeout, move || {
            // SAFETY: the message outlives the call, which copies it; no processes are named.
            unsafe { (self.abort)(code, message.as_ptr(), std::ptr::null_mut(), 0) }
        })
    }

    pub(super) fn put(&self, key: &str, bytes: &[u8]) -> Status {
        let key = c_string(key);
        let object = ByteObject { bytes: bytes.as_ptr().cast(), size: bytes.len() };
        let mut value = value(abi::TYPE_BYTE_OBJECT, |data| data.bytes = object);
        // SAFETY: key and bytes outlive the call, which copies both and writes to neither.
        unsafe { (self.put)(abi::SCOPE_GLOBAL, key.as_ptr(), &mut value) }
    }

    pub(super) fn commit(&self) -> Status {
        // SAFETY: takes nothing.
        unsafe { (self.commit)() }
    }

    pub(super) fn fence(&self, namespace: &str, timeout: Duration) -> Result<Status, TooLate> {
        let request = Request::new(namespace, abi::RANK_WILDCARD, "", &[Choice::Collect]);
        let answer = request.run(timeout, |request, data| {
            let infos = (request.infos.as_ptr(), request.infos.len());
            // SAFETY: the request, which holds what is passed, lives until `op_done` has run.
            unsafe { (self.fence)(&request.who, 1, infos.0, infos.1, op_done, data) }
        })?;
        Ok(answer.0)
    }

    /// What `rank` of `namespace` put under `key`.
    pub(super) fn get(
        &self,
        namespace: &str,
        rank: u32,
        key: &str,
        choices: &[Choice],
        timeout: Duration,
    ) -> Result<(Status, Option<Datum>), TooLate> {
        let request = Request::new(namespace, rank, key, choices);
        request.run(timeout, |request, data| {
            let infos = (request.infos.as_ptr(), request.infos.len());
            let key = request.key.as_ptr();
            // SAFETY: the request, which holds what is passed, lives until `value_done` has run.
            unsafe { (self.get)(&request.who, key, infos.0, infos.1, value_done, data) }
        })
    }

    /// Begins to note events with these statuses. `codes` must stay where they are, so they are static.
    pub(super) fn register(&self, codes: &'static [Status], timeout: Duration) -> Result<Status, TooLate> {
        let request = Request::new("", 0, "", &[]);
        let answer = request.run(timeout, |_, data| {
            let none = std::ptr::null_mut();
            // SAFETY: the codes are static; the request lives until `registered` has run; the handler may be called until
            // the process ends.
            unsafe { (self.register)(codes.as_ptr(), codes.len(), none, 0, on_event, registered, data) };
            abi::SUCCESS
        })?;
        Ok(answer.0)
    }
}

pub(super) fn poll_event() -> Option<PmixEvent> {
    lock(&EVENTS).pop_front()
}

/// Runs a call of the library that may block on a thread of its own, for as long as `timeout` at most.
fn within<T: Send + 'static>(timeout: Duration, call: impl FnOnce() -> T + Send + 'static) -> Result<T, TooLate> {
    let (sender, receiver) = mpsc::channel();
    let run = move || {
        // Too late: nobody waits for it.
        let _ = sender.send(call());
    };
    let builder = std::thread::Builder::new().name("mapwire-pmix".into());
    builder.spawn(run).map_err(|_| TooLate)?;
    receiver.recv_timeout(timeout).map_err(|_| TooLate)
}

impl Request {
    fn new(namespace: &str, rank: u32, key: &str, choices: &[Choice]) -> Arc<Self> {
        let info = |choice: &Choice| match *choice {
            Choice::Collect => info("pmix.collect", value(abi::TYPE_BOOL, |data| data.flag = true)),
            Choice::Immediate => info("pmix.immediate", value(abi::TYPE_BOOL, |data| data.flag = true)),
            Choice::Timeout(seconds) => info("pmix.timeout", value(abi::TYPE_INT, |data| data.integer = seconds)),
        };
        #[expect(clippy::arc_with_non_send_sync, reason = "the pointers in it name nothing that is changed")]
        Arc::new(Self {
            who: process(namespace, rank),
            key: c_string(key),
            infos: choices.iter().map(info).collect(),
            answer: Mutex::new(None),
            answered: Condvar::new(),
        })
    }

    /// Makes a call that is answered by a callback with `data`, and waits for it. The call gives its status: the callback
    /// follows only upon success.
    fn run(
        self: Arc<Self>,
        timeout: Duration,
        call: impl FnOnce(&Self, *mut c_void) -> Status,
    ) -> Result<(Status, Option<Datum>), TooLate> {
        let lent = Arc::into_raw(Arc::clone(&self));
        match call(&self, lent.cast_mut().cast()) {
            abi::SUCCESS => {}
            status => {
                // SAFETY: no callback will follow, so the count that it would give back is taken back here.
                drop(unsafe { Arc::from_raw(lent) });
                let is_done = status == abi::OPERATION_SUCCEEDED;
                return Ok((if is_done { abi::SUCCESS } else { status }, None));
            }
        }
        let begin = Instant::now();
        let mut answer = lock(&self.answer);
        loop {
            if let Some(answer) = answer.take() {
                return Ok(answer);
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(TooLate);
            }
            let waited = self.answered.wait_timeout(answer, left);
            answer = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Notes the answer of the request that `data` names.
    ///
    /// # Safety
    /// `data` comes from [`Request::run`], and this is the only callback for it.
    unsafe fn answer(data: *mut c_void, status: Status, datum: Option<Datum>) {
        // SAFETY: the count that `run` lent is given back once.
        let request = unsafe { Arc::from_raw(data.cast_const().cast::<Self>()) };
        *lock(&request.answer) = Some((status, datum));
        request.answered.notify_all();
    }
}

unsafe extern "C" fn op_done(status: Status, data: *mut c_void) {
    // SAFETY: the library calls back once with the data of the request.
    unsafe { Request::answer(data, status, None) };
}

unsafe extern "C" fn registered(status: Status, _handler: usize, data: *mut c_void) {
    // SAFETY: the library calls back once with the data of the request.
    unsafe { Request::answer(data, status, None) };
}

unsafe extern "C" fn value_done(status: Status, value: *mut Value, data: *mut c_void) {
    let datum = if value.is_null() || status != abi::SUCCESS {
        None
    } else {
        // SAFETY: the library lends a value for the time of this call.
        Some(unsafe { read_value(&*value) })
    };
    // SAFETY: the library calls back once with the data of the request.
    unsafe { Request::answer(data, status, datum) };
}

unsafe extern "C" fn on_event(
    _handler: usize,
    status: Status,
    source: *const Proc,
    infos: *mut Info,
    count: usize,
    _results: *mut Info,
    _result_count: usize,
    done: Option<abi::EventDone>,
    data: *mut c_void,
) {
    let infos = if infos.is_null() {
        &[]
    } else {
        // SAFETY: the library lends `count` options for the time of this call.
        unsafe { std::slice::from_raw_parts(infos, count) }
    };
    let affected = infos.iter().find(|info| text_of(&info.key) == "pmix.evproc");
    let affected = affected.filter(|info| info.value.kind == abi::TYPE_PROC);
    // SAFETY: the type says which member of the union is there.
    let affected = affected.map(|info| unsafe { info.value.data.proc });
    let about = affected.filter(|proc| !proc.is_null()).unwrap_or(source);
    // SAFETY: the library lends it for the time of this call, or it is null.
    let about = unsafe { about.as_ref() }.map(|proc| (text_of(&proc.namespace), proc.rank));
    let mut events = lock(&EVENTS);
    if events.len() < MAX_EVENTS {
        events.push_back(PmixEvent { status, about });
    }
    drop(events);
    if let Some(done) = done {
        let none = std::ptr::null_mut();
        // SAFETY: the standard asks that it be called with this data once; no results are passed, and others may act.
        unsafe { done(abi::EVENT_NO_ACTION_TAKEN, none, 0, None, none.cast(), data) };
    }
}

/// Copies a value.
///
/// # Safety
/// What it points to, if anything, can be read, as its type says.
unsafe fn read_value(value: &Value) -> Datum {
    match value.kind {
        // SAFETY: the type says which member of the union is there.
        abi::TYPE_UINT32 => Datum::Number(unsafe { value.data.uint32 }),
        abi::TYPE_BYTE_OBJECT => {
            // SAFETY: as above.
            let ByteObject { bytes, size } = unsafe { value.data.bytes };
            if size > MAX_VALUE_BYTES {
                return Datum::Other(value.kind);
            }
            if bytes.is_null() || size == 0 {
                return Datum::Bytes(Vec::new());
            }
            // SAFETY: an object of the library has `size` bytes.
            let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) };
            Datum::Bytes(bytes.to_vec())
        }
        kind => Datum::Other(kind),
    }
}

fn value(kind: u16, set: impl FnOnce(&mut Data)) -> Value {
    let mut data = Data { all: [0; 3] };
    set(&mut data);
    Value { kind, data }
}

fn info(key: &str, value: Value) -> Info {
    let key = chars(key);
    Info { key, flags: 0, value }
}

fn process(namespace: &str, rank: u32) -> Proc {
    let namespace = chars(namespace);
    Proc { namespace, rank }
}

/// Text as a C array, cut so that it ends with a zero.
fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    let bytes = text.bytes().take(N - 1).take_while(|byte| *byte != 0);
    for (char, byte) in chars.iter_mut().zip(bytes) {
        *char = byte as c_char;
    }
    chars
}

fn text_of(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|char| *char as u8);
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Text for C, up to its first zero.
fn c_string(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_noted_with_the_rank_that_it_concerns_and_the_library_is_answered() {
        unsafe extern "C" fn done(
            status: Status,
            _: *mut Info,
            _: usize,
            _: Option<abi::OpDone>,
            _: *mut c_void,
            data: *mut c_void,
        ) {
            // SAFETY: the test passes the address of a status.
            unsafe { data.cast::<Status>().write(status) };
        }
        let (server, affected) = (process("job", u32::MAX), process("job", 2));
        let other = info("pmix.evtext", value(abi::TYPE_BOOL, |_| {}));
        let named = info("pmix.evproc", value(abi::TYPE_PROC, |data| data.proc = &affected));
        let null = info("pmix.evproc", value(abi::TYPE_PROC, |_| {}));
        let wrong = info("pmix.evproc", value(abi::TYPE_INT, |data| data.integer = 1));
        let none = std::ptr::null_mut();
        for (infos, expected) in [
            (&mut [other, named][..], 2),
            (&mut [null][..], u32::MAX),
            (&mut [wrong][..], u32::MAX),
            (&mut [][..], u32::MAX),
        ] {
            let mut answer: Status = 0;
            let data = std::ptr::from_mut(&mut answer).cast();
            let (at, count) = (infos.as_mut_ptr(), infos.len());
            // SAFETY: all pointers name what is alive here.
            unsafe { on_event(1, -402, &server, at, count, none, 0, Some(done), data) };
            assert_eq!(answer, abi::EVENT_NO_ACTION_TAKEN);
            let told = poll_event().unwrap();
            assert_eq!(told.about, Some(("job".into(), expected)));
            assert_eq!(told.status, -402);
        }
        // SAFETY: nothing is named.
        unsafe { on_event(1, -61, std::ptr::null(), none, 0, none, 0, None, none.cast()) };
        assert!(poll_event().unwrap().about.is_none());
        assert!(poll_event().is_none());
    }

    #[test]
    fn a_call_that_is_answered_late_is_given_up_and_its_answer_harms_nobody() {
        let request = Request::new("job", 0, "key", &[Choice::Immediate]);
        let mut lent = std::ptr::null_mut();
        let run = request.run(Duration::from_millis(20), |_, data| {
            lent = data;
            abi::SUCCESS
        });
        assert_eq!(run, Err(TooLate));
        // SAFETY: the one callback for it.
        unsafe { op_done(0, lent) };
    }

    #[test]
    fn a_refused_or_finished_call_waits_for_no_callback() {
        for (given, expected) in [(abi::OPERATION_SUCCEEDED, 0), (abi::ERR_NOT_FOUND, abi::ERR_NOT_FOUND)] {
            let request = Request::new("job", 0, "key", &[]);
            let run = request.run(Duration::from_secs(60), |_, _| given);
            assert_eq!(run, Ok((expected, None)));
        }
    }

    #[test]
    fn values_are_copied_by_their_type_and_up_to_their_limits() {
        let bytes = vec![7_u8; MAX_VALUE_BYTES + 1];
        let object = |size| {
            let bytes = bytes.as_ptr().cast();
            value(abi::TYPE_BYTE_OBJECT, |data| data.bytes = ByteObject { bytes, size })
        };
        let cases = [
            (object(3), Datum::Bytes(vec![7; 3])),
            (object(0), Datum::Bytes(vec![])),
            (object(bytes.len()), Datum::Other(abi::TYPE_BYTE_OBJECT)),
            (value(abi::TYPE_UINT32, |data| data.uint32 = 9), Datum::Number(9)),
            (value(99, |_| {}), Datum::Other(99)),
        ];
        for (value, expected) in cases {
            // SAFETY: what it names is alive here.
            assert_eq!(unsafe { read_value(&value) }, expected);
        }
    }
}
