//! Attributes: type, length and value, and nests of them.

use std::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes;

use super::policy::policy_error;
use super::{Errno, Error, NLA_F_NESTED, NLA_HDRLEN, NLA_TYPE_MASK, Policy, Validation, align};

/// The greatest depth of nests (`MAX_POLICY_RECURSION_DEPTH`).
pub const MAX_DEPTH: u8 = 10;

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attr<'a> {
    /// The type with its flags.
    pub(super) raw: u16,
    /// The payload.
    pub data: &'a [u8],
    /// Where its header is in the message.
    pub(super) offset: u32,
    /// Nests around it.
    depth: u8,
}

impl<'a> Attr<'a> {
    /// The type without flags.
    pub fn kind(&self) -> u16 {
        self.raw & NLA_TYPE_MASK
    }

    /// True if its type says that it holds attributes.
    pub fn is_nested(&self) -> bool {
        self.raw & NLA_F_NESTED != 0
    }

    /// A structure that the payload starts with; more bytes may follow.
    pub fn fixed<T: FromBytes>(&self) -> Result<T, Error> {
        match T::read_from_prefix(self.data) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(policy_error(Errno::ERANGE).at(self)),
        }
    }

    /// Structures one after the other; a remainder is passed over.
    pub fn array<T: FromBytes>(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let chunks = self.data.chunks_exact(size_of::<T>().max(1));
        chunks.filter_map(|bytes| T::read_from_bytes(bytes).ok())
    }

    /// An integer.
    pub fn u8(&self) -> Result<u8, Error> {
        self.fixed()
    }

    /// An integer.
    pub fn u16(&self) -> Result<u16, Error> {
        self.fixed()
    }

    /// An integer.
    pub fn u32(&self) -> Result<u32, Error> {
        self.fixed()
    }

    /// An integer.
    pub fn u64(&self) -> Result<u64, Error> {
        self.fixed()
    }

    /// An integer of network byte order.
    pub fn be16(&self) -> Result<u16, Error> {
        self.fixed().map(u16::from_be_bytes)
    }

    /// An integer of network byte order.
    pub fn be32(&self) -> Result<u32, Error> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// An address.
    pub fn ipv4(&self) -> Result<Ipv4Addr, Error> {
        self.fixed::<[u8; 4]>().map(Ipv4Addr::from)
    }

    /// An address.
    pub fn ipv6(&self) -> Result<Ipv6Addr, Error> {
        self.fixed::<[u8; 16]>().map(Ipv6Addr::from)
    }

    /// A hardware address.
    pub fn mac(&self) -> Result<[u8; 6], Error> {
        self.fixed()
    }

    /// A string, up to its first NUL if it has one.
    pub fn str(&self) -> Result<&'a str, Error> {
        let text = self
            .data
            .split(|byte| *byte == 0)
            .next()
            .unwrap_or_default();
        std::str::from_utf8(text).map_err(|_| Error::invalid("string is not UTF-8").at(self))
    }

    /// The attributes inside, one after the other, unchecked.
    pub fn children(&self) -> AttrIter<'a> {
        self.children_behind(0)
    }

    /// The attributes behind a structure of `front` bytes.
    fn children_behind(&self, front: usize) -> AttrIter<'a> {
        let front = align(front);
        AttrIter {
            rest: self.data.get(front..).unwrap_or_default(),
            offset: self.offset.saturating_add((NLA_HDRLEN + front) as u32),
            depth: self.depth.saturating_add(1),
        }
    }

    /// The attributes inside (`nla_parse_nested_deprecated`).
    pub fn nested(&self, policy: &Policy) -> Result<Attrs<'a>, Error> {
        self.nested_behind(0, policy)
    }

    /// As [`nested`](Attr::nested), checked strictly, and its type must say that it holds
    /// attributes (`nla_parse_nested`).
    pub fn nested_strict(&self, policy: &Policy) -> Result<Attrs<'a>, Error> {
        if !self.is_nested() {
            return Err(Error::invalid("NLA_F_NESTED is missing").at(self));
        }
        let mut attrs = Attrs::parse(self.children(), policy, Validation::Strict)?;
        attrs.nest = Some(self.offset);
        Ok(attrs)
    }

    /// Checks the attributes inside strictly, of which there may be several of a type
    /// (`nla_validate_nested`).
    pub fn validate(&self, policy: &Policy) -> Result<(), Error> {
        policy.parse(self.children(), Validation::Strict, |_| {})
    }

    /// The attributes behind a structure of `front` bytes that the payload starts with.
    pub fn nested_behind(&self, front: usize, policy: &Policy) -> Result<Attrs<'a>, Error> {
        let mut attrs = Attrs::parse(self.children_behind(front), policy, Validation::Liberal)?;
        attrs.nest = Some(self.offset);
        Ok(attrs)
    }
}

