//! Rules for the attributes of a message (`struct nla_policy`), and their check.

use super::{Attr, AttrIter, Errno, Error, MAX_DEPTH, NLA_HDRLEN};

/// The strictness with which a message is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// `nla_parse_deprecated`: unknown types and trailing bytes are passed over, attributes may be
    /// longer than their type. What `tc` and `ip` rely on.
    Liberal,
    /// `nla_parse_deprecated_strict`: unknown types and trailing bytes are refused.
    KnownOnly,
    /// `nla_parse`: lengths and `NLA_F_NESTED` must be right as well.
    Strict,
}

/// The attributes that a message or nest may have.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Highest type; those above are unknown.
    pub max: u16,
    /// From this type on attributes are checked strictly in any case; 0: none are.
    pub strict_from: u16,
    /// The rule for each type. Types up to `max` without a rule may be anything, but not under
    /// [`Validation::Strict`].
    pub rules: &'static [(u16, Rule)],
}

/// Values that an attribute may have: those of the kernel's rules that its policies for these
/// requests use.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// `NLA_UNSPEC` with a length: at least so many bytes.
    Min(usize),
    /// `NLA_POLICY_EXACT_LEN`.
    Exact(usize),
    /// An integer of 1 byte.
    U8,
    /// An integer of 2 bytes.
    U16,
    /// An integer of 4 bytes.
    U32,
    /// An integer of 8 bytes.
    U64,
    /// `NLA_POLICY_RANGE`, both ends included.
    U32Range(u32, u32),
    /// The same of 1 byte.
    U8Range(u8, u8),
    /// `NLA_BITFIELD32`: bits, and which of them are given; only these exist.
    Bits(u32),
    /// No payload.
    Flag,
    /// `NLA_STRING`: at most `max` bytes besides a final NUL; 0: any number.
    Str {
        /// The most.
        max: usize,
    },
    /// At most `max` bytes; 0: any number.
    Binary {
        /// The most.
        max: usize,
    },
    /// Attributes, checked when they are read.
    NestedAny,
}

impl Policy {
    /// Types up to `max` that are all passed over or read without a rule.
    pub const fn new(max: u16, rules: &'static [(u16, Rule)]) -> Policy {
        Policy {
            max,
            strict_from: 0,
            rules,
        }
    }

    fn rule(&self, kind: u16) -> Option<&Rule> {
        self.rules
            .iter()
            .find(|(of, _)| *of == kind)
            .map(|(_, rule)| rule)
    }

    /// `__nla_validate_parse`: each attribute that is accepted goes to `take`.
    pub(super) fn parse<'a>(
        &self,
        mut attrs: AttrIter<'a>,
        validation: Validation,
        mut take: impl FnMut(Attr<'a>),
    ) -> Result<(), Error> {
        if attrs.depth() >= MAX_DEPTH {
            return Err(Error::invalid("allowed policy recursion depth exceeded"));
        }
        for attr in &mut attrs {
            let kind = attr.kind();
            if kind == 0 || kind > self.max {
                if validation != Validation::Liberal {
                    return Err(Error::invalid("Unknown attribute type").at(&attr));
                }
                continue;
            }
            let strict = self.strict_from != 0 && kind >= self.strict_from;
            let validation = if strict {
                Validation::Strict
            } else {
                validation
            };
            match self.rule(kind) {
                Some(rule) => rule.check(&attr, validation)?,
                None if validation == Validation::Strict => {
                    return Err(Error::invalid("Unsupported attribute").at(&attr));
                }
                None => {}
            }
            take(attr);
        }
        if attrs.leftover() > 0 && validation != Validation::Liberal {
            return Err(Error::invalid("bytes leftover after parsing attributes"));
        }
        Ok(())
    }
}

impl Rule {
    /// Bytes of an integer.
    fn integer(&self) -> Option<usize> {
        match self {
            Rule::U8 | Rule::U8Range(..) => Some(1),
            Rule::U16 => Some(2),
            Rule::U32 | Rule::U32Range(..) => Some(4),
            Rule::U64 => Some(8),
            _ => None,
        }
    }

    /// `validate_nla`.
    fn check(&self, attr: &Attr<'_>, validation: Validation) -> Result<(), Error> {
        let strict = validation == Validation::Strict;
        let length = attr.data.len();
        let refuse = |text| Err(Error::invalid(text).at(attr));
        let integer = self.integer();
        if strict {
            let nested = attr.is_nested();
            match self {
                _ if integer.is_some_and(|integer| length != integer) => {
                    return refuse("invalid attribute length");
                }
                Rule::NestedAny if !nested => return refuse("NLA_F_NESTED is missing"),
                Rule::NestedAny | Rule::Min(_) => {}
                _ if nested => return refuse("NLA_F_NESTED not expected"),
                _ => {}
            }
        }
        let fits = match *self {
            Rule::Flag => length == 0,
            Rule::Str { max } => match attr.data {
                [] => false,
                _ if max == 0 => true,
                [text @ .., 0] | text => text.len() <= max,
            },
            Rule::Binary { max } => max == 0 || length <= max,
            Rule::Exact(exact) if length < exact || (strict && length > exact) => {
                return range_error("binary attribute size out of range", attr);
            }
            Rule::Exact(_) => true,
            Rule::Min(min) => length >= min,
            Rule::NestedAny => length == 0 || length >= NLA_HDRLEN,
            Rule::Bits(_) => length == 8,
            Rule::U8
            | Rule::U16
            | Rule::U32
            | Rule::U64
            | Rule::U32Range(..)
            | Rule::U8Range(..) => integer.is_none_or(|integer| length >= integer),
        };
        if !fits {
            return Err(policy_error(Errno::ERANGE).at(attr));
        }
        match *self {
            Rule::U32Range(min, max) if !(min..=max).contains(&attr.u32()?) => {
                range_error("integer out of range", attr)
            }
            Rule::U8Range(min, max) if !(min..=max).contains(&attr.u8()?) => {
                range_error("integer out of range", attr)
            }
            // `validate_nla_bitfield32`.
            Rule::Bits(known) => {
                let [value, selector]: [u32; 2] = attr.fixed()?;
                if selector & !known != 0 || value & !known != 0 || value & !selector != 0 {
                    return Err(policy_error(Errno::EINVAL).at(attr));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The error for an attribute that breaks its rule.
pub(super) fn policy_error(errno: Errno) -> Error {
    Error::new(errno).text("Attribute failed policy validation")
}

fn range_error(text: &'static str, attr: &Attr<'_>) -> Result<(), Error> {
    Err(Error::new(Errno::ERANGE).text(text).at(attr))
}
