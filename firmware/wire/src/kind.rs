//! Kinds of packets.

codes! {
    /// Kind of a packet.
    pub enum Kind: u8 {
        /// Data for an export.
        Store = 1 => "store",
        /// Asks for bytes of an export.
        FetchRequest = 2 => "fetch request",
        /// Bytes that were asked for.
        FetchReply = 3 => "fetch reply",
        /// Says why a fetch is not answered.
        FetchRefused = 4 => "fetch refused",
        /// Says why a store was not applied.
        StoreRefused = 5 => "store refused",
        /// For a row of the handler dispatch table.
        Handler = 6 => "handler",
        /// Uses up its sequence number, nothing else.
        Nothing = 7 => "nothing",
        /// Changes a word of an export, and asks for the old value.
        Atomic = 8 => "atomic",
    }
}
