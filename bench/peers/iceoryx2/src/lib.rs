//! iceoryx2: publish and subscribe of slices. The sender writes its bytes into a loaned sample, the receiver reads them in place.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;
use iceoryx2::sample::Sample;

#[repr(C)]
pub struct Host {
    rank: c_int,
    _room: usize,
    most_bytes: usize,
    place: *const c_char,
    exchange: extern "C" fn(*const c_void, usize, *mut c_void),
}

/// Samples that a stream of the smallest messages has under way.
const SAMPLES: usize = 64;

struct Ports {
    publisher: Publisher<ipc::Service, [u8], ()>,
    subscriber: Subscriber<ipc::Service, [u8], ()>,
    /// The message that was taken last.
    held: Option<Sample<ipc::Service, [u8], ()>>,
    _node: Node<ipc::Service>,
}

thread_local! {
    static PORTS: RefCell<Option<Ports>> = const { RefCell::new(None) };
}

fn open(host: &Host) -> Result<Ports, Box<dyn core::error::Error>> {
    set_log_level(LogLevel::Error);
    // SAFETY: a string that `peer.h` promises.
    let place = unsafe { CStr::from_ptr(host.place) }.to_string_lossy();
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = |to: c_int| {
        let name = format!("{place}/{to}");
        Ok::<_, Box<dyn core::error::Error>>(
            node.service_builder(&name.as_str().try_into()?)
                .publish_subscribe::<[u8]>()
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(SAMPLES)
                .max_publishers(1)
                .max_subscribers(1)
                .open_or_create()?,
        )
    };
    let publisher = service(1 - host.rank)?.publisher_builder().initial_max_slice_len(host.most_bytes).create()?;
    let subscriber = service(host.rank)?.subscriber_builder().create()?;
    // Both must be there before the first message.
    let mut theirs = vec![0_u8; 16_384];
    (host.exchange)([0_u8; 8].as_ptr().cast(), 8, theirs.as_mut_ptr().cast());
    publisher.update_connections()?;
    Ok(Ports { publisher, subscriber, held: None, _node: node })
}

fn with<T>(run: impl FnOnce(&mut Ports) -> Result<T, Box<dyn core::error::Error>>) -> Option<T> {
    PORTS.with_borrow_mut(|ports| match run(ports.as_mut()?) {
        Ok(value) => Some(value),
        Err(error) => {
            eprintln!("iceoryx2: {error}");
            None
        }
    })
}

/// # Safety
/// As `peer.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_open(host: *const Host) -> c_int {
    // SAFETY: the caller's promise.
    match open(unsafe { &*host }) {
        Ok(ports) => {
            PORTS.set(Some(ports));
            0
        }
        Err(error) => {
            eprintln!("iceoryx2: {error}");
            1
        }
    }
}

struct Names([*const c_char; 2]);
// SAFETY: they point to constants.
unsafe impl Sync for Names {}

#[unsafe(no_mangle)]
pub extern "C" fn peer_ways() -> *const *const c_char {
    static NAMES: Names = Names([c"iceoryx2, bytes written by the sender".as_ptr(), std::ptr::null()]);
    NAMES.0.as_ptr()
}

/// # Safety
/// As `peer.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn peer_put(_way: c_uint, data: *const c_void, bytes: usize, _at: usize, _number: u64) -> c_int {
    // SAFETY: the caller's promise.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
    let sent = with(|ports| {
        let sample = ports.publisher.loan_slice_uninit(bytes)?;
        sample.write_from_slice(data).send()?;
        Ok(())
    });
    c_int::from(sent.is_none())
}

#[unsafe(no_mangle)]
pub extern "C" fn peer_take(_way: c_uint, bytes: usize, _at: usize, _number: u64) -> *const c_void {
    let taken = with(|ports| {
        ports.held = None;
        let sample = loop {
            if let Some(sample) = ports.subscriber.receive()? {
                break sample;
            }
        };
        if sample.payload().len() != bytes {
            return Err("a message of another length".into());
        }
        let start = sample.payload().as_ptr();
        ports.held = Some(sample);
        Ok(start.cast())
    });
    taken.unwrap_or(std::ptr::null())
}

#[unsafe(no_mangle)]
pub extern "C" fn peer_progress() {}

#[unsafe(no_mangle)]
pub extern "C" fn peer_close() {
    PORTS.set(None);
}
