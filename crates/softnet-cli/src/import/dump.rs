//! The objects of the kernel's dumps as they were asked for: without what came by itself, and
//! without what dumps show beside them.

mod tables;

use std::collections::BTreeSet;

use softnet_rtnl::nl::headers::TcMsg;
use softnet_rtnl::nl::{Attr, Errno, Error, NLA_HDRLEN, Request};
use softnet_tc::{LinkDefaults, QdiscKind};

use self::tables::{List, Tables};
use super::{NEWCLASS, NEWFILTER, NEWQDISC};

/// Attributes of a dump that a request may have: kind, options, size table, chain, blocks.
const ASKED: [u16; 6] = [KIND, OPTIONS, 8, CHAIN, 13, 14];
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const CHAIN: u16 = 11;
/// An option of `htb`, which begins with a version.
const HTB_INIT: u16 = 2;
/// Kinds of filters, and their option that names the interface that received.
const INDEV: [(&str, u16); 3] = [("flower", 2), ("u32", 8), ("fw", 3)];
/// `TC_H_ROOT`
const ROOT: u32 = u32::MAX;

/// An object as the kernel dumps it.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) message: u16,
    pub(super) header: TcMsg,
    pub(super) kind: String,
    pub(super) attributes: Vec<(u16, Vec<u8>)>,
    /// The hash table of a `u32` filter, with its bucket, and the one that it leads to.
    table: Option<u32>,
    link: Option<u32>,
    /// Size of a `u32` hash table, if this is one.
    divisor: Option<u32>,
    /// Another interface that a filter names as the one that received (`indev`).
    indev: Option<String>,
}

/// The objects to ask for.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) objects: Vec<Object>,
    /// Objects for which there are no words.
    pub(super) refused: Vec<(Object, Error)>,
    /// Transmit queues that the tree needs.
    pub(super) queues: usize,
}

impl Object {
    /// An object of the interface `dev`.
    pub(super) fn read(message: &Request<'_>, dev: &str) -> Option<Object> {
        let mut object = Object {
            message: message.kind,
            header: message.header().ok()?,
            kind: String::new(),
            attributes: Vec::new(),
            table: None,
            link: None,
            divisor: None,
            indev: None,
        };
        let attributes: Vec<Attr<'_>> = message.attr_iter::<TcMsg>().ok()?.collect();
        let kind = attributes.iter().find(|of| of.kind() == KIND);
        object.kind = kind?.str().ok()?.to_owned();
        let is_u32 = object.message == NEWFILTER && object.kind == "u32";
        let is_htb = object.message == NEWQDISC && object.kind == "htb";
        for attribute in attributes {
            let data = match attribute.kind() {
                OPTIONS if is_htb => of_version(&attribute),
                _ => attribute.data.to_vec(),
            };
            if attribute.kind() == OPTIONS && is_u32 {
                object.note_tables(&attribute);
            }
            if attribute.kind() == OPTIONS && object.message == NEWFILTER {
                object.note_indev(&attribute, dev);
            }
            if ASKED.contains(&attribute.kind()) {
                object.attributes.push((attribute.kind(), data));
            }
        }
        Some(object)
    }

    fn note_indev(&mut self, options: &Attr<'_>, dev: &str) {
        let known = INDEV.iter().find(|(kind, _)| *kind == self.kind);
        let Some(&(_, option)) = known else { return };
        let named = options.children().find(|of| of.kind() == option);
        let name = named.and_then(|named| named.str().ok());
        self.indev = name.filter(|name| *name != dev).map(str::to_owned);
    }

    fn has(&self, kind: u16) -> bool {
        self.attributes.iter().any(|(of, _)| *of == kind)
    }

    /// The list that a filter is in.
    fn list(&self) -> List {
        let chain = self.attributes.iter().find(|(kind, _)| *kind == CHAIN);
        let chain = chain.map_or_else(Vec::new, |(_, chain)| chain.clone());
        (self.header.parent, chain, self.header.info)
    }
}

/// The options of an `htb` with the version that requests have: the upper half of what is shown.
fn of_version(options: &Attr<'_>) -> Vec<u8> {
    let mut bytes = options.data.to_vec();
    let mut at = 0;
    for option in options.children() {
        let value = bytes.get_mut(at + NLA_HDRLEN..);
        let version = value.and_then(|value| value.first_chunk_mut::<4>());
        if let Some(version) = version.filter(|_| option.kind() == HTB_INIT) {
            *version = (u32::from_ne_bytes(*version) >> 16).to_ne_bytes();
        }
        at += (NLA_HDRLEN + option.data.len()).next_multiple_of(4);
    }
    bytes
}

