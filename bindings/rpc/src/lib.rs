//! `libmapwire_rpc`: remote procedure calls by mapwire for C programs that `rpcgen` has made, beside libtirpc.
//!
//! It redefines some functions of libtirpc, and precedes it in the order of linking: those that make clients and register servers.
//! Requests for other networks than `mapwire` go on to libtirpc. Handles of mapwire have their own tables of functions, so stubs and
//! dispatch functions stay as they are: libtirpc polls this library's descriptor, dispatches its calls, and encodes and decodes values,
//! straight to and from the memory that the peer lends.
//!
//! | file | what |
//! |---|---|
//! | `create`, `once` | the functions that make clients; calls without a handle |
//! | `client`, `session` | `CLIENT` handles; a process's membership in a server's job |
//! | `register` | the functions that make and register servers |
//! | `simple` | servers made by `rpc_reg()` |
//! | `transport`, `serving`, `guests` | the `SVCXPRT`; a process's offers; the jobs of its guests |
//! | `abi`, `tirpc`, `xdr` | the structures of libtirpc, its functions, its XDR over memory |
//! | `rpcbind`, `names` | how clients find servers |
//!
//! The manual page, `man/mapwire_rpc.3`, describes what programs see.

#![deny(unsafe_code)]

/// Functions that C programs call, by names and arguments of libtirpc.
macro_rules! c_functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? { $($body:tt)* })*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As in C.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's arguments, as in C.
            unsafe { $($body)* }
        }
    )*};
}

mod abi;
#[allow(unsafe_code)]
mod client;
#[allow(unsafe_code)]
pub mod create;
mod failure;
#[allow(unsafe_code)]
mod forks;
mod guests;
mod log;
mod names;
#[allow(unsafe_code)]
pub mod once;
#[allow(unsafe_code)]
pub mod register;
#[allow(unsafe_code)]
mod rpcbind;
mod serving;
mod session;
mod settings;
#[allow(unsafe_code)]
pub mod simple;
#[cfg(test)]
mod tests;
#[allow(unsafe_code)]
mod tirpc;
#[allow(unsafe_code)]
mod transport;
#[allow(unsafe_code)]
mod xdr;
