//! Words to an expression.
//!
//! ```text
//! any  = all { "or" all }
//! all  = one { "and" one }
//! one  = "not" one | "(" any ")" | test
//! test = [protocol] [side] what | protocol
//! ```

use std::net::IpAddr;

use softnet::wire::EthernetAddress;

use super::{Expression, ICMP6, Net, Protocol, Side, TCP, Test, UDP};

/// Bytes of a filter at most.
const LONGEST: usize = 4096;
/// Parentheses and `not` within each other at most.
const DEEPEST: usize = 32;

/// All words, for messages.
const WORDS: &str = "a filter is made of [src|dst] host ADDRESS, net PREFIX, port NUMBER; ether \
                     [src|dst] host MAC; vlan [NUMBER]; tcp, udp, icmp, icmp6, arp, ip, ip6, proto \
                     NUMBER; and, or, not and parentheses";

/// A filter that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// It is longer than any that people write.
    #[error("the filter has more than {LONGEST} bytes")]
    TooLong,
    /// Parentheses are deeper than any that people write.
    #[error("the filter has parentheses or `not` more than {DEEPEST} deep")]
    TooDeep,
    /// It ends too early.
    #[error("the filter ends where {0} was expected")]
    End(&'static str),
    /// A word is another than could be there.
    #[error("{word:?} is not {wanted}")]
    Wrong {
        /// The word.
        word: String,
        /// Words that could be there.
        wanted: &'static str,
    },
    /// A word that other programs know.
    #[error("{word:?} is not a word of filters here: {instead}")]
    Other {
        /// The word.
        word: String,
        /// Advice: words to write in its place.
        instead: &'static str,
    },
    /// A word that nobody knows.
    #[error("{0:?} is not understood: {WORDS}")]
    Unknown(String),
}

/// Words of pcap-filter(7) that are not known here, and what to write.
const OTHERS: &[(&str, &str)] = &[
    ("portrange", "write `(port 80 or port 81)`"),
    ("inbound", "each packet's direction is in the capture"),
    ("outbound", "each packet's direction is in the capture"),
    (
        "greater",
        "lengths are in the capture; filter what reads it",
    ),
    ("less", "lengths are in the capture; filter what reads it"),
    ("len", "lengths are in the capture; filter what reads it"),
    ("gateway", "write `ether host MAC and not host ADDRESS`"),
    ("broadcast", "write `ether dst host ff:ff:ff:ff:ff:ff`"),
    (
        "multicast",
        "write `dst net 224.0.0.0/4` or `dst net ff00::/8`",
    ),
    ("mask", "write `net 10.0.0.0/8`"),
    ("igmp", "write `proto 2`"),
    ("sctp", "write `proto 132`"),
    ("gre", "write `proto 47`"),
    ("esp", "write `proto 50`"),
    ("ah", "write `proto 51`"),
    ("mpls", "only Ethernet, VLANs, ARP and IP are told apart"),
    ("pppoes", "only Ethernet, VLANs, ARP and IP are told apart"),
    ("class", "write `softnet capture PORT:CLASS`"),
    ("reason", "write `softnet capture --dropped`"),
];

/// Reads a filter; none where there is no word.
pub(super) fn compile(text: &str) -> Result<Option<Expression>, FilterError> {
    if text.len() > LONGEST {
        return Err(FilterError::TooLong);
    }
    let mut words = Words {
        words: split(text),
        at: 0,
    };
    if words.words.is_empty() {
        return Ok(None);
    }
    let expression = words.any(0)?;
    match words.next() {
        None => Ok(Some(expression)),
        Some(word) => Err(match unknown(word) {
            FilterError::Unknown(word) => FilterError::Wrong {
                word,
                wanted: "`and` or `or`, which are between tests",
            },
            known => known,
        }),
    }
}

/// Words, parentheses and signs.
fn split(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for part in text.split_whitespace() {
        let mut rest = part;
        while !rest.is_empty() {
            let sign = ["(", ")", "!", "&&", "||"];
            let sign = sign.into_iter().find(|sign| rest.starts_with(sign));
            let end = match sign {
                Some(sign) => sign.len(),
                None => rest
                    .find(['(', ')', '!', '&', '|'])
                    .unwrap_or(rest.len())
                    .max(1),
            };
            let (word, after) = rest.split_at(end.min(rest.len()));
            words.push(word);
            rest = after;
        }
    }
    words
}

fn unknown(word: &str) -> FilterError {
    let other = OTHERS.iter().find(|(other, _)| *other == word);
    match other {
        Some(&(_, instead)) => FilterError::Other {
            word: word.to_owned(),
            instead,
        },
        None if word.contains('[') => FilterError::Other {
            word: word.to_owned(),
            instead: "bytes are not compared; filter what reads the capture",
        },
        None => FilterError::Unknown(word.to_owned()),
    }
}

