//! The endpoint by which a rank reaches those of other hosts.

use mapwire_host::descriptors::occupy_stdio;
use mapwire_wire::NodeId;

use super::{Ofi, OfiConfig, OfiError, core_of, remove_leftovers, usual_provider};
use crate::net::{CardError, NetConfig, card_of_endpoint, endpoint_of_card};
use crate::rendezvous::Card;

/// Providers whose endpoints have addresses of the Internet protocol, by which an interface is chosen.
const BY_ADDRESS: [&str; 5] = ["tcp", "net", "udp", "sockets", "verbs"];

impl Ofi {
    /// Opens the endpoint of rank `me`. `provider`: a name, or a part of one; `None`: the best that there is. Of the addresses of `net` the
    /// first that the provider has is used, if it has such; without any, loopback for tcp and udp, and the choice of the provider for
    /// others.
    ///
    /// # Errors
    /// [`OfiError`].
    pub(crate) fn open_for_rank(provider: Option<&str>, net: &NetConfig, me: NodeId) -> Result<Self, OfiError> {
        // The library takes whatever number a descriptor gets.
        occupy_stdio();
        let provider = match provider {
            Some(provider) => provider.to_owned(),
            None => usual_provider()?,
        };
        let mut config = OfiConfig {
            node: me,
            wants_fd: !net.spins,
            // A transfer's memory is the program's, and cannot be given back before the library does.
            patience: None,
            ..OfiConfig::new(&provider)
        };
        // Of an earlier process of this number: this one has no endpoint yet.
        remove_leftovers(std::process::id());
        if !BY_ADDRESS.contains(&core_of(&provider)) || net.addresses.is_empty() {
            return Self::open_with(&config);
        }
        let mut opened = Err(OfiError::BadName("no address"));
        for address in &net.addresses {
            config.source = Some(address.to_string());
            opened = Self::open_with(&config);
            if !matches!(opened, Err(OfiError::NoProvider { .. })) {
                break;
            }
        }
        opened
    }

    /// What other ranks need to know of this endpoint.
    pub(crate) fn card(&self) -> Card {
        card_of_endpoint(self.name())
    }

    /// Connects to a peer by its card.
    ///
    /// # Errors
    /// This endpoint cannot use the card.
    pub(crate) fn introduce(&mut self, peer: NodeId, card: &Card) -> Result<(), CardError> {
        self.connect(peer, endpoint_of_card(card)?).map_err(|error| match error {
            OfiError::BadName(why) => CardError::Endpoint(why),
            _ => CardError::Endpoint("there is no memory for its packets"),
        })
    }
}