/// The policy in what the kernel dumped.
pub(super) fn policy(dumped: Vec<Object>) -> Policy {
    let mut policy = Policy {
        objects: Vec::new(),
        refused: Vec::new(),
        queues: 1,
    };
    let of_mq = dumped.iter().filter(|of| of.message == NEWCLASS);
    let queues = of_mq.filter(|of| of.kind == "mq").count();
    let root = new_root(&dumped);
    let tables = Tables::of(&dumped);
    for mut object in dumped {
        let refused = match object.message {
            NEWQDISC if is_default(&object, root) => continue,
            NEWQDISC => {
                if object.kind == "mq" {
                    policy.queues = queues.max(1);
                }
                name(&mut object, root);
                None
            }
            // Others come with their qdiscs.
            NEWCLASS if !adds_classes(&object.kind) => continue,
            // What the filters of a priority have in common.
            NEWFILTER if object.header.handle == 0 || !object.has(OPTIONS) => continue,
            NEWFILTER => match of_filter(&mut object, &tables) {
                Ok(true) => None,
                Ok(false) => continue,
                Err(error) => Some(error),
            },
            _ => None,
        };
        match refused {
            None => policy.objects.push(object),
            Some(error) => policy.refused.push((object, error)),
        }
    }
    // A list begins with a table whose number is free then: those that were asked for come first.
    let is_filter = |of: &Object| of.message == NEWFILTER && of.divisor.is_none();
    policy.objects.sort_by_key(is_filter);
    policy.objects = parents_first(policy.objects);
    policy
}

/// Classes after the classes that they are below: the kernel, and so the service, makes one whose
/// parent is not there a class of the qdisc itself.
fn parents_first(objects: Vec<Object>) -> Vec<Object> {
    let (mut classes, mut sorted): (Vec<Object>, Vec<Object>) =
        objects.into_iter().partition(|of| of.message == NEWCLASS);
    while !classes.is_empty() {
        let left: BTreeSet<u32> = classes.iter().map(|of| of.header.handle).collect();
        let is_below = |of: &Object| left.contains(&of.header.parent);
        let (below, ready): (Vec<Object>, Vec<Object>) = classes.into_iter().partition(is_below);
        // A circle is nothing that a kernel shows.
        let (more, rest) = if ready.is_empty() {
            (below, Vec::new())
        } else {
            (ready, below)
        };
        sorted.extend(more);
        classes = rest;
    }
    sorted
}

/// True of what is there when nobody asked for anything.
fn is_default(object: &Object, root: Option<u32>) -> bool {
    let comes = match object.kind.as_str() {
        "pfifo_fast" | "noqueue" | "noop" => true,
        // The children alone make it anything else.
        "mq" => object.header.parent == ROOT && root.is_none(),
        _ => false,
    };
    comes && object.header.handle == 0
}

/// A handle for the root, if the kernel made that by itself (`default_qdisc`) and it is not
/// [`is_default`].
fn new_root(dumped: &[Object]) -> Option<u32> {
    let nameless = |of: &&Object| of.message == NEWQDISC && of.header.handle == 0;
    let plain = ["pfifo_fast", "noqueue", "noop", "mq"];
    let mut others = dumped.iter().filter(nameless);
    let is_needed = others.any(|of| !plain.contains(&of.kind.as_str()));
    let root = dumped.iter().filter(nameless);
    let has_root = root.clone().any(|of| of.header.parent == ROOT);
    if !is_needed || !has_root {
        return None;
    }
    let used: BTreeSet<u32> = dumped.iter().map(|of| of.header.handle >> 16).collect();
    let free = (1..0x8000).find(|major| !used.contains(major))?;
    Some(free << 16)
}

/// Names the root, where it had no name, and what is below it.
fn name(object: &mut Object, root: Option<u32>) {
    let (header, root) = (&mut object.header, root.unwrap_or(0));
    if header.parent == ROOT && header.handle == 0 {
        header.handle = root;
    } else if header.parent != ROOT && header.parent >> 16 == 0 {
        header.parent |= root;
    }
}

/// True of a kind whose classes are asked for one by one.
fn adds_classes(kind: &str) -> bool {
    let kind = QdiscKind::find(kind);
    kind.is_some_and(|kind| (kind.default)(&LinkDefaults::default()).adds_classes())
}

