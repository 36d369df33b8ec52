//! etcd, by the JSON gateway in front of its version 3 API: a request is an HTTP POST of a JSON object.
//!
//! The gateway needs an HTTP client but no runtime, and so do programs that link mapwire. Keys and values are in base64, numbers are
//! strings.

use std::io;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use ureq::Agent;

use crate::address::HostPort;
use crate::store::LEASE;
use crate::{LeaseId, NamesError, Store, StoreAddress};

/// Longest time of a call to one member.
const PATIENCE: Duration = Duration::from_secs(4);
/// Longest answer that is accepted, in bytes.
const MAX_ANSWER_BYTES: u64 = 64 << 20;
/// Entries requested at a time.
const PAGE: usize = 512;

#[derive(Debug)]
pub(crate) struct Etcd {
    address: StoreAddress,
    members: Vec<String>,
    /// Index of the member that answered last.
    current: usize,
    agent: Agent,
}

/// etcd's refusal of a request.
struct Refusal {
    status: u16,
    text: String,
}

impl Etcd {
    pub(crate) fn new(address: StoreAddress, members: &[HostPort]) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .build();
        Self {
            address,
            members: members.iter().map(|member| format!("http://{member}")).collect(),
            current: 0,
            agent: config.into(),
        }
    }

    fn protocol(&self, what: impl Into<String>) -> NamesError {
        NamesError::Protocol { address: self.address.to_string(), what: what.into() }
    }

    /// Asks the members in turn, beginning with the one that answered last.
    fn ask(&mut self, path: &str, body: &Value) -> Result<Result<Value, Refusal>, NamesError> {
        let body = body.to_string();
        let mut why = String::new();
        for _ in 0..self.members.len() {
            let mut outcome = self.ask_member(path, &body);
            // Retries after the process was stopped and continued.
            while matches!(&outcome, Err(ureq::Error::Io(error)) if error.kind() == io::ErrorKind::Interrupted) {
                outcome = self.ask_member(path, &body);
            }
            match outcome {
                Ok((200, answer)) => {
                    return match serde_json::from_slice(&answer) {
                        Ok(answer) => Ok(Ok(answer)),
                        Err(_) => Err(self.protocol("malformed JSON")),
                    };
                }
                // It has no leader, or is not ready: others may be.
                Ok((status @ (500 | 502 | 503 | 504), answer)) => why = text_of(status, &answer),
                Ok((status, answer)) => {
                    let text = text_of(status, &answer);
                    return Ok(Err(Refusal { status, text }));
                }
                Err(error) => why = error.to_string(),
            }
            self.current = (self.current + 1) % self.members.len();
        }
        let address = self.address.to_string();
        Err(NamesError::Unreachable { address, why })
    }

    fn ask_member(&self, path: &str, body: &str) -> Result<(u16, Vec<u8>), ureq::Error> {
        let url = format!("{}/v3/{path}", self.members[self.current]);
        let request = self.agent.post(&url).header("Content-Type", "application/json");
        let mut response = request.send(body)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(MAX_ANSWER_BYTES);
        match body.read_to_vec() {
            Ok(bytes) => Ok((status, bytes)),
            // The gateway ends refusals in a way that some clients cannot read; the status has the same information.
            Err(_) if status != 200 => Ok((status, Vec::new())),
            Err(error) => Err(error),
        }
    }

    /// Error for a refusal that the caller does not know.
    fn refused(&self, refusal: Refusal) -> NamesError {
        let address = self.address.to_string();
        let Refusal { status, text } = refusal;
        if text.contains("space exceeded") || text.contains("too many requests") {
            return NamesError::Full { address, what: text };
        }
        if text.contains("page not found") {
            return self.protocol(
                "it has no JSON gateway of version 3; etcd has one since 3.4, unless --enable-grpc-gateway=false",
            );
        }
        self.protocol(format!("status {status}: {text}"))
    }

    fn expect(&mut self, path: &str, body: &Value) -> Result<Value, NamesError> {
        self.ask(path, body)?.map_err(|refusal| self.refused(refusal))
    }

    /// A number; absent means 0.
    fn number(&self, value: &Value) -> Result<u64, NamesError> {
        let read = match value {
            Value::Null => Some(0),
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.as_u64(),
            _ => None,
        };
        read.ok_or_else(|| self.protocol("not a number"))
    }

    fn bytes(&self, value: &Value) -> Result<Vec<u8>, NamesError> {
        let text = value.as_str().unwrap_or_default();
        let decoded = BASE64_STANDARD.decode(text);
        decoded.map_err(|_| self.protocol("not base64"))
    }

    fn value_in(&self, range: &Value) -> Result<Option<Vec<u8>>, NamesError> {
        match range["kvs"].as_array().and_then(|found| found.first()) {
            Some(entry) => self.bytes(&entry["value"]).map(Some),
            None => Ok(None),
        }
    }
}

