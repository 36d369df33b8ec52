//! A server process's offers, and its incoming calls.
//!
//! Nothing here runs before somebody knocks: a server may register its programs and become a daemon by `fork` after that. The descriptor
//! that libtirpc polls for this network is an epoll of the doors at first, and of the jobs' events once the reception has begun.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mapwire::meeting::{Door, DoorName, FarReception, MeetingError, NamedStore, Reception, ReceptionLimits};
use mapwire::rpc::Request;
use mapwire::{NodeConfig, WaitStrategy};
use mapwire_host::log_limit::LogLimit;
use mapwire_host::processes::Owner;
use rustix::event::epoll;
use rustix::io::Errno;

use crate::forks::{close_inherited, owner};
use crate::guests::{Guests, Job, Ring};
use crate::names::Served;
use crate::settings;

/// How long a thread polls for the next call after answering one, while it may poll.
const LOOKING: Duration = Duration::from_micros(50);
/// The same if it should sleep soon: longer than a client takes that had to be woken for its reply; otherwise both would send each other
/// to sleep from then on. How much of it is spun is decided as in all waits.
const LOOKING_BEFORE_SLEEP: Duration = Duration::from_micros(150);
/// Calls served before other networks get their turn.
const BURST: u32 = 64;

/// Message if no reception can begin, for lack of descriptors or because of an invalid setting.
const UNSERVED: &str = "clients of mapwire are not served";
/// Time until the next attempt.
const UNSERVED_PAUSE: Duration = Duration::from_millis(10);

/// Numbers of events that belong to no job.
const RING: u64 = u64::MAX;
const DOOR: u64 = u64::MAX - 1;

/// The offers of a process.
pub(crate) struct Serving {
    watch: OwnedFd,
    ring: Arc<Ring>,
    doors: BTreeMap<DoorName, Arc<Door>>,
    served: Vec<Served>,
    open: Option<Open>,
    /// Process that owns the reception and the ring.
    owner: Owner,
    /// A call found before it was requested.
    next: Option<Request>,
    /// The calls in hand, the innermost last: a procedure may serve others before it replies. `None`: a request found none.
    in_hand: Vec<Option<Request>>,
    in_burst: u32,
    /// Limits log lines that clients cause.
    sparing: LogLimit<&'static str>,
}

/// State that exists once somebody has knocked.
struct Open {
    reception: Reception,
    /// Reception for clients of other hosts, if there is a store of names.
    far: Option<FarReception>,
    guests: Arc<Guests>,
    jobs: Vec<Arc<Job>>,
    /// Number of changes of the guests' jobs seen so far.
    seen: u64,
    wait: WaitStrategy,
    /// The job that is polled first.
    turn: usize,
}

fn new_epoll() -> Result<OwnedFd, Errno> {
    epoll::create(epoll::CreateFlags::CLOEXEC)
}

fn add(watch: &OwnedFd, fd: BorrowedFd<'_>, number: u64) -> Result<(), Errno> {
    let data = epoll::EventData::new_u64(number);
    epoll::add(watch, fd, data, epoll::EventFlags::IN)
}

impl Serving {
    pub(crate) fn new() -> Result<Self, Errno> {
        let watch = new_epoll()?;
        let ring = Arc::new(Ring::new()?);
        add(&watch, ring.as_fd(), RING)?;
        Ok(Self {
            watch,
            ring,
            doors: BTreeMap::new(),
            served: Vec::new(),
            open: None,
            owner: owner(),
            next: None,
            in_hand: Vec::new(),
            in_burst: 0,
            sparing: LogLimit::default(),
        })
    }

    /// The descriptor, readable while there may be calls.
    pub(crate) fn descriptor(&self) -> i32 {
        self.watch.as_raw_fd()
    }