/// Makes a filter one to ask for; false: it stands for nothing.
fn of_filter(object: &mut Object, tables: &Tables) -> Result<bool, Error> {
    let options = object.attributes.iter().find(|(kind, _)| *kind == OPTIONS);
    let is_mirred = |(_, bytes): &(u16, Vec<u8>)| bytes.windows(7).any(|part| part == b"mirred\0");
    if options.is_some_and(is_mirred) {
        let text = "mirred leads to an interface that is not imported";
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    if let Some(name) = &object.indev {
        let text = format!("indev names {name}, an interface that is not imported");
        return Err(Error::new(Errno::EOPNOTSUPP).text(text));
    }
    match object.kind.as_str() {
        "u32" => tables.place(object),
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests {
    use softnet_rtnl::nl::{Head, Messages};
    use softnet_tc::Handle;

    use super::*;

    pub(super) fn object(message: u16, kind: &str, handle: u32, parent: u32) -> Object {
        Object {
            message,
            header: TcMsg {
                handle,
                parent,
                ..TcMsg::default()
            },
            kind: kind.to_owned(),
            attributes: vec![(OPTIONS, Vec::new())],
            table: None,
            link: None,
            divisor: None,
            indev: None,
        }
    }

    fn names(policy: &Policy) -> Vec<(String, String, String)> {
        let handle = |raw| Handle::from_raw(raw).to_string();
        let objects = policy.objects.iter();
        let names = objects.map(|Object { header, kind, .. }| {
            (kind.clone(), handle(header.handle), handle(header.parent))
        });
        names.collect()
    }

    #[test]
    fn what_comes_by_itself_is_no_policy() {
        let plain = [
            object(NEWQDISC, "mq", 0, ROOT),
            object(NEWQDISC, "pfifo_fast", 0, 1),
            object(NEWCLASS, "mq", 1, ROOT),
        ];
        let policy = policy(plain.to_vec());
        assert!(
            policy.objects.is_empty() && policy.queues == 1,
            "{policy:?}"
        );
    }

    /// `net.core.default_qdisc`, at one queue and at several.
    #[test]
    fn a_default_of_the_system_gets_a_name() {
        let one = policy(vec![object(NEWQDISC, "fq_codel", 0, ROOT)]);
        let named = |kind: &str, handle: &str, parent: &str| {
            (kind.to_owned(), handle.to_owned(), parent.to_owned())
        };
        assert_eq!(names(&one), [named("fq_codel", "1:", "root")]);
        let many = policy(vec![
            object(NEWQDISC, "ingress", 0xffff_0000, 0xffff_fff1),
            object(NEWQDISC, "mq", 0, ROOT),
            object(NEWQDISC, "fq_codel", 0, 2),
            object(NEWQDISC, "fq_codel", 0, 1),
            object(NEWCLASS, "mq", 1, ROOT),
            object(NEWCLASS, "mq", 2, ROOT),
        ]);
        let expected = [
            named("ingress", "ffff:", "ffff:fff1"),
            named("mq", "1:", "root"),
            named("fq_codel", "none", "1:2"),
            named("fq_codel", "none", "1:1"),
        ];
        assert_eq!((names(&many).as_slice(), many.queues), (&expected[..], 2));
    }

    /// A filter for what the interface itself has received stays.
    #[test]
    fn filters_that_name_another_interface_are_refused() {
        let filter = |kind: &str, option: u16, indev: &str| {
            let mut messages = Messages::new();
            let head = Head {
                kind: NEWFILTER,
                flags: 0,
                seq: 1,
                pid: 0,
            };
            let header = TcMsg {
                handle: 1,
                ..TcMsg::default()
            };
            let _ = messages.message(head, &header, |out| {
                out.put_str(KIND, kind);
                out.nest(OPTIONS, |out| out.put_str(option, indev));
            });
            let request = Request::read(messages.as_bytes()).expect("a message");
            Object::read(&request, "t0").expect("an object")
        };
        let others = INDEV.map(|(kind, option)| filter(kind, option, "t1"));
        let refused = policy(others.to_vec()).refused;
        let text = "indev names t1, an interface that is not imported";
        let is_said = |error: &Error| error.text.as_deref() == Some(text);
        assert!(
            refused.iter().all(|(_, error)| is_said(error)),
            "{refused:?}"
        );
        assert_eq!(refused.len(), 3);
        let own = [
            filter("flower", 2, "t0"),
            filter("fw", 3, "t0"),
            filter("matchall", 2, "t1"),
        ];
        let policy = policy(own.to_vec());
        assert_eq!((policy.objects.len(), policy.refused.len()), (3, 0));
    }

    #[test]
    fn parents_are_asked_for_first() {
        let policy = policy(vec![
            object(NEWCLASS, "htb", 0x10010, 0x10001),
            object(NEWCLASS, "htb", 0x10011, 0x10010),
            object(NEWCLASS, "htb", 0x10001, ROOT),
        ]);
        let handles = policy.objects.iter().map(|of| of.header.handle);
        assert_eq!(handles.collect::<Vec<_>>(), [0x10001, 0x10010, 0x10011]);
    }
}
