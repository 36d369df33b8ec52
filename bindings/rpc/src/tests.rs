//! The structures of `abi` are those of `<rpc/rpc.h>`.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use crate::abi::{
    AcceptedReply, Auth, CallBody, Client, ClientOps, CreateError, NetBuf, NetConfig, OpaqueAuth, RejectedReply,
    ReplyBody, RpcError, RpcMessage, TimeVal, Transport, TransportExtension, TransportOps, TransportOps2, Xdr, XdrOps,
};

/// Values from the headers, printed by a program. `None` without a compiler or headers.
fn theirs() -> Option<BTreeMap<String, usize>> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("layout");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/layout.c");
    let compiled = Command::new("cc").args(["-I/usr/include/tirpc", "-o"]).arg(&program).arg(source).status();
    if !Path::new("/usr/include/tirpc/rpc/rpc.h").exists() || compiled.is_err() {
        return None;
    }
    assert!(compiled.unwrap().success(), "layout.c does not compile");
    let output = Command::new(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let pair = |line: &str| {
        let (name, number) = line.split_once(' ').unwrap();
        (name.to_owned(), number.parse().unwrap())
    };
    Some(text.lines().map(pair).collect())
}

macro_rules! size {
    ($all:ident, $($name:literal: $type:ty;)*) => {
        $($all.insert($name.to_owned(), size_of::<$type>());)*
    };
}

macro_rules! fields {
    ($all:ident, $($of:literal $type:ty { $($name:literal: $field:ident),* })*) => {
        $($($all.insert(
            format!("{}.{}", $of, $name),
            offset_of!($type, $field),
        );)*)*
    };
}

fn ours() -> BTreeMap<String, usize> {
    let mut all = BTreeMap::new();
    size! { all,
        "XDR": Xdr;
        "opaque_auth": OpaqueAuth;
        "timeval": TimeVal;
        "netbuf": NetBuf;
        "rpc_err": RpcError;
        "rpc_createerr": CreateError;
        "CLIENT": Client;
        "clnt_ops": ClientOps;
        "SVCXPRT": Transport;
        "SVCXPRT_EXT": TransportExtension;
        "xp_ops": TransportOps;
        "xp_ops2": TransportOps2;
        "rpc_msg": RpcMessage;
        "call_body": CallBody;
        "reply_body": ReplyBody;
        "accepted_reply": AcceptedReply;
        "rejected_reply": RejectedReply;
    }
    fields! { all,
        "XDR" Xdr { "x_op": op, "x_ops": ops, "x_handy": handy }
        "xdr_ops" XdrOps { "x_getpostn": position }
        "opaque_auth" OpaqueAuth { "oa_flavor": flavour, "oa_base": base, "oa_length": length }
        "AUTH" Auth { "ah_cred": credential, "ah_verf": verifier }
        "netbuf" NetBuf { "buf": bytes }
        "netconfig" NetConfig { "nc_netid": netid }
        "rpc_err" RpcError { "ru": words }
        "rpc_createerr" CreateError { "cf_error": error }
        "CLIENT" Client {
            "cl_auth": auth, "cl_ops": ops, "cl_private": private, "cl_netid": netid, "cl_tp": device
        }
        "clnt_ops" ClientOps {
            "cl_call": call, "cl_abort": abort, "cl_geterr": error, "cl_freeres": free_results,
            "cl_destroy": destroy, "cl_control": control
        }
        "SVCXPRT" Transport {
            "xp_fd": fd, "xp_port": port, "xp_ops": ops, "xp_addrlen": address_length,
            "xp_raddr": address, "xp_ops2": ops2, "xp_tp": device, "xp_netid": netid,
            "xp_ltaddr": local, "xp_rtaddr": remote, "xp_verf": verifier, "xp_p1": p1, "xp_p2": p2,
            "xp_p3": p3, "xp_type": kind
        }
        "xp_ops" TransportOps {
            "xp_recv": receive, "xp_stat": state, "xp_getargs": arguments, "xp_reply": reply,
            "xp_freeargs": free_arguments, "xp_destroy": destroy
        }
        "rpc_msg" RpcMessage { "rm_xid": xid, "rm_direction": direction, "ru": body }
        "call_body" CallBody {
            "cb_prog": program, "cb_vers": version, "cb_proc": procedure, "cb_cred": credential,
            "cb_verf": verifier
        }
        "reply_body" ReplyBody { "rp_stat": state, "ru": body }
        "accepted_reply" AcceptedReply { "ar_verf": verifier, "ar_stat": state, "ru": body }
        "rejected_reply" RejectedReply { "rj_stat": state, "ru": words }
    }
    all
}

#[test]
fn the_structures_are_those_of_the_headers_of_libtirpc() {
    let Some(theirs) = theirs() else {
        mapwire_testing::skip!("cc and libtirpc-dev are needed; scripts/setup.sh --tests installs them");
        return;
    };
    assert_eq!(ours(), theirs);
}
