//! The iproute2 that gives the commands: the one installed here, and the one in the folder
//! `SOFTNET_PEERS`, if it is set.

use std::env;
use std::process::Command;

use super::common::{has_program, skip, text};

const PROGRAMS: [&str; 3] = ["tc", "ip", "bridge"];
/// Versions of which there are recordings.
const RECORDED: [&str; 2] = ["6.1", "7.3"];

/// An iproute2 of which there are recordings.
pub(crate) struct Iproute {
    pub(crate) version: String,
    /// Functions of the shell that run its programs; none for those installed here.
    pub(crate) functions: String,
}

impl Iproute {
    /// One of each recorded version that is here.
    pub(crate) fn all() -> Vec<Iproute> {
        let mut all: Vec<Iproute> = Vec::new();
        if PROGRAMS.into_iter().all(has_program) {
            all.extend(Iproute::with(String::new()));
        }
        let folder = env::var("SOFTNET_PEERS").unwrap_or_default();
        if !folder.is_empty()
            && let Some(other) = Iproute::with(functions(&folder))
            && all.iter().all(|one| one.version != other.version)
        {
            all.push(other);
        }
        all
    }

    fn with(functions: String) -> Option<Iproute> {
        let script = format!("{functions}tc -V");
        let output = Command::new("sh").args(["-c", &script]).output();
        let said = text(&output.expect("sh").stdout);
        let version = said.split(['-', ',']).nth(2).unwrap_or_default().trim();
        let version = version.strip_suffix(".0").unwrap_or(version).to_owned();
        if !RECORDED.contains(&version.as_str()) {
            let recorded = RECORDED.join(" or ");
            skip(&format!("needs iproute2 {recorded}, has {version}"));
            return None;
        }
        Some(Iproute { version, functions })
    }
}

/// Runs programs of another system's folder with its libraries.
fn functions(folder: &str) -> String {
    let libraries = format!("{folder}/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let function = |program| {
        let loader = format!("{libraries}/ld-linux-*.so.* --library-path {libraries}");
        format!("{program}() {{ {loader} {folder}/usr/sbin/{program} \"$@\"; }}\n")
    };
    PROGRAMS.map(function).concat()
}
