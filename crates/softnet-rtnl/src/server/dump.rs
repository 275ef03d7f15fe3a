//! A dump: chunks, one at a time, when the client has taken the last.

use super::{OPERATION, answer};
use crate::nl::{
    Chunk, Client, Errno, Error, Head, Messages, NLM_F_DUMP_INTR, NLM_F_MULTI, Operation,
    Position, Progress, Request, Service,
};

/// Text in one message.
const PART: usize = 16 * 1024;

/// A dump in progress.
#[derive(Debug)]
pub(super) struct Dump {
    /// The message that asked for it.
    request: Vec<u8>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Objects of the service, from a position on; its generation at the last chunk.
    Objects(Position, u64),
    /// The answer to an operation, from a byte on.
    Text(String, usize),
}

impl Dump {
    /// A dump of objects.
    pub(super) fn new(request: &Request<'_>, service: &impl Service) -> Dump {
        let source = Source::Objects(Position::default(), service.generation(request));
        Dump {
            request: request.message().to_vec(),
            source,
        }
    }

    /// A dump of text.
    pub(super) fn text(request: &Request<'_>, text: String) -> Dump {
        Dump {
            request: request.message().to_vec(),
            source: Source::Text(text, 0),
        }
    }

    /// Appends a line to the answer to a change.
    pub(super) fn note(&mut self, note: &str) {
        let request = Request::read(&self.request);
        let number = request.and_then(|request| request.header::<u32>().ok());
        let is_change = number
            .and_then(Operation::from_number)
            .is_some_and(Operation::is_change);
        if let Source::Text(text, 0) = &mut self.source
            && is_change
        {
            *text += note;
            text.push('\n');
        }
    }

    /// Bytes of text that it holds.
    pub(super) fn held(&self) -> usize {
        match &self.source {
            Source::Objects(..) => 0,
            Source::Text(text, _) => text.len(),
        }
    }

    /// The next chunk, which ends with `NLMSG_DONE` if it is the last.
    ///
    /// # Errors
    /// If there is no dump of this type.
    pub(super) fn next(
        &mut self,
        client: &Client,
        service: &mut impl Service,
    ) -> Result<(Vec<Messages>, Progress), Error> {
        let Some(request) = Request::read(&self.request) else {
            return Err(Error::new(Errno::EINVAL));
        };
        let mut messages = Messages::new();
        let (result, flags) = match &mut self.source {
            Source::Objects(position, generation) => {
                let now = service.generation(&request);
                let flags = if now == *generation {
                    0
                } else {
                    NLM_F_DUMP_INTR
                };
                *generation = now;
                let first = *position == Position::default();
                let mut chunk = Chunk::new(&request, client, &mut messages);
                let result = service.dump(&request, client, position, &mut chunk);
                if let Err(error) = &result
                    && first
                    && messages.is_empty()
                    && *error == Error::new(Errno::EOPNOTSUPP)
                {
                    return Err(error.clone());
                }
                messages.set_flags(flags);
                (result, flags)
            }
            Source::Text(text, at) => (text_part(&request, client, text, at, &mut messages), 0),
        };
        let error = match result {
            // An object that does not fit an empty chunk never will.
            Ok(Progress::More) if messages.is_empty() => Some(Error::new(Errno::EMSGSIZE)),
            Ok(Progress::More) => return Ok((vec![messages], Progress::More)),
            Ok(Progress::Done) => None,
            Err(error) => Some(error),
        };
        let head = Head {
            flags,
            seq: request.seq,
            pid: client.port,
            ..Head::default()
        };
        let mut chunks = vec![messages];
        if answer::done(&mut chunks[0], head, error.as_ref()).is_err() {
            let mut last = Messages::new();
            // It fits an empty datagram: its texts are cut.
            let _ = answer::done(&mut last, head, error.as_ref());
            chunks.push(last);
        }
        Ok((chunks, Progress::Done))
    }
}

/// A part of a text, padded with zeros as messages are.
fn text_part(
    request: &Request<'_>,
    client: &Client,
    text: &str,
    at: &mut usize,
    messages: &mut Messages,
) -> Result<Progress, Error> {
    let rest = text.as_bytes().get(*at..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(Progress::Done);
    }
    let part = &rest[..rest.len().min(PART)];
    let head = Head {
        kind: OPERATION,
        flags: NLM_F_MULTI,
        seq: request.seq,
        pid: client.port,
    };
    if messages.message(head, part, |_| {}).is_ok() {
        *at += part.len();
    }
    Ok(Progress::More)
}
