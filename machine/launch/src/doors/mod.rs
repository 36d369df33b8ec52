//! Doors: how clients that come and go find a server on their host without a launcher.
//!
//! A server opens a [`Door`] for each name that it serves. A client [knocks](knock), and is given the address of a job in which the server
//! is rank 0, and a rank of its own. Both then join that job as ranks of any other do. The server's [`Reception`] is a thread that answers
//! knocks and is the broker of its jobs. Ranks are used once: when those of a job are used up, the next client opens the next job, and the
//! old one ends with its last client. Clients of different users are in different jobs, so that none sees the memory or the cards of
//! another user's. The broker is in the server and so cannot report that the server was killed: clients' service threads look for that.
//!
//! # Threat model
//!
//! A door is an abstract Unix socket, whose name holds the user id of its server: nothing is left on disk, and it goes with the process.
//!
//! | who | tries to | what stops it |
//! |---|---|---|
//! | another user | stand at the door of a server | the client asks the kernel who listens (`SO_PEERCRED`): it must be the user in the door's name. A client tries the doors of its own user and of root, and others only if it is told to |
//! | another user | take the name of a door before its server does | nothing: the server then says who has it. Clients are not misled, see above |
//! | a client | claim to be another user or process | user, group and process are the kernel's word, taken at the knock, before the client says anything |
//! | a client | join in place of another | the broker admits to a rank the process that knocked for it, and its descendants, once |
//! | a client | hold the reception up | no read or write waits, a silent knock ends after 2 s, and of too many the oldest of the user who has most goes first; another user has 64 at most |
//! | a client | take ranks and join by none of them | a process has at most 256 such ranks, each for 10 s |
//! | another user | use up memory, threads or descriptors | guests are limited in number for each user, and jobs: half of them at most are of others, of which none takes more than it leaves; see [`ReceptionLimits`] |
//! | a client | fill the server's log | lines of one kind about one user are few in a time, see [`mapwire_host::log_limit`] |
//! | a client | send rubbish | it is closed; nothing else changes |

mod door;
mod error;
mod hosted;
mod knocking;
mod knocks;
mod reception;
mod record;

pub use door::{Door, DoorName};
pub use error::MeetingError;
pub use knocking::{Admission, knock};
pub use mapwire_transport::local::Credentials;
pub use reception::{Host, JobId, Reception, ReceptionLimits};
