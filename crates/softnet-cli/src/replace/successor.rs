//! The daemon that takes over, as the one that runs sees it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendFlags, Shutdown, shutdown};
use softnet_engine::LinkInfo;
use softnet_io::rights::{Channel, FILES};
use softnet_io::{DeviceSpec, HandOff, OpenDevice};
use softnet_rtnl::First;
use softnet_rtnl::server::Running;

use super::{Message, channel, ended, memory, receive};
use crate::failure::{Exit, Failure, chain};
use crate::log::{Level, log, log_at};
use crate::notify::Notify;
use crate::reload::Loaded;
use crate::setup::Engine;

/// Time in which queued packets may still leave: within what a stream through a port may stall.
const DRAIN: Duration = Duration::from_millis(50);

/// A daemon that wants to take over.
#[derive(Debug)]
pub(crate) struct Successor {
    channel: Channel,
}

/// The parts of this daemon that it is to have.
pub(crate) struct Parts<'a> {
    pub first: &'a First<softnet_io::PortDevices>,
    pub loaded: &'a Mutex<Loaded>,
    pub server: &'a Running,
    pub metrics: Option<&'a OwnedFd>,
}

/// The end of a try.
type Tried = Result<(), Failure>;

impl Successor {
    /// On a connection that the control thread has released.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Successor> {
        Ok(Successor {
            channel: channel(socket)?,
        })
    }

    /// True if it says something, or is gone.
    pub(crate) fn is_due(&self) -> bool {
        let mut file = [PollFd::new(&self.channel, PollFlags::IN)];
        poll(&mut file, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Another one is to take over. It is told: the connection's end alone would be this daemon's
    /// death to it. Never waits.
    pub(crate) fn turn_away(self) {
        let told = Message::Refused("another successor has come".into());
        // If it is gone, that is no news.
        let _ = self.channel.send(&told, &[], SendFlags::DONTWAIT);
        // What it has said, or would, must not be left unread: it would find the connection reset
        // in the place of the message.
        if shutdown(&self.channel, Shutdown::Read).is_ok() {
            while let Ok(Some(_)) = self.channel.receive::<Message>() {}
        }
    }

    /// Hands off, if the successor asks for it. An error: this daemon goes on.
    pub(crate) fn replace(&self, parts: &Parts<'_>, notify: &mut Notify) -> Tried {
        let gone = || Failure::new(Exit::Failure, "the successor has ended");
        let failed = |error: io::Error| Failure::new(Exit::Failure, chain(&error));
        let asked = receive(&self.channel, || {}).map_err(|error| self.refuse(failed(error)))?;
        let Some((Message::Go { pid }, _)) = asked else {
            return Err(self.refuse(gone()));
        };
        if !parts.server.hold() {
            parts.server.go_on();
            let busy = Failure::new(Exit::Failure, "the control thread is busy");
            return Err(self.refuse(busy));
        }
        let tried = self.hand_off(pid, parts, notify);
        if tried.is_err() {
            if let Err(error) = parts.server.own() {
                log(chain(&error));
            }
            parts.server.go_on();
        }
        tried
    }

    /// Tells it that this daemon goes on. Without that it would take the connection's end for this
    /// daemon's death. If it is gone, that is no news.
    fn refuse(&self, why: Failure) -> Failure {
        let _ = self.say(&Message::Refused(why.to_string()), &[]);
        why
    }

    /// Closes all devices and hands them off to the process `pid`. An error: it was refused, they
    /// are open again, and nothing else has changed.
    fn hand_off(&self, pid: u32, parts: &Parts<'_>, notify: &mut Notify) -> Tried {
        let failed = |error: io::Error| Failure::new(Exit::Failure, chain(&error));
        let loaded = crate::daemon::lock(parts.loaded);
        let engine = parts.first.lock();
        let close = || {
            let text = loaded.state(&engine)?.text();
            let text = text.map_err(|error| failed(error.into()))?;
            let state = memory(text.as_bytes()).map_err(failed)?;
            let devices = named(&engine);
            let closed = engine.suspend(DRAIN);
            let closed = closed.map_err(|error| Failure::new(Exit::Failure, chain(&error)))?;
            Ok((state, devices, closed))
        };
        let (state, devices, closed) = close().map_err(|why| self.refuse(why))?;
        let sent = self.send(&state, &devices, parts).and_then(|()| {
            match receive(&self.channel, || notify.alive())? {
                Some((Message::Running, _)) => {
                    notify.main_pid(pid);
                    // It may have been gone for long, where this process had no CPU.
                    let said = self.say(&Message::Yours, &[]);
                    said.inspect_err(|_| notify.main_pid(std::process::id()))
                }
                _ => Err(io::Error::other("the successor failed")),
            }
        });
        let Err(error) = sent else {
            return Ok(());
        };
        let why = self.refuse(failed(error));
        // Until then it may have the devices open.
        if !ended(&self.channel, || notify.alive()) {
            log_at(
                Level::Error,
                "the refused daemon does not end: it may still use devices of this one",
            );
        }
        for (_, device) in &devices {
            match device.hand_off() {
                Ok(handed) => engine.devices().give(device.spec.clone(), handed),
                Err(error) => log(chain(&error)),
            }
        }
        for index in closed {
            // Otherwise it is looked after, as any device that is gone.
            if let Err(error) = engine.reopen_device(index) {
                log(chain(&error));
            }
        }
        engine.devices().own();
        Err(why)
    }

    fn send(
        &self,
        state: &OwnedFd,
        devices: &[(String, OpenDevice)],
        parts: &Parts<'_>,
    ) -> io::Result<()> {
        self.say(&Message::State, &[state.as_fd()])?;
        for (port, device) in devices {
            let HandOff { mut files, rest } = device.hand_off()?;
            let has_rest = !rest.is_empty();
            if has_rest {
                files.push(memory(&rest)?);
            }
            let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
            let mut left = files.as_slice();
            while left.len() > FILES {
                let (some, more) = left.split_at(FILES);
                self.say(&Message::Files, some)?;
                left = more;
            }
            let (port, rest) = (port.clone(), has_rest);
            self.say(&Message::Device { port, rest }, left)?;
        }
        let sockets = parts.server.sockets()?;
        let sockets = [sockets.listener, sockets.monitor].into_iter().flatten();
        let sockets: Vec<OwnedFd> = sockets.collect();
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        self.say(&Message::Control, &sockets)?;
        if let Some(metrics) = parts.metrics {
            self.say(&Message::Metrics, &[metrics.as_fd()])?;
        }
        self.say(&Message::End, &[])
    }

    fn say(&self, message: &Message, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.channel.send(message, files, SendFlags::empty())
    }
}

/// The open devices with the names of their ports.
pub(crate) fn named(engine: &Engine) -> Vec<(String, OpenDevice)> {
    let links = engine.links();
    let has =
        |link: &LinkInfo<DeviceSpec>, spec: &DeviceSpec| link.open && link.device() == Some(spec);
    let name_of = |open: &OpenDevice| {
        // Unless it has another name by now.
        let link = engine.link_named(&open.port).ok();
        let link = link.filter(|link| has(link, &open.spec));
        let link = link.or_else(|| links.values().find(|link| has(link, &open.spec)).cloned());
        Some(link?.settings.name.clone())
    };
    let open = engine.devices().open_devices().into_iter();
    open.filter_map(|device| Some((name_of(&device)?, device)))
        .collect()
}
