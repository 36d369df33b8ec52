//! Connections, and what the host of a node has to do about them.

use crate::envelope::Offer;

/// A connection, as a host sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// What this node has told of itself.
    pub mine: Option<Offer>,
    /// What the peer has told.
    pub theirs: Option<Offer>,
    /// Records may pass.
    pub is_open: bool,
    /// The peer is gone, and has not said hello since.
    pub is_gone: bool,
}

/// What the host of a node has to do about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing for now.
    Nothing,
    /// The peer has begun the connection: lend it memory, if there is any, and [connect](crate::Rpc::connect).
    Connect,
    /// Import what the peer lends.
    Import(Offer),
}

/// Memory that the host of a node has lent a peer in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loan {
    pub session: u64,
    /// It is known what the peer lends in turn.
    pub is_ready: bool,
}

/// How a connection stands for who wants to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer is gone.
    Gone,
    /// There is none: lend the peer memory, and [connect](crate::Rpc::connect).
    Absent,
    /// It is being made: wait, and now and then say [hello](crate::Rpc::hello) again. A peer that has not opened its end hears nothing.
    Begun,
    /// Calls may pass in this session.
    Ready(u64),
}

impl Connection {
    /// How it stands, with what is lent to the peer.
    #[must_use]
    pub fn standing(&self, loan: Option<Loan>) -> Standing {
        match (self.mine, loan) {
            _ if self.is_gone => Standing::Gone,
            (None, _) => Standing::Absent,
            (Some(mine), Some(Loan { session, is_ready: true })) if self.is_open && mine.session == session => {
                Standing::Ready(session)
            }
            _ => Standing::Begun,
        }
    }

    /// Whether memory that was lent in a session still serves.
    #[must_use]
    pub fn is_of(&self, session: u64) -> bool {
        self.mine.is_some_and(|mine| mine.session == session)
    }

    /// What is due. `is_ready` says whether it is known what the peer lends; `None`: nothing is lent to the peer in this session.
    #[must_use]
    pub fn due(&self, is_ready: Option<bool>) -> Due {
        match (is_ready, self.theirs) {
            _ if self.is_gone => Due::Nothing,
            (None, Some(_)) if self.mine.is_none() => Due::Connect,
            (Some(false), Some(theirs)) if self.is_open => Due::Import(theirs),
            _ => Due::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_says_hello_is_lent_memory_and_what_it_lends_is_imported_once_the_connection_is_open() {
        let offer = |session| Offer { session, area_bytes: 1, max_record_bytes: 1, window: 1 };
        let none = Connection::default();
        assert_eq!(none.due(None), Due::Nothing);
        let greeted = Connection { theirs: Some(offer(7)), ..none };
        assert_eq!(greeted.due(None), Due::Connect);
        assert_eq!(Connection { is_gone: true, ..greeted }.due(None), Due::Nothing);
        let asked = Connection { mine: Some(offer(3)), ..none };
        assert!(asked.is_of(3) && !asked.is_of(4) && !greeted.is_of(7));
        assert_eq!(asked.due(Some(false)), Due::Nothing);
        let open = Connection { theirs: Some(offer(7)), is_open: true, ..asked };
        assert_eq!(open.due(Some(false)), Due::Import(offer(7)));
        assert_eq!((open.due(Some(true)), open.due(None)), (Due::Nothing, Due::Nothing));
        let loan = |session, is_ready| Some(Loan { session, is_ready });
        assert_eq!((none.standing(None), greeted.standing(None)), (Standing::Absent, Standing::Absent));
        assert_eq!((asked.standing(loan(3, true)), open.standing(loan(3, false))), (Standing::Begun, Standing::Begun));
        assert_eq!((open.standing(loan(2, true)), open.standing(None)), (Standing::Begun, Standing::Begun));
        assert_eq!(open.standing(loan(3, true)), Standing::Ready(3));
        assert_eq!(Connection { is_gone: true, ..open }.standing(loan(3, true)), Standing::Gone);
    }
}
