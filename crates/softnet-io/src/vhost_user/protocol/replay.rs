//! The messages that bring a connection to where another process had it.
//!
//! They are those of a front end, and are read and checked as such. Where a ring was left is not
//! among them: the ring shows it.

use std::io;
use std::os::fd::OwnedFd;

use zerocopy::{FromBytes, IntoBytes};

use super::{Protocol, ProtocolError};
use crate::vhost_user::message::{HEADER_LEN, Header, MessageError, Request};

/// Numbers of requests.
const SET_FEATURES: u32 = 2;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const NET_SET_MTU: u32 = 20;
const ADD_MEM_REG: u32 = 37;
const SET_STATUS: u32 = 39;

/// `SET_VRING_KICK` and its like without a file.
const NO_FILE: u64 = 1 << 8;

/// Why a connection does not go on.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Bytes that are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message that is not possible.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    /// The end is missing.
    #[error("what the process before this one left of the connection is cut")]
    Cut,
}

/// Messages with their files.
#[derive(Debug, Default)]
pub struct Messages {
    /// Headers and payloads.
    pub bytes: Vec<u8>,
    /// Files, in the order of the messages.
    pub files: Vec<OwnedFd>,
}

impl Messages {
    fn push(&mut self, request: u32, payload: &[u8]) {
        // A request of version 1.
        let header = [request, 1, payload.len() as u32];
        self.bytes
            .extend(header.into_iter().flat_map(u32::to_ne_bytes));
        self.bytes.extend_from_slice(payload);
    }

    fn push_u64(&mut self, request: u32, value: u64) {
        self.push(request, &value.to_ne_bytes());
    }

    fn push_ring(&mut self, request: u32, ring: usize, value: u32) {
        let payload = [(ring as u32).to_ne_bytes(), value.to_ne_bytes()];
        self.push(request, payload.as_flattened());
    }

    fn push_file(&mut self, request: u32, ring: usize, file: &OwnedFd) -> io::Result<()> {
        self.push_u64(request, ring as u64);
        self.files.push(file.try_clone()?);
        Ok(())
    }
}

impl Protocol {
    /// Messages that bring a new connection to where this one is.
    ///
    /// # Errors
    /// If no file descriptors are left.
    pub fn messages(&self) -> io::Result<Messages> {
        let mut messages = Messages::default();
        messages.push_u64(SET_PROTOCOL_FEATURES, self.protocol);
        if let Some(features) = self.features {
            messages.push_u64(SET_FEATURES, features);
        }
        if self.status != 0 {
            messages.push_u64(SET_STATUS, self.status);
        }
        if self.mtu != 0 {
            messages.push_u64(NET_SET_MTU, self.mtu.into());
        }
        for (spec, file) in &self.files {
            let fields = [0, spec.guest, spec.len, spec.user, spec.offset];
            messages.push(ADD_MEM_REG, fields.map(u64::to_ne_bytes).as_flattened());
            messages.files.push(file.try_clone()?);
        }
        for (number, ring) in self.rings.iter().enumerate() {
            if ring.size != 0 {
                messages.push_ring(SET_VRING_NUM, number, ring.size.into());
            }
            if let Some(addresses) = &ring.addresses {
                messages.push(SET_VRING_ADDR, addresses.as_bytes());
            }
            messages.push_ring(SET_VRING_BASE, number, ring.base);
            if let Some(call) = &ring.call {
                messages.push_file(SET_VRING_CALL, number, call)?;
            }
            if let Some(enabled) = ring.enabled {
                messages.push_ring(SET_VRING_ENABLE, number, enabled.into());
            }
            // Last, as it starts the ring.
            if let Some(kick) = &ring.kick {
                messages.push_file(SET_VRING_KICK, number, kick)?;
            }
        }
        Ok(messages)
    }

    /// Does what messages of another process say.
    ///
    /// # Errors
    /// [`ReplayError`]: the connection is to be closed.
    pub fn replay(&mut self, messages: Messages) -> Result<(), ReplayError> {
        let mut files = messages.files.into_iter();
        let mut rest = messages.bytes.as_slice();
        while let Some((header, more)) = rest.split_first_chunk::<HEADER_LEN>() {
            let number = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let header = Header::parse(*header)?;
            let (payload, more) = more
                .split_at_checked(header.payload_len())
                .ok_or(ReplayError::Cut)?;
            rest = more;
            let value = u64::read_from_bytes(payload).unwrap_or(0);
            let has_file = match number {
                ADD_MEM_REG => true,
                SET_VRING_KICK | SET_VRING_CALL => value & NO_FILE == 0,
                _ => false,
            };
            let files = files.by_ref().take(has_file.into()).collect();
            self.handle(Request::parse(&header, payload, files)?)?;
        }
        match rest {
            [] => Ok(()),
            _ => Err(ReplayError::Cut),
        }
    }

    /// Forgets files of regions that are gone.
    pub(super) fn prune_files(&mut self) {
        let regions = self.memory.regions();
        self.files
            .retain(|(spec, _)| regions.iter().any(|region| region.spec() == spec));
    }
}
