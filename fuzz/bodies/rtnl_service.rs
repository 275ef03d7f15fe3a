//! A service with links by number, for tests of what carries its messages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use softnet_rtnl::nl::headers::IfInfoMsg;
use softnet_rtnl::nl::{
    Chunk, Client, Errno, Error, Message, Operation, Policy, Position, Progress, Replies, Request,
    Rule, Service, Settled, Validation,
};

pub(crate) const NEWLINK: u16 = 16;
pub(crate) const DELLINK: u16 = 17;
pub(crate) const GETLINK: u16 = 18;
pub(crate) const IFNAME: u16 = 3;
pub(crate) const LINKINFO: u16 = 18;
/// `RTNLGRP_LINK`.
pub(crate) const GROUP: u32 = 1;

const INFO: Policy = Policy::new(4, &[(1, Rule::Str { max: 15 }), (2, Rule::NestedAny)]);
const LINK: Policy = Policy::new(
    60,
    &[
        (IFNAME, Rule::Str { max: 15 }),
        (4, Rule::U32),
        (LINKINFO, Rule::NestedAny),
    ],
);

/// Links by number.
#[derive(Debug, Default)]
pub(crate) struct Links {
    pub(crate) links: BTreeMap<u32, String>,
    pub(crate) generation: u64,
    /// Requests and chunks that were answered.
    pub(crate) calls: Arc<Mutex<usize>>,
    /// Links that changed without a request.
    pub(crate) changed: Arc<Mutex<Vec<u32>>>,
    /// Changes were lost.
    pub(crate) lost: bool,
    /// Length of each link's alias.
    pub(crate) padding: usize,
    /// Batches, if their answers wait until they are settled.
    pub(crate) batches: Option<u64>,
    /// The last of them that waits no more.
    pub(crate) settled: Settled,
}

impl Links {
    pub(crate) fn new(links: u32) -> Links {
        let links = (1..=links)
            .map(|index| (index, format!("link{index}")))
            .collect();
        Links {
            links,
            ..Links::default()
        }
    }

    fn put(message: &mut Message<'_>, name: &str, padding: usize) {
        message.put_str(IFNAME, name);
        message.put_bytes(20, &vec![0; padding]);
        message.nest(LINKINFO, |nest| nest.put_str(1, "dummy"));
    }
}

pub(crate) fn header(index: u32) -> IfInfoMsg {
    IfInfoMsg {
        index: index.cast_signed(),
        ..IfInfoMsg::default()
    }
}

impl Service for Links {
    fn request(
        &mut self,
        request: &Request<'_>,
        client: &Client,
        replies: &mut Replies,
    ) -> Result<(), Error> {
        *self.calls.lock().expect("no panic") += 1;
        if std::mem::take(&mut self.lost) {
            replies.overrun();
        }
        if !(NEWLINK..=GETLINK).contains(&request.kind) {
            return Err(Error::new(Errno::EOPNOTSUPP));
        }
        let fixed: IfInfoMsg = request.header()?;
        let index = fixed.index.cast_unsigned();
        let strict = client.strict && request.kind == GETLINK;
        let validation = if strict {
            Validation::Strict
        } else {
            Validation::Liberal
        };
        let attrs = request.attrs::<IfInfoMsg>(&LINK, validation)?;
        if let Some(info) = attrs.get(LINKINFO) {
            info.nested(&INFO)?;
        }
        let padding = self.padding;
        if request.kind == NEWLINK {
            assert!(client.may_change);
            let name = attrs.required(IFNAME)?.str()?.to_string();
            if self.links.contains_key(&index) {
                return Err(Error::new(Errno::EEXIST)
                    .text("the kernel's text")
                    .help("and help"));
            }
            replies.publish(GROUP, NEWLINK, 0, &fixed, |m| Links::put(m, &name, padding));
            // A fuzzer makes many.
            if self.links.len() < 1000 {
                self.links.insert(index, name);
            }
            self.generation += 1;
            return Ok(());
        }
        let Some(name) = self.links.get(&index).cloned() else {
            return Err(Error::new(Errno::ENODEV));
        };
        if request.kind == GETLINK {
            return replies.message(NEWLINK, 0, &fixed, |m| Links::put(m, &name, padding));
        }
        assert!(client.may_change);
        self.links.remove(&index);
        self.generation += 1;
        replies.warning("it is gone");
        replies.publish(GROUP, DELLINK, 0, &fixed, |m| Links::put(m, &name, padding));
        Ok(())
    }

    fn dump(
        &mut self,
        request: &Request<'_>,
        _: &Client,
        position: &mut Position,
        chunk: &mut Chunk<'_>,
    ) -> Result<Progress, Error> {
        *self.calls.lock().expect("no panic") += 1;
        if request.kind != GETLINK {
            return Err(Error::new(Errno::EOPNOTSUPP));
        }
        request.header::<IfInfoMsg>()?;
        for (index, name) in self.links.range(position.link..) {
            position.link = *index;
            let put = |m: &mut Message<'_>| Links::put(m, name, self.padding);
            if chunk.message(NEWLINK, 0, &header(*index), put).is_err() {
                return Ok(Progress::More);
            }
            // Half of a dump, for tests of its end.
            if name == "bad" {
                return Err(Error::invalid("a bad link"));
            }
        }
        Ok(Progress::Done)
    }

    fn generation(&self, _: &Request<'_>) -> u64 {
        self.generation
    }

    fn operate(
        &mut self,
        operation: Operation,
        argument: &[u8],
        client: &Client,
        replies: &mut Replies,
    ) -> Result<String, Error> {
        match operation {
            Operation::Stats | Operation::Show | Operation::DryRun | Operation::Log => {
                Ok(format!("links {}\n", self.links.len()))
            }
            Operation::Capture | Operation::Replace => {
                assert!(client.may_change);
                Err(Errno::EOPNOTSUPP.into())
            }
            Operation::DumpConfig => Ok("0123456789".repeat(argument.len())),
            Operation::Reload | Operation::Change => {
                assert!(client.may_change);
                replies.publish(GROUP, NEWLINK, 0, &header(7), |_| {});
                Err(Error::invalid("line 3 is wrong"))
            }
        }
    }

    fn end_batch(&mut self) -> Option<u64> {
        let batches = self.batches.as_mut()?;
        *batches += 1;
        Some(*batches)
    }

    fn settled(&self) -> Settled {
        self.settled.clone()
    }

    fn changes(&mut self, replies: &mut Replies) {
        if std::mem::take(&mut self.lost) {
            replies.overrun();
        }
        for index in self.changed.lock().expect("no panic").drain(..) {
            replies.publish(GROUP, NEWLINK, 0, &header(index), |_| {});
        }
    }
}
