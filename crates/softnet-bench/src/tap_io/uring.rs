//! io_uring for the experiment `tap-io`, and the one socket option that needs unsafe code.

#![allow(unsafe_code, reason = "the kernel is given addresses of buffers")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use io_uring::{IoUring, opcode, squeue, types};

/// A ring with one fixed file and a set of fixed buffers.
pub(super) struct Ring {
    /// Before `buffers`, so that it is dropped first: nothing writes to them after that (see `drop`).
    ring: IoUring,
    buffers: Box<[u8]>,
    buffer_len: usize,
    /// Whether all buffers are posted for reading.
    posted: bool,
    frame: usize,
}

impl Ring {
    /// `count` buffers of `buffer_len` bytes, each holding a header and a frame of `frame` bytes to be written.
    /// `waits`: [`Ring::wait`] will be used instead of the batches.
    pub(super) fn new(
        fd: BorrowedFd<'_>,
        count: usize,
        buffer_len: usize,
        frame: usize,
        waits: bool,
    ) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(u32::try_from(count).map_err(io::Error::other)?)?;
        let mut buffers = vec![0; count * buffer_len].into_boxed_slice();
        for buffer in buffers.chunks_exact_mut(buffer_len) {
            buffer[12..12 + frame].copy_from_slice(&super::frame(frame));
        }
        ring.submitter().register_files(&[fd.as_raw_fd()])?;
        let iovecs: Vec<_> = buffers
            .chunks_exact_mut(buffer_len)
            .map(|b| libc::iovec {
                iov_base: b.as_mut_ptr().cast(),
                iov_len: b.len(),
            })
            .collect();
        // SAFETY: the buffers live in `self` until after the ring is gone and are never moved (boxed).
        unsafe { ring.submitter().register_buffers(&iovecs)? };
        let mut ring = Ring {
            ring,
            buffers,
            buffer_len,
            posted: false,
            frame,
        };
        if waits {
            for index in 0..count {
                ring.post_read(index, 0)?;
            }
            ring.posted = true;
        }
        Ok(ring)
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the entry refers to a registered buffer, within its bounds, and to the registered file. Its buffer is in use by no
        // other operation: batches are waited for, and `wait` posts a buffer again only after its completion.
        unsafe { self.ring.submission().push(entry) }.map_err(io::Error::other)
    }

    /// `flags`: of `preadv2`.
    fn post_read(&mut self, index: usize, flags: i32) -> io::Result<()> {
        let start = self.buffers[index * self.buffer_len..].as_mut_ptr();
        let len = self.buffer_len as u32;
        let read = opcode::ReadFixed::new(types::Fixed(0), start, len, index as u16);
        let read = read.rw_flags(flags).build();
        self.push(&read.user_data(index as u64))
    }

    /// Writes each buffer's first `len` bytes; returns how many frames.
    pub(super) fn write_batch(&mut self, len: usize) -> io::Result<u64> {
        debug_assert!(len == self.frame + 12 && len <= self.buffer_len);
        let count = self.buffers.len() / self.buffer_len;
        for index in 0..count {
            let start = self.buffers[index * self.buffer_len..].as_ptr();
            let write =
                opcode::WriteFixed::new(types::Fixed(0), start, len as u32, index as u16).build();
            self.push(&write)?;
        }
        self.ring.submit_and_wait(count)?;
        for completion in self.ring.completion() {
            if usize::try_from(completion.result()) != Ok(len) {
                return Err(error(completion.result()));
            }
        }
        Ok(count as u64)
    }

    /// Reads up to `count` frames without waiting; returns how many came.
    pub(super) fn read_batch(&mut self, count: usize) -> io::Result<u64> {
        for index in 0..count {
            // O_NONBLOCK alone does not do it: io_uring waits for such a file too.
            self.post_read(index, libc::RWF_NOWAIT)?;
        }
        self.ring.submit_and_wait(count)?;
        let mut frames = 0;
        for completion in self.ring.completion() {
            match completion.result() {
                n if n > 0 => frames += 1,
                n if n == -libc::EAGAIN => {}
                n => return Err(error(n)),
            }
        }
        Ok(frames)
    }

    /// Waits for at least one frame (at most 100 ms); returns how many came. Their buffers are posted again.
    pub(super) fn wait(&mut self) -> io::Result<u64> {
        let timeout = types::Timespec::new().nsec(100_000_000);
        let args = types::SubmitArgs::new().timespec(&timeout);
        match self.ring.submitter().submit_with_args(1, &args) {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ETIME) => return Ok(0),
            Err(e) => return Err(e),
        }
        let mut frames = 0;
        loop {
            let Some(completion) = self.ring.completion().next() else {
                return Ok(frames);
            };
            if completion.result() < 0 {
                return Err(error(completion.result()));
            }
            frames += 1;
            self.post_read(completion.user_data() as usize, 0)?;
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.posted {
            return;
        }
        // Outstanding reads may write to the buffers until they are cancelled.
        let all = types::CancelBuilder::any();
        if self
            .ring
            .submitter()
            .register_sync_cancel(None, all)
            .is_err()
        {
            // Rather a leak than a buffer written to after it was freed.
            std::mem::forget(std::mem::take(&mut self.buffers));
        }
    }
}

fn error(result: i32) -> io::Error {
    if result < 0 {
        io::Error::from_raw_os_error(-result)
    } else {
        io::Error::other("a frame was cut")
    }
}

/// Makes a packet socket send to the interface `index`, past its queueing discipline.
pub(super) fn bypass_socket(socket: OwnedFd, index: u32) -> io::Result<OwnedFd> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a whole `sockaddr_ll` that outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    let (on, len) = (1i32, size_of::<i32>() as libc::socklen_t);
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS);
    // SAFETY: the option's value is one int that outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const on).cast(),
            len,
        )
    })?;
    Ok(socket)
}

fn check(rc: i32) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