/// Attributes one after the other, up to the first that does not fit what it stands in.
#[derive(Clone, Debug)]
pub struct AttrIter<'a> {
    rest: &'a [u8],
    offset: u32,
    depth: u8,
}

impl<'a> AttrIter<'a> {
    pub(super) fn new(data: &'a [u8], offset: usize) -> AttrIter<'a> {
        AttrIter {
            rest: data,
            offset: u32::try_from(offset).unwrap_or(u32::MAX),
            depth: 0,
        }
    }

    pub(super) fn depth(&self) -> u8 {
        self.depth
    }

    /// Refuses attributes of types that nothing reads: they would be answered as if they were set.
    pub fn refuse_unread(
        mut self,
        is_read: impl Fn(u16) -> bool,
        help: &'static str,
    ) -> Result<(), Error> {
        match self.find(|attr| !is_read(attr.kind())) {
            Some(attr) => Err(Error::new(Errno::EOPNOTSUPP).help(help).at(&attr)),
            None => Ok(()),
        }
    }

    /// Bytes behind the last attribute.
    pub(super) fn leftover(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for AttrIter<'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let (&[l0, l1, k0, k1], _) = self.rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let data = self.rest.get(NLA_HDRLEN..length)?;
        let raw = u16::from_ne_bytes([k0, k1]);
        let attr = Attr {
            raw,
            data,
            offset: self.offset,
            depth: self.depth,
        };
        let step = align(length);
        self.rest = self.rest.get(step..).unwrap_or_default();
        self.offset = self.offset.saturating_add(step as u32);
        Some(attr)
    }
}

/// The attributes of a message or nest by type; of several of one type, the last.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    table: Vec<Option<Attr<'a>>>,
    /// The nest that they are in.
    nest: Option<u32>,
}

impl<'a> Attrs<'a> {
    pub(super) fn parse(
        attrs: AttrIter<'a>,
        policy: &Policy,
        validation: Validation,
    ) -> Result<Attrs<'a>, Error> {
        let mut table = vec![None; usize::from(policy.max) + 1];
        policy.parse(attrs, validation, |attr| {
            table[usize::from(attr.kind())] = Some(attr)
        })?;
        Ok(Attrs { table, nest: None })
    }

    /// The attribute of a type.
    pub fn get(&self, kind: u16) -> Option<Attr<'a>> {
        self.table.get(usize::from(kind)).copied().flatten()
    }

    /// True if there is one.
    pub fn has(&self, kind: u16) -> bool {
        self.get(kind).is_some()
    }

    /// The attributes that are present, by type.
    pub fn iter(&self) -> impl Iterator<Item = Attr<'a>> + '_ {
        self.table.iter().flatten().copied()
    }

    /// The attribute of a type, or the error that says that it is missing
    /// (`NL_REQ_ATTR_CHECK`).
    pub fn required(&self, kind: u16) -> Result<Attr<'a>, Error> {
        self.get(kind)
            .ok_or_else(|| self.missing(kind, Errno::EINVAL))
    }

    /// The error that says that an attribute is missing.
    pub fn missing(&self, kind: u16, errno: Errno) -> Error {
        let missing = Some(kind.into());
        Error {
            missing,
            missing_from: self.nest,
            ..Error::new(errno)
        }
    }

    /// The structure or integer in an attribute, if it is there.
    pub fn fixed<T: FromBytes>(&self, kind: u16) -> Result<Option<T>, Error> {
        self.get(kind).map(|attr| attr.fixed()).transpose()
    }

    /// The integer in an attribute, if it is there.
    pub fn u8(&self, kind: u16) -> Result<Option<u8>, Error> {
        self.fixed(kind)
    }

    /// The integer in an attribute, if it is there.
    pub fn u16(&self, kind: u16) -> Result<Option<u16>, Error> {
        self.fixed(kind)
    }

    /// The integer in an attribute, if it is there.
    pub fn u32(&self, kind: u16) -> Result<Option<u32>, Error> {
        self.fixed(kind)
    }

    /// The integer in an attribute, if it is there.
    pub fn u64(&self, kind: u16) -> Result<Option<u64>, Error> {
        self.fixed(kind)
    }

    /// The string in an attribute, if it is there.
    pub fn str(&self, kind: u16) -> Result<Option<&'a str>, Error> {
        self.get(kind).map(|attr| attr.str()).transpose()
    }
}
