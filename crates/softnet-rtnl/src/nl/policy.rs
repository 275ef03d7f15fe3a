//! What the attributes of a message may be (`struct nla_policy`), and the check of it.

use super::{Attr, AttrIter, Errno, Error, MAX_DEPTH, NLA_F_NESTED, NLA_HDRLEN};

/// How strictly a message is checked.
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
    /// What is checked of which type. Types up to `max` without a rule may be anything, but not
    /// under [`Validation::Strict`].
    pub rules: &'static [(u16, Rule)],
}

/// What an attribute may be.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "names say it: the integer types of nla_policy")]
pub enum Rule {
    /// `NLA_UNSPEC` with a length: at least so many bytes.
    Min(usize),
    /// `NLA_POLICY_EXACT_LEN`.
    Exact(usize),
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    /// `NLA_POLICY_RANGE`, both ends included.
    U8Range(u8, u8),
    U16Range(u16, u16),
    U32Range(u32, u32),
    U64Range(u64, u64),
    S32Range(i32, i32),
    S64Range(i64, i64),
    /// `NLA_POLICY_MASK`: no other bits.
    U8Mask(u8),
    U16Mask(u16),
    U32Mask(u32),
    /// `NLA_UINT`: 4 or 8 bytes.
    Uint,
    /// No payload.
    Flag,
    /// `NLA_STRING`: at most `max` bytes besides a final NUL; 0: any number.
    Str {
        max: usize,
    },
    /// `NLA_NUL_STRING`: the same, and ends with a NUL.
    NulStr {
        max: usize,
    },
    /// At most `max` bytes; 0: any number.
    Binary {
        max: usize,
    },
    /// `NLA_POLICY_RANGE(NLA_BINARY, …)`.
    BinaryRange {
        min: usize,
        max: usize,
    },
    /// `struct nla_bitfield32`, with these bits known.
    Bitfield32(u32),
    /// Attributes, checked later when they are read.
    NestedAny,
    /// Attributes of this policy, checked at once.
    Nested(&'static Policy),
    /// Nests of this policy, whose types are indices.
    NestedArray(&'static Policy),
    /// Not accepted, with this text.
    Reject(&'static str),
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

/// Length, sign and range of an integer.
struct Integer {
    length: usize,
    signed: bool,
    range: Option<(i128, i128)>,
    mask: Option<u64>,
}

impl Rule {
    fn integer(&self) -> Option<Integer> {
        let (length, signed) = match self {
            Rule::U8 | Rule::U8Range(..) | Rule::U8Mask(_) => (1, false),
            Rule::U16 | Rule::U16Range(..) | Rule::U16Mask(_) => (2, false),
            Rule::U32 | Rule::U32Range(..) | Rule::U32Mask(_) => (4, false),
            Rule::U64 | Rule::U64Range(..) => (8, false),
            Rule::S8 => (1, true),
            Rule::S16 => (2, true),
            Rule::S32 | Rule::S32Range(..) => (4, true),
            Rule::S64 | Rule::S64Range(..) => (8, true),
            _ => return None,
        };
        let range = match *self {
            Rule::U8Range(min, max) => Some((min.into(), max.into())),
            Rule::U16Range(min, max) => Some((min.into(), max.into())),
            Rule::U32Range(min, max) => Some((min.into(), max.into())),
            Rule::U64Range(min, max) => Some((min.into(), max.into())),
            Rule::S32Range(min, max) => Some((min.into(), max.into())),
            Rule::S64Range(min, max) => Some((min.into(), max.into())),
            _ => None,
        };
        let mask = match *self {
            Rule::U8Mask(mask) => Some(mask.into()),
            Rule::U16Mask(mask) => Some(mask.into()),
            Rule::U32Mask(mask) => Some(mask.into()),
            _ => None,
        };
        Some(Integer {
            length,
            signed,
            range,
            mask,
        })
    }

    /// `validate_nla`.
    fn check(&self, attr: &Attr<'_>, validation: Validation) -> Result<(), Error> {
        let strict = validation == Validation::Strict;
        let length = attr.data.len();
        let refuse = |text| Err(Error::invalid(text).at(attr));
        let fails = |errno| Err(policy_error(errno).at(attr));
        let integer = self.integer();
        if strict {
            let nested = attr.raw & NLA_F_NESTED != 0;
            match (self, &integer) {
                (_, Some(integer)) if length != integer.length => {
                    return refuse("invalid attribute length");
                }
                (Rule::NestedAny | Rule::Nested(_) | Rule::NestedArray(_), _) if !nested => {
                    return refuse("NLA_F_NESTED is missing");
                }
                (Rule::NestedAny | Rule::Nested(_) | Rule::NestedArray(_) | Rule::Min(_), _) => {}
                _ if nested => return refuse("NLA_F_NESTED not expected"),
                _ => {}
            }
        }
        match *self {
            Rule::Reject(text) => return refuse(text),
            Rule::Flag if length > 0 => return fails(Errno::ERANGE),
            Rule::Uint if length != 4 && length != 8 => {
                return refuse("invalid attribute length");
            }
            Rule::Bitfield32(known) => {
                if length != 8 {
                    return fails(Errno::ERANGE);
                }
                let (value, selector) = (attr.integer(4), u32_at(attr.data, 4));
                if selector & !known != 0 || value & u64::from(!selector) != 0 {
                    return fails(Errno::EINVAL);
                }
            }
            Rule::Str { max } => check_string(attr, max)?,
            Rule::NulStr { max } => {
                let within = if max == 0 {
                    length
                } else {
                    length.min(max + 1)
                };
                if !attr.data[..within].contains(&0) {
                    return fails(Errno::EINVAL);
                }
                check_string(attr, max)?;
            }
            Rule::Binary { max } if max != 0 && length > max => return fails(Errno::ERANGE),
            Rule::BinaryRange { min, max } if length < min || length > max => {
                return range_error("binary attribute size out of range", attr);
            }
            Rule::Exact(exact) if length < exact || (strict && length > exact) => {
                return range_error("binary attribute size out of range", attr);
            }
            Rule::Min(min) if length < min => return fails(Errno::ERANGE),
            Rule::NestedAny | Rule::Nested(_) | Rule::NestedArray(_) if length == 0 => {}
            Rule::NestedAny | Rule::Nested(_) | Rule::NestedArray(_) if length < NLA_HDRLEN => {
                return fails(Errno::ERANGE);
            }
            Rule::Nested(policy) => policy.parse(attr.children(), validation, |_| {})?,
            Rule::NestedArray(policy) => {
                for entry in attr.children() {
                    if entry.data.is_empty() {
                        continue;
                    }
                    if entry.data.len() < NLA_HDRLEN {
                        return range_error("Array element too short", &entry);
                    }
                    policy.parse(entry.children(), validation, |_| {})?;
                }
            }
            _ => {}
        }
        let Some(integer) = integer else {
            return Ok(());
        };
        if length < integer.length {
            return fails(Errno::ERANGE);
        }
        let value = attr.integer(integer.length);
        if let Some((min, max)) = integer.range {
            let unused = 64 - 8 * integer.length as u32;
            let number = match integer.signed {
                true => i128::from((value << unused).cast_signed() >> unused),
                false => i128::from(value),
            };
            if number < min || number > max {
                return range_error("integer out of range", attr);
            }
        }
        match integer.mask {
            Some(mask) if value & !mask != 0 => refuse("reserved bit set"),
            _ => Ok(()),
        }
    }
}

/// What is said of an attribute that is not what its rule says.
pub(super) fn policy_error(errno: Errno) -> Error {
    Error::new(errno).text("Attribute failed policy validation")
}

fn range_error(text: &'static str, attr: &Attr<'_>) -> Result<(), Error> {
    Err(Error::new(Errno::ERANGE).text(text).at(attr))
}

fn check_string(attr: &Attr<'_>, max: usize) -> Result<(), Error> {
    let fits = match attr.data {
        [] => false,
        _ if max == 0 => true,
        [text @ .., 0] | text => text.len() <= max,
    };
    if fits {
        Ok(())
    } else {
        Err(policy_error(Errno::ERANGE).at(attr))
    }
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    let bytes = data.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}
