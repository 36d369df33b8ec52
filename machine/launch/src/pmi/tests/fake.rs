//! A server of PMI-1 and PMI-2 for some ranks, in threads of the test.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    /// PMI-1 only; an offer of 2 is refused.
    Refusing1,
    /// PMI-1 only; an offer of 2 is answered by 1.
    Naming1,
    Only2,
}

struct Shared {
    values: Mutex<HashMap<String, String>>,
    all_here: Barrier,
    speaks: Speaks,
    size: u32,
    /// Longest value and line that the server takes.
    longest: usize,
}

pub(super) fn serve(speaks: Speaks, size: u32) -> Vec<OwnedFd> {
    let shared = Arc::new(Shared {
        values: Mutex::new(HashMap::new()),
        all_here: Barrier::new(size as usize),
        speaks,
        size,
        longest: 1024,
    });
    let start = |rank| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            shared.serve_rank(rank, ours);
        });
        theirs.into()
    };
    (0..size).map(start).collect()
}

impl Shared {
    fn serve_rank(&self, rank: u32, mut socket: UnixStream) -> Option<()> {
        let one = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n";
        let offer = read_line(&mut socket)?;
        match (self.speaks, offer.contains("pmi_version=2")) {
            (Speaks::Only2, true) => {
                let two = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";
                socket.write_all(two.as_bytes()).ok()?;
                while self.answer_2(rank, &mut socket).is_some() {}
                return None;
            }
            (Speaks::Refusing1, true) => {
                let refusal = "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n";
                socket.write_all(refusal.as_bytes()).ok()?;
                assert!(read_line(&mut socket)?.contains("pmi_version=1"));
            }
            _ => {}
        }
        socket.write_all(one.as_bytes()).ok()?;
        while self.answer_1(&mut socket).is_some() {}
        None
    }

    fn answer_1(&self, socket: &mut UnixStream) -> Option<()> {
        let line = read_line(socket)?;
        assert!(line.len() < self.longest, "{} bytes", line.len());
        let fields = fields(line.split(' '));
        let answer = match fields.get("cmd")?.as_str() {
            "get_maxes" => "maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
            "get_my_kvsname" => "my_kvsname rc=0 kvsname=kvs_1".into(),
            "put" => format!("put_result rc={} msg=x", i32::from(!self.put(&fields))),
            "get" => match self.values.lock().unwrap().get(&fields["key"]) {
                Some(value) => format!("get_result rc=0 msg=success value={value}"),
                None => "get_result rc=-1 msg=key_not_found value=unknown".into(),
            },
            "barrier_in" => {
                self.all_here.wait();
                "barrier_out rc=0".into()
            }
            "finalize" => "finalize_ack rc=0".into(),
            _ => return None,
        };
        socket.write_all(format!("cmd={answer}\n").as_bytes()).ok()
    }

    fn answer_2(&self, rank: u32, socket: &mut UnixStream) -> Option<()> {
        let mut length = [0; 6];
        socket.read_exact(&mut length).ok()?;
        let length = std::str::from_utf8(&length).unwrap().trim().parse();
        let mut text = vec![0; length.unwrap()];
        socket.read_exact(&mut text).ok()?;
        let text = String::from_utf8(text).unwrap();
        let fields = fields(text.strip_suffix(';').unwrap().split(';'));
        let command = fields["cmd"].as_str();
        let more = match command {
            "fullinit" => {
                assert_eq!(fields["pmirank"], rank.to_string());
                format!("rc=0;rank={rank};size={};appnum=0;", self.size)
            }
            "job-getid" => "jobid=job_1;rc=0;".into(),
            "kvs-put" => format!("rc={};", i32::from(!self.put(&fields))),
            "kvs-get" => match self.values.lock().unwrap().get(&fields["key"]) {
                Some(value) => format!("found=TRUE;value={value};rc=0;"),
                None => "found=FALSE;rc=0;".into(),
            },
            "kvs-fence" => {
                self.all_here.wait();
                "rc=0;".into()
            }
            "finalize" => "rc=0;".into(),
            _ => return None,
        };
        let answer = format!("cmd={command}-response;{more}");
        let answer = format!("{:6}{answer}", answer.len());
        // In two parts: a reader must put them together.
        let (first, second) = answer.as_bytes().split_at(9);
        socket.write_all(first).ok()?;
        socket.write_all(second).ok()
    }

    /// False if the key is there, or key or value is too long.
    fn put(&self, fields: &HashMap<String, String>) -> bool {
        let (key, value) = (fields["key"].clone(), fields["value"].clone());
        let fits = key.len() < 64 && value.len() < self.longest;
        let mut values = self.values.lock().unwrap();
        fits && !values.contains_key(&key) && values.insert(key, value).is_none()
    }
}

fn fields<'a>(parts: impl Iterator<Item = &'a str>) -> HashMap<String, String> {
    let pairs = parts.filter_map(|part| part.split_once('='));
    pairs.map(|(name, value)| (name.into(), value.into())).collect()
}

fn read_line(socket: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        socket.read_exact(&mut byte).ok()?;
        match byte {
            [b'\n'] => return String::from_utf8(line).ok(),
            [byte] => line.push(byte),
        }
    }
}