/// Whether a refusal says that the lease does not exist.
fn is_about_lease(refusal: &Refusal) -> bool {
    // An unreadable answer is empty; nothing else requested here can be missing.
    refusal.status == 404 && (refusal.text.is_empty() || refusal.text.contains("lease not found"))
}

fn text_of(status: u16, answer: &[u8]) -> String {
    // The object may be followed by data of the protocol below.
    let mut objects = serde_json::Deserializer::from_slice(answer).into_iter::<Value>();
    let error = objects.next().and_then(Result::ok);
    match error.as_ref().and_then(|error| error["error"].as_str()) {
        Some(text) => text.chars().take(200).collect(),
        None if answer.is_empty() && status == 404 => String::new(),
        None => {
            let text = &answer[..answer.len().min(200)];
            text.trim_ascii().escape_ascii().to_string()
        }
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The first key after all that begin with `prefix`, which ends with printable ASCII.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

impl Store for Etcd {
    fn address(&self) -> &StoreAddress {
        &self.address
    }

    fn grant(&mut self) -> Result<LeaseId, NamesError> {
        let answer = self.expect("lease/grant", &json!({ "TTL": LEASE.as_secs().to_string() }))?;
        match self.number(&answer["ID"])? {
            0 => Err(self.protocol("it granted no lease")),
            id => Ok(LeaseId(id)),
        }
    }

    fn keep(&mut self, lease: LeaseId) -> Result<bool, NamesError> {
        let answer = self.expect("lease/keepalive", &json!({ "ID": lease.0.to_string() }))?;
        Ok(self.number(&answer["result"]["TTL"])? > 0)
    }

    fn revoke(&mut self, lease: LeaseId) -> Result<(), NamesError> {
        match self.ask("lease/revoke", &json!({ "ID": lease.0.to_string() }))? {
            Ok(_) => Ok(()),
            Err(refusal) if is_about_lease(&refusal) => Ok(()),
            Err(refusal) => Err(self.refused(refusal)),
        }
    }

    fn create(&mut self, key: &str, value: &[u8], lease: LeaseId) -> Result<bool, NamesError> {
        let name = encode(key.as_bytes());
        let (bytes, id) = (encode(value), lease.0.to_string());
        let transaction = json!({
            "compare": [{ "key": name, "target": "CREATE", "create_revision": "0" }],
            "success": [{ "request_put": { "key": name, "value": bytes, "lease": id } }],
            "failure": [{ "request_range": { "key": name } }],
        });
        let answer = match self.ask("kv/txn", &transaction)? {
            Ok(answer) => answer,
            Err(refusal) if is_about_lease(&refusal) => {
                return Err(NamesError::NoLease { address: self.address.to_string() });
            }
            Err(refusal) => return Err(self.refused(refusal)),
        };
        if answer["succeeded"] == true {
            return Ok(true);
        }
        let there = self.value_in(&answer["responses"][0]["response_range"])?;
        Ok(there.as_deref() == Some(value))
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, NamesError> {
        let answer = self.expect("kv/range", &json!({ "key": encode(key.as_bytes()) }))?;
        self.value_in(&answer)
    }

    fn list(&mut self, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, NamesError> {
        let mut all = Vec::new();
        let mut from = prefix.as_bytes().to_vec();
        let end = encode(&end_of(prefix));
        loop {
            let key = encode(&from);
            let range = json!({ "key": key, "range_end": end, "limit": PAGE.to_string() });
            let answer = self.expect("kv/range", &range)?;
            let none = Vec::new();
            let found = answer["kvs"].as_array().unwrap_or(&none);
            for entry in found {
                let key = self.bytes(&entry["key"])?;
                from = [&key[..], &[0]].concat();
                let key = String::from_utf8(key);
                let key = key.map_err(|_| self.protocol("a key that is not text"))?;
                all.push((key, self.bytes(&entry["value"])?));
            }
            if answer["more"] != true || found.is_empty() {
                return Ok(all);
            }
        }
    }

    fn count(&mut self, prefix: &str) -> Result<u64, NamesError> {
        let (key, end) = (encode(prefix.as_bytes()), encode(&end_of(prefix)));
        let range = json!({ "key": key, "range_end": end, "count_only": true });
        let answer = self.expect("kv/range", &range)?;
        self.number(&answer["count"])
    }
}