/// A filter's words, and how far they have been read.
struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek()?;
        self.at += 1;
        Some(word)
    }

    /// Takes the next word if it is one of these.
    fn take(&mut self, any: &[&str]) -> bool {
        let is = self.peek().is_some_and(|word| any.contains(&word));
        self.at += usize::from(is);
        is
    }

    /// The next word, read by `f`.
    fn read<T>(
        &mut self,
        wanted: &'static str,
        f: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, FilterError> {
        let word = self.next().ok_or(FilterError::End(wanted))?;
        f(word).ok_or_else(|| FilterError::Wrong {
            word: word.to_owned(),
            wanted,
        })
    }

    fn any(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut of = vec![self.all(depth)?];
        while self.take(&["or", "||"]) {
            of.push(self.all(depth)?);
        }
        Ok(one_of(of, Expression::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Expression, FilterError> {
        let mut of = vec![self.one(depth)?];
        while self.take(&["and", "&&"]) {
            of.push(self.one(depth)?);
        }
        Ok(one_of(of, Expression::All))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, FilterError> {
        if depth > DEEPEST {
            return Err(FilterError::TooDeep);
        }
        if self.take(&["not", "!"]) {
            let of = self.one(depth + 1)?;
            return Ok(Expression::Not(Box::new(of)));
        }
        if self.take(&["("]) {
            let of = self.any(depth + 1)?;
            let closed = |word: &str| (word == ")").then_some(());
            self.read("`)`, `and` or `or`", closed)?;
            return Ok(of);
        }
        self.test()
    }

    fn test(&mut self) -> Result<Expression, FilterError> {
        let first = self.peek().ok_or(FilterError::End("a test"))?;
        if self.take(&["ether"]) {
            let side = self.side();
            self.take(&["host"]);
            let address = self.read("an address like 02:00:00:00:00:01", mac)?;
            return Ok(Expression::Test(Test::Ether(side, address)));
        }
        if self.take(&["vlan"]) {
            let number = match self.peek() {
                Some(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
                    let vlan = |word: &str| word.parse::<u16>().ok().filter(|&vlan| vlan < 4096);
                    Some(self.read("a VLAN's number from 0 to 4095", vlan)?)
                }
                _ => None,
            };
            return Ok(Expression::Test(Test::Vlan(number)));
        }
        let protocol = self.protocol()?;
        let before = self.at;
        let side = self.side();
        let what = self.what(side)?;
        match (protocol, what) {
            (Some(protocol), Some(what)) => {
                let both = [Test::Protocol(protocol), what];
                Ok(Expression::All(both.map(Expression::Test).into()))
            }
            (Some(protocol), None) if before == self.at => {
                Ok(Expression::Test(Test::Protocol(protocol)))
            }
            (None, Some(what)) => Ok(Expression::Test(what)),
            _ => match self.next() {
                Some(word) if side != Side::Either => Err(FilterError::Wrong {
                    word: word.to_owned(),
                    wanted: "host, net or port, which follow src and dst",
                }),
                Some(word) => Err(unknown(word)),
                None if side != Side::Either => Err(FilterError::End("host, net or port")),
                None => Err(unknown(first)),
            },
        }
    }

    fn side(&mut self) -> Side {
        match self.peek() {
            Some("src") => {
                self.at += 1;
                Side::Source
            }
            Some("dst") => {
                self.at += 1;
                Side::Destination
            }
            _ => Side::Either,
        }
    }

    fn protocol(&mut self) -> Result<Option<Protocol>, FilterError> {
        let protocol = match self.peek() {
            Some("ip") => Protocol::Ip4,
            Some("ip6") => Protocol::Ip6,
            Some("arp") => Protocol::Arp,
            Some("icmp") => Protocol::Icmp,
            Some("icmp6") => Protocol::Above(ICMP6),
            Some("tcp") => Protocol::Above(TCP),
            Some("udp") => Protocol::Above(UDP),
            Some("proto") => {
                self.at += 1;
                let wanted = "tcp, udp, icmp, icmp6, arp, ip, ip6 or a number from 0 to 255";
                return match self.peek() {
                    Some("proto") => self.read(wanted, |_| None),
                    _ => match self.protocol()? {
                        Some(named) => Ok(Some(named)),
                        None => {
                            let number = |word: &str| word.parse().ok().map(Protocol::Above);
                            self.read(wanted, number).map(Some)
                        }
                    },
                };
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(protocol))
    }

    /// A test of an address or a port, if one is there.
    fn what(&mut self, side: Side) -> Result<Option<Test>, FilterError> {
        let test = match self.peek() {
            Some("host") => {
                self.at += 1;
                let host = |word: &str| word.parse().ok().map(host);
                Test::Net(
                    side,
                    self.read("an IP address (names are not looked up)", host)?,
                )
            }
            Some("net") => {
                self.at += 1;
                Test::Net(
                    side,
                    self.read("a prefix like 10.0.0.0/8 or fd00::/8", net)?,
                )
            }
            Some("port") => {
                self.at += 1;
                let number = |word: &str| word.parse::<u16>().ok();
                let wanted = "a port's number from 0 to 65535 (names are not looked up)";
                Test::Port(side, self.read(wanted, number)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(test))
    }
}

fn one_of(mut of: Vec<Expression>, f: fn(Vec<Expression>) -> Expression) -> Expression {
    match of.len() {
        1 => of.remove(0),
        _ => f(of),
    }
}

fn host(address: IpAddr) -> Net {
    let bits = if address.is_ipv4() { 32 } else { 128 };
    Net { address, bits }
}

fn net(word: &str) -> Option<Net> {
    let Some((address, bits)) = word.split_once('/') else {
        return word.parse().ok().map(host);
    };
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let fits = bits <= host(address).bits;
    fits.then_some(Net { address, bits })
}

fn mac(word: &str) -> Option<EthernetAddress> {
    let mut address = [0; 6];
    let mut parts = word.split(':');
    for byte in &mut address {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
        let is_hex = part.bytes().all(|digit| digit.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_hex)?;
    }
    parts.next().is_none().then_some(EthernetAddress(address))
}
