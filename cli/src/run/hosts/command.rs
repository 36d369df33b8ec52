//! The command that starts an agent.

use std::ffi::OsString;
use std::path::PathBuf;

use super::super::program::{Program, ProgramError};

/// How a host is reached unless the user says otherwise: without questions, which nobody could answer for many hosts.
pub(crate) const DEFAULT: &str = "ssh -x -o BatchMode=yes -o ConnectTimeout=10 {host}";

/// Words of a command, in which `{host}` stands for the host.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    words: Vec<String>,
    /// Whether it is the user's, who then means every host.
    is_given: bool,
}

impl Template {
    /// Reads a template as a shell would split it.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, String> {
        let given = text.unwrap_or(DEFAULT);
        let words =
            shlex::split(given).ok_or_else(|| format!("--launch-agent `{given}`: a quotation mark is not closed"))?;
        if words.is_empty() {
            return Err("--launch-agent is empty; write a command, as in 'ssh {host}'".into());
        }
        if !words.iter().any(|word| word.contains("{host}")) {
            return Err(format!("--launch-agent `{given}`: {{host}} must stand where the host's name belongs"));
        }
        Ok(Self { words, is_given: text.is_some() })
    }

    /// The command for `host`: the template's words, then those of `mapwire agent`, of the same place as here, unless the template
    /// ends in a word `agent` of its own. This very host needs no template.
    pub(super) fn command(&self, host: &str) -> Result<Program, ProgramError> {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("mapwire"));
        let agent = [own.into_os_string(), "agent".into()];
        let words: Vec<OsString> = if self.is_local(host) {
            agent.into()
        } else {
            let words = self.words.iter().map(|word| word.replace("{host}", host).into());
            let is_whole = self.words.last().is_some_and(|word| word == "agent");
            words.chain(agent.into_iter().filter(|_| !is_whole)).collect()
        };
        Program::find(&words, None)
    }

    /// Whether the agent of `host` is started without the template: `localhost` is this host, whatever reaches the others.
    pub(super) fn is_local(&self, host: &str) -> bool {
        host == "localhost" || !self.is_given && is_here(host)
    }
}

fn is_here(host: &str) -> bool {
    rustix::system::uname().nodename().to_str() == Ok(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_stands_where_the_template_says_and_the_agent_at_the_end() {
        let template = Template::parse(Some("env 'NAME=my {host}' A=b")).unwrap();
        let program = template.command("x1").unwrap();
        assert!(program.path.ends_with("env"));
        assert_eq!(program.arguments[..2], ["NAME=my x1", "A=b"]);
        assert_eq!(program.arguments.last().unwrap(), "agent");
    }

    #[test]
    fn a_template_that_ends_in_agent_says_where_mapwire_is() {
        let template = Template::parse(Some("env {host}=1 /opt/mapwire agent")).unwrap();
        let program = template.command("a").unwrap();
        assert_eq!(program.arguments, ["a=1", "/opt/mapwire", "agent"]);
    }

    #[test]
    fn this_host_needs_no_template_unless_one_is_given() {
        let uname = rustix::system::uname();
        let name = uname.nodename().to_str().unwrap();
        let template = Template::parse(None).unwrap();
        let given = Template::parse(Some("env {host}")).unwrap();
        assert!(template.is_local(name) && !template.is_local("elsewhere.example"));
        assert!(!given.is_local(name));
        assert!(template.is_local("localhost") && given.is_local("localhost"));
    }

    #[test]
    fn a_template_that_cannot_be_meant_is_refused() {
        for (text, says) in [("ssh 'x {host}", "quotation"), ("", "empty"), ("ssh me", "{host}")] {
            let error = Template::parse(Some(text)).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
        let error = Template::parse(Some("no-such-command {host}")).unwrap();
        assert!(error.command("x").is_err());
    }
}
