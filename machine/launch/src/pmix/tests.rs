use std::mem::{offset_of, size_of};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::abi::{self, ByteObject, Info, Proc, Value};

/// The folder of pmix.h, if it is there.
fn headers() -> Option<PathBuf> {
    let found = Command::new("pkg-config").args(["--variable=includedir", "pmix"]).output();
    let found = found.ok().map(|found| String::from_utf8_lossy(&found.stdout).trim().into());
    let folders = [found.unwrap_or_default(), "/usr/include".into(), "/usr/lib/x86_64-linux-gnu/pmix2/include".into()];
    folders.into_iter().find(|folder: &PathBuf| folder.join("pmix.h").exists())
}

#[test]
fn sizes_offsets_and_numbers_are_those_of_the_header() {
    let Some(headers) = headers() else {
        mapwire_testing::skip!("pmix.h is not here (Debian: libpmix-dev)");
        return;
    };
    let mut expected: Vec<(String, i64)> = Vec::new();
    let mut number = |text: &str, value: i64| expected.push((text.into(), value));
    number("sizeof(pmix_proc_t)", size_of::<Proc>() as i64);
    number("offsetof(pmix_proc_t, rank)", offset_of!(Proc, rank) as i64);
    number("sizeof(pmix_byte_object_t)", size_of::<ByteObject>() as i64);
    number("offsetof(pmix_byte_object_t, size)", offset_of!(ByteObject, size) as i64);
    number("sizeof(pmix_value_t)", size_of::<Value>() as i64);
    number("offsetof(pmix_value_t, data)", offset_of!(Value, data) as i64);
    number("sizeof(pmix_info_t)", size_of::<Info>() as i64);
    number("offsetof(pmix_info_t, flags)", offset_of!(Info, flags) as i64);
    number("offsetof(pmix_info_t, value)", offset_of!(Info, value) as i64);
    number("sizeof(pmix_scope_t)", 1);
    number("PMIX_GLOBAL", abi::SCOPE_GLOBAL.into());
    number("PMIX_RANK_WILDCARD", abi::RANK_WILDCARD.into());
    number("PMIX_BOOL", abi::TYPE_BOOL.into());
    number("PMIX_INT", abi::TYPE_INT.into());
    number("PMIX_UINT32", abi::TYPE_UINT32.into());
    number("PMIX_PROC", abi::TYPE_PROC.into());
    number("PMIX_BYTE_OBJECT", abi::TYPE_BYTE_OBJECT.into());
    number("PMIX_SUCCESS", abi::SUCCESS.into());
    number("PMIX_ERR_TIMEOUT", abi::ERR_TIMEOUT.into());
    number("PMIX_ERR_NOT_FOUND", abi::ERR_NOT_FOUND.into());
    number("PMIX_OPERATION_SUCCEEDED", abi::OPERATION_SUCCEEDED.into());
    number("PMIX_EVENT_NO_ACTION_TAKEN", abi::EVENT_NO_ACTION_TAKEN.into());
    let ranks = [
        "PMIX_ERR_PROC_ABORTED",
        "PMIX_ERR_PROC_REQUESTED_ABORT",
        "PMIX_ERR_PROC_TERM_WO_SYNC",
        "PMIX_ERR_PROC_KILLED_BY_CMD",
        "PMIX_ERR_PROC_FAILED_TO_START",
        "PMIX_ERR_PROC_ABORTED_BY_SIG",
        "PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED",
        "PMIX_ERR_EXIT_NONZERO_TERM",
    ];
    let jobs = [
        "PMIX_ERR_UNREACH",
        "PMIX_ERR_LOST_CONNECTION",
        "PMIX_ERR_JOB_CANCELED",
        "PMIX_ERR_JOB_ABORTED",
        "PMIX_ERR_JOB_KILLED_BY_CMD",
        "PMIX_ERR_JOB_ABORTED_BY_SIG",
        "PMIX_ERR_JOB_NON_ZERO_TERM",
        "PMIX_ERR_JOB_ABORTED_BY_SYS_EVENT",
    ];
    for (names, values) in [(ranks, abi::RANK_FAILURES), (jobs, abi::JOB_FAILURES)] {
        for (name, value) in names.iter().zip(values) {
            number(name, value.into());
        }
    }

    let checks: String = expected
        .iter()
        .map(|(text, value)| format!("_Static_assert((long long)({text}) == {value}LL, \"{text} is not {value}\");\n"))
        .collect();
    let program = format!("#include <stddef.h>\n#include <pmix.h>\n#include <pmix_deprecated.h>\n{checks}");
    let compiler = Command::new("cc")
        .args(["-fsyntax-only", "-w", "-x", "c", "-", "-I"])
        .arg(headers)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut compiler) = compiler else {
        mapwire_testing::skip!("there is no C compiler");
        return;
    };
    let mut input = compiler.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, program.as_bytes()).unwrap();
    drop(input);
    let output = compiler.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