    /// Offers a version of a program. Returns the socket at which clients knock.
    pub(crate) fn offer(&mut self, served: Served) -> Result<String, MeetingError> {
        let name = served.door().ok_or(MeetingError::Name(String::new()))?;
        if let Some(door) = self.doors.get(&name) {
            return Ok(door.socket());
        }
        let socket = self.open_door(name)?;
        // Another process may serve other versions, and have this one.
        if let Some(name) = served.door_of_program()
            && !self.doors.contains_key(&name)
        {
            let _ = self.open_door(name);
        }
        self.served.push(served);
        match &self.open {
            Some(open) => {
                open.guests.serve(served);
                open.set_far_names(&self.doors);
            }
            // Nobody knocks from another host: the serving thread is woken to begin.
            None if has_store() => self.ring.ring(),
            None => {}
        }
        Ok(socket)
    }

    fn open_door(&mut self, name: DoorName) -> Result<String, MeetingError> {
        let door = Arc::new(Door::open(name.clone())?);
        match &self.open {
            Some(open) => open.reception.add(Arc::clone(&door)),
            None => {
                let added = add(&self.watch, door.as_fd(), DOOR);
                added.map_err(|errno| MeetingError::Os { call: "epoll_ctl", errno })?;
            }
        }
        let socket = door.socket();
        self.doors.insert(name, door);
        Ok(socket)
    }

    pub(crate) fn offers(&self, served: Served) -> bool {
        self.served.contains(&served)
    }

    pub(crate) fn withdraw(&mut self, served: Served) {
        self.served.retain(|one| *one != served);
        let has_others = (self.served.iter()).any(|one| one.program == served.program);
        let mut names = vec![served.door()];
        if !has_others {
            names.push(served.door_of_program());
        }
        for name in names.into_iter().flatten() {
            if let Some(open) = &self.open {
                open.reception.remove(&name);
            }
            // Closing removes it from the epoll, unless a forked child has it too.
            if let Some(door) = self.doors.remove(&name) {
                let _ = epoll::delete(&self.watch, door.as_fd());
            }
        }
        if let Some(open) = &self.open {
            open.guests.end(served);
            open.set_far_names(&self.doors);
        }
    }

    /// Begins the reception, if it has not begun.
    fn begin(&mut self) -> Result<(), String> {
        if self.open.is_some() {
            return Ok(());
        }
        let config = settings::node_config()?;
        let wait = config.driver.wait;
        let watch = self.watch.try_clone().map_err(|error| error.to_string())?;
        let guests = Arc::new(Guests::new(self.served.clone(), watch, Arc::clone(&self.ring)));
        let limits = ReceptionLimits::default();
        let far = begin_far(&config, &guests);
        let greet = Arc::clone(&guests);
        let reception = Reception::start(config, greet, limits).map_err(|error| error.to_string())?;
        for door in self.doors.values() {
            let _ = epoll::delete(&self.watch, door.as_fd());
            reception.add(Arc::clone(door));
        }
        let open = self.open.insert(Open { reception, far, guests, jobs: Vec::new(), seen: 0, wait, turn: 0 });
        open.set_far_names(&self.doors);
        Ok(())
    }

    /// Call it in a forked child before anything else: the reception, its jobs and their calls belong to the parent. Both own the doors
    /// until the reception has begun, as a daemon forks before that. Then they are the parent's too: a child that outlived it would keep
    /// them open, with nobody behind them.
    pub(crate) fn leave_to_parent(&mut self) -> Result<(), Errno> {
        if self.owner.is_me() {
            return Ok(());
        }
        if let Some(open) = self.open.take() {
            let doors = core::mem::take(&mut self.doors);
            doors.values().for_each(|door| close_inherited(door.as_fd()));
            core::mem::forget((open, doors));
            self.served.clear();
        }
        core::mem::forget((self.next.take(), core::mem::take(&mut self.in_hand)));
        let watch = new_epoll()?;
        let ring = Arc::new(Ring::new()?);
        add(&watch, ring.as_fd(), RING)?;
        for door in self.doors.values() {
            add(&watch, door.as_fd(), DOOR)?;
        }
        // libtirpc polls the number that it knows.
        rustix::io::dup3(&watch, &mut self.watch, rustix::io::DupFlags::CLOEXEC)?;
        self.ring = ring;
        self.owner = owner();
        Ok(())
    }

    /// The next call, if there is one. The result, call or none, is in hand until [`has_next`](Self::has_next).
    pub(crate) fn take(&mut self) -> Option<&Request> {
        let next = self.find();
        self.in_hand.push(next);
        self.in_hand()
    }

