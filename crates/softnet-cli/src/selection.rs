//! A part of the counters: one port, one of its classes, or the busiest.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;

use softnet_engine::EngineStats;
use softnet_tc::Handle;

/// Argument of the operation that asks for counters, as words: `text of=web:1:10 top=5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// Tables for people; one object without it.
    pub text: bool,
    /// The part that is shown alone.
    pub of: Option<Part>,
    /// Ports alone, without qdiscs, classes and filters.
    pub ports: bool,
    /// So many ports that moved the most bytes, and so many classes and filters of each.
    pub top: Option<u32>,
}

/// A port, or a class of it: `web` or `web:1:10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub port: String,
    /// A class, or a qdisc.
    pub class: Option<Handle>,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        // No name of a link has a colon.
        let (port, class) = match text.split_once(':') {
            Some((port, class)) => (port, Some(class)),
            None => (text, None),
        };
        let class = class.map(|class| {
            let bad = |_| format!("{class:?} is not a class; write it like {port}:1:10");
            class.parse().map_err(bad)
        });
        if port.is_empty() {
            return Err("name a port, like web or web:1:10".to_owned());
        }
        Ok(Part {
            port: port.to_owned(),
            class: class.transpose()?,
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        words.extend(self.text.then(|| "text".to_owned()));
        words.extend(self.ports.then(|| "ports".to_owned()));
        words.extend(self.of.as_ref().map(|Part { port, class }| match class {
            Some(class) => format!("of={port}:{class}"),
            None => format!("of={port}"),
        }));
        words.extend(self.top.map(|top| format!("top={top}")));
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for word in text.split_ascii_whitespace() {
            match word.split_once('=') {
                None if word == "text" => selection.text = true,
                None if word == "ports" => selection.ports = true,
                Some(("of", part)) => selection.of = Some(part.parse()?),
                Some(("top", n)) => {
                    let bad = |_| format!("{n:?} is not a number");
                    selection.top = Some(n.parse().map_err(bad)?);
                }
                _ => {
                    return Err(
                        "counters are for text, ports, of=PORT[:CLASS] and top=N".to_owned()
                    );
                }
            }
        }
        Ok(selection)
    }
}

impl Selection {
    /// True if all counters are shown.
    pub(crate) fn is_whole(&self) -> bool {
        self.of.is_none() && self.top.is_none() && !self.ports
    }

    /// True if classes of a port may be shown.
    pub(crate) fn has_classes(&self, port: &str) -> bool {
        !self.ports && self.has(port)
    }

    /// True if something of a port may be shown.
    pub(crate) fn has(&self, port: &str) -> bool {
        self.of.as_ref().is_none_or(|of| of.port == port)
    }

    /// Removes all else. The error says what is not there.
    pub(crate) fn apply(&self, stats: &mut EngineStats) -> Result<(), String> {
        stats.ports.retain(|port| self.has(&port.name));
        if let Some(Part { port: name, class }) = &self.of {
            let Some(port) = stats.ports.first_mut() else {
                return Err(format!("there is no port {name:?}"));
            };
            if let Some(class) = *class {
                port.classes
                    .retain(|of| of.class == class || of.qdisc == class);
                port.filters.retain(|(spec, _)| spec.class == Some(class));
                if port.classes.is_empty() {
                    return Err(format!("port {name:?} has no class {class}"));
                }
            }
        }
        let Some(top) = self.top else { return Ok(()) };
        let top = top as usize;
        let moved = |port: &softnet_engine::PortStats| port.device.rx_bytes + port.device.tx_bytes;
        stats.ports.sort_by_key(|port| Reverse(moved(port)));
        stats.ports.truncate(top);
        for port in &mut stats.ports {
            port.classes.sort_by_key(|class| Reverse(class.stats.bytes));
            port.classes.truncate(top);
            port.filters.sort_by_key(|(_, stats)| Reverse(stats.bytes));
            port.filters.truncate(top);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use softnet::qdisc::QdiscStats;
    use softnet_engine::PortStats;
    use softnet_tc::ClassStats;

    use super::*;

    fn stats() -> EngineStats {
        let class = |class: &str, qdisc: &str, bytes| ClassStats {
            class: class.parse().expect("a handle"),
            parent: Handle::NONE,
            qdisc: qdisc.parse().expect("a handle"),
            kind: "htb",
            stats: QdiscStats {
                bytes,
                ..QdiscStats::default()
            },
            own: None,
            htb: None,
            xstats: None,
        };
        let port = |name: &str, bytes| {
            let mut port = PortStats {
                name: name.into(),
                classes: vec![
                    class("root", "1:", 9 * bytes),
                    class("1:10", "10:", bytes),
                    class("1:20", "20:", 8 * bytes),
                ],
                ..PortStats::default()
            };
            port.device.tx_bytes = bytes;
            port
        };
        EngineStats {
            ports: vec![port("a", 1), port("b", 3), port("c", 2)],
            ..EngineStats::default()
        }
    }

    /// `PORT CLASS...` of what is left.
    fn left(selection: &str) -> Result<Vec<String>, String> {
        let selection: Selection = selection.parse()?;
        let mut stats = stats();
        selection.apply(&mut stats)?;
        let port = |port: &PortStats| {
            let classes = port.classes.iter().map(|class| format!(" {}", class.class));
            port.name.clone() + &classes.collect::<String>()
        };
        Ok(stats.ports.iter().map(port).collect())
    }

    #[test]
    fn a_port_a_class_and_the_busiest_are_left() {
        let all = " root 1:10 1:20";
        let whole = ["a", "b", "c"].map(|port| format!("{port}{all}"));
        assert_eq!(left("text"), Ok(whole.to_vec()));
        assert_eq!(left("of=b"), Ok(vec![format!("b{all}")]));
        assert_eq!(left("of=b:1:20"), Ok(vec!["b 1:20".into()]));
        assert_eq!(left("of=b:10:"), Ok(vec!["b 1:10".into()]));
        assert_eq!(left("of=b:root"), Ok(vec!["b root".into()]));
        assert_eq!(left("top=1"), Ok(vec!["b root".into()]));
        let two = vec!["b root 1:20".into(), "c root 1:20".into()];
        assert_eq!(left("text top=2"), Ok(two));
        assert_eq!(left("of=a top=2"), Ok(vec!["a root 1:20".into()]));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (selection, said) in [
            ("of=d", "there is no port \"d\""),
            ("of=a:1:30", "port \"a\" has no class 1:30"),
            ("of=a:x", "\"x\" is not a class; write it like a:1:10"),
            ("of=", "name a port, like web or web:1:10"),
            ("top=-1", "\"-1\" is not a number"),
            (
                "txet",
                "counters are for text, ports, of=PORT[:CLASS] and top=N",
            ),
        ] {
            assert_eq!(left(selection), Err(said.to_owned()));
        }
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for words in ["", "text", "of=web", "text of=web:1:10 top=5", "top=1"] {
            let selection: Selection = words.parse().expect(words);
            assert_eq!(selection.to_string(), words);
        }
    }
}
