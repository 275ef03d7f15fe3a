//! Things of others that ports added at run time may open.

use std::path::{Component, Path};

use glob::{MatchOptions, Pattern};
use softnet_io::rights::Subject;

use super::form::Text;

/// Kinds of things; those with a path come last.
const KINDS: [&str; 3] = ["interface:", "socket:/", "file:/"];

/// A wildcard stands for a part of a name, never for a `/`.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Interfaces, sockets or files that may be opened, as a pattern of their words
/// ([`Subject::words`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allow(Pattern);

pub(super) const ALLOW: Text<Allow> = Text(
    |text| {
        if !KINDS
            .iter()
            .any(|kind| text.len() > kind.len() && text.starts_with(kind))
        {
            return Err(format!(
                "{text:?} allows nothing; use interface:NAME, interface:NAMESPACE/NAME, \
                 socket:/PATH or file:/PATH, where * and ? stand for characters of a name"
            ));
        }
        // They cross directories.
        if text.contains("**") {
            return Err(format!("{text:?} has **, which is not allowed here; use *"));
        }
        let pattern = Pattern::new(text);
        pattern
            .map(Allow)
            .map_err(|error| format!("{text:?} is no pattern: {error}"))
    },
    |allow| Some(allow.0.as_str().to_owned()),
);

impl Allow {
    /// True if this may be opened.
    pub(crate) fn has(&self, subject: &Subject) -> bool {
        let Some(words) = subject.words() else {
            return false;
        };
        // `..` is a name to a pattern, and another directory to the system.
        let mut parts = Path::new(&words).components();
        parts.all(|part| matches!(part, Component::Normal(_)))
            && self.0.matches_with(&words, OPTIONS)
    }
}

#[cfg(test)]
mod tests {
    use softnet_io::NetnsSpec;

    use super::*;

    #[test]
    fn patterns_allow_names_and_no_way_around_them() {
        let allow = |text: &str| (ALLOW.0)(text);
        let socket = |path: &str| Subject::Socket(path.into());
        let vms = allow("socket:/run/vm/*.sock").expect("valid");
        assert!(vms.has(&socket("/run/vm/a.sock")));
        for other in [
            "/run/vm/a/b.sock",
            "/run/vm/../x.sock",
            "/run/vm/a.soc",
            "run/vm/a.sock",
        ] {
            assert!(!vms.has(&socket(other)), "{other}");
        }
        assert!(!vms.has(&Subject::File("/run/vm/a.sock".into())));
        assert!(
            !allow("file:/a/*/b")
                .expect("valid")
                .has(&Subject::File("/a/../b".into()))
        );
        let here = |name: &str| Subject::Interface(None, name.to_owned());
        let there =
            |name: &str| Subject::Interface(Some(NetnsSpec::Name("blue".into())), name.to_owned());
        let ports = allow("interface:eth*").expect("valid");
        assert!(ports.has(&here("eth0")) && !ports.has(&here("lo")) && !ports.has(&there("eth0")));
        let blue = allow("interface:blue/*").expect("valid");
        assert!(blue.has(&there("eth0")) && !blue.has(&here("eth0")));
        for wrong in [
            "",
            "eth0",
            "interface:",
            "socket:x",
            "file:/",
            "file:/a/**",
            "file:/[",
        ] {
            assert!(allow(wrong).is_err(), "{wrong}");
        }
    }
}
