//! The options of a job: TOML file, then `MAPWIRE_*` variables, then flags; the later wins.
//!
//! Every option is a row of [`options`]. [`Layers`] finds the text and its source, [`Settings`]
//! gives it a type; an error names the source, so that a wrong line in a file is found.

mod layers;
mod options;
mod settings;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use layers::Layers;
pub(crate) use options::JobOptions;
#[cfg(test)]
pub(crate) use options::is_possible;
pub(crate) use settings::{Bind, Settings};

use crate::args::ConfigArgs;
use crate::{Failure, failing};

pub(crate) fn command(args: &ConfigArgs, file: Option<&Path>) -> Result<ExitCode, Failure> {
    let layers = Layers::read(&args.options, file).map_err(failing(2))?;
    Settings::from_layers(&layers).map_err(failing(2))?;
    let rows: Vec<_> = layers.rows().collect();
    if args.json {
        for (key, value, source) in rows {
            println!("{}", serde_json::json!({"kind": "option", "option": key, "value": value, "source": source}));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let shown = |value: Option<&str>| value.unwrap_or("-").to_owned();
    let width = rows.iter().map(|(_, v, _)| shown(*v).len()).max().unwrap_or(0);
    for (key, value, source) in rows {
        println!("{key:<14} {:<width$}  {source}", shown(value));
    }
    Ok(ExitCode::SUCCESS)
}
