//! What programs ask the global memory for.

use mapwire_gms::{Error, GetPage, Gms, PageName, PutPage};
use mapwire_wire::NodeId;

/// The version that all pages have.
const VERSION: u32 = 1;

/// What a program wants done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Getpage; the storing node gives its copy away.
    Take,
    /// Getpage; the storing node keeps its copy.
    Read,
    Put(NodeId),
    Discard,
}

/// A call about a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) name: PageName,
    pub(super) call: Call,
}

impl Ask {
    /// Makes the call. All pages lie in, and land in, the program's only frame.
    pub(super) fn make(self, gms: &mut Gms, now_ns: u64) -> Result<(), Error> {
        let Self { name, call } = self;
        let get = |keep| GetPage { name, frame: 0, tag: name.page, keep };
        match call {
            Call::Take => gms.get(now_ns, get(false)),
            Call::Read => gms.get(now_ns, get(true)),
            Call::Put(to) => {
                let put = PutPage {
                    name,
                    version: VERSION,
                    frame: 0,
                    tag: name.page,
                    checksum: 0,
                    age_ms: 0,
                    on_disk: false,
                    copies: 1,
                    to: Some(to),
                };
                gms.put(now_ns, put)
            }
            Call::Discard => gms.discard(now_ns, name, VERSION),
        }
    }
}