    fn find(&mut self) -> Option<Request> {
        // Whatever it was rung for is polled now.
        self.ring.clear();
        if let Err(why) = self.begin() {
            // Clients that knock are still at the door, and bring this thread here at once.
            let now = Instant::now();
            if self.sparing.admit(UNSERVED, now) {
                crate::log::warn(&format!("{UNSERVED}: {why}"));
            }
            if let Some(left_out) = self.sparing.poll(now) {
                crate::log::warn(&left_out.to_string());
            }
            std::thread::sleep(UNSERVED_PAUSE);
            return None;
        }
        let next = self.next.take();
        next.or_else(|| self.open.as_mut()?.look(Duration::ZERO))
    }

    /// The innermost call in hand.
    pub(crate) fn in_hand(&self) -> Option<&Request> {
        self.in_hand.last()?.as_ref()
    }

    /// The slot of the innermost call in hand.
    pub(crate) fn in_hand_mut(&mut self) -> Option<&mut Option<Request>> {
        self.in_hand.last_mut()
    }

    /// Ends the innermost call in hand, and polls for the next; returns whether there is one. If not, the descriptor becomes readable when
    /// one arrives.
    pub(crate) fn has_next(&mut self) -> bool {
        let has_served = self.in_hand.pop().flatten().is_some();
        let Some(open) = self.open.as_mut() else {
            return false;
        };
        let looking = match open.wait {
            WaitStrategy::Poll => LOOKING,
            WaitStrategy::Event => Duration::ZERO,
            _ if has_served => LOOKING_BEFORE_SLEEP,
            _ => Duration::ZERO,
        };
        self.next = self.next.take().or_else(|| open.look(looking));
        if self.next.is_none() {
            self.next = open.arm();
        }
        let is_polling = open.wait == WaitStrategy::Poll && !open.jobs.is_empty();
        let is_over = self.in_burst >= BURST;
        match &self.next {
            Some(_) if !is_over => {
                self.in_burst += 1;
                return true;
            }
            Some(_) => self.ring.ring(),
            // Other networks are polled, and then this one again.
            None if is_polling => self.ring.ring(),
            None => {}
        }
        self.in_burst = 0;
        false
    }
}

fn has_store() -> bool {
    std::env::var_os("MAPWIRE_NAMES").is_some_and(|value| !value.is_empty())
}

/// The reception of clients of other hosts. Clients of this host are served even without it.
fn begin_far(config: &NodeConfig, guests: &Arc<Guests>) -> Option<FarReception> {
    let begun = NamedStore::from_env().and_then(|store| {
        store.map(|store| FarReception::start(store, config.clone(), Arc::clone(guests) as _)).transpose()
    });
    begun.unwrap_or_else(|error| {
        crate::log::warn(&format!("clients of other hosts are not served: {error}"));
        None
    })
}

impl Open {
    fn set_far_names(&self, doors: &BTreeMap<DoorName, Arc<Door>>) {
        if let Some(far) = &self.far {
            far.set_names(doors.keys().cloned().collect());
        }
    }

    fn refresh(&mut self) {
        let changes = self.guests.changes();
        if changes != self.seen {
            self.seen = changes;
            self.jobs = self.guests.jobs();
        }
    }

    /// Polls for a call, for at most `time`. Jobs take turns, and in them their guests.
    fn look(&mut self, time: Duration) -> Option<Request> {
        self.refresh();
        if let [job] = &self.jobs[..] {
            return job.server.next(Some(time)).ok().flatten();
        }
        let begun = Instant::now();
        loop {
            for _ in 0..self.jobs.len() {
                self.turn = (self.turn + 1) % self.jobs.len();
                let job = &self.jobs[self.turn];
                if let Ok(Some(request)) = job.server.poll() {
                    return Some(request);
                }
            }
            if self.jobs.is_empty() || begun.elapsed() >= time {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Makes the descriptor readable when a call arrives. Returns a call that has arrived before that.
    fn arm(&mut self) -> Option<Request> {
        for job in &self.jobs {
            // It fails when the job is over, which its reception handles.
            let _ = job.events.arm();
        }
        self.look(Duration::ZERO)
    }
}
