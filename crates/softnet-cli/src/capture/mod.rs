//! `softnet capture`: packets of a port as lines or as a pcapng file.
//!
//! The daemon copies packets and sends them as they are, with what it knows of each ([`stream`]);
//! what is made of them is this process's, and so is the file.

pub(crate) mod line;
mod pcapng;
pub(crate) mod serve;
pub(crate) mod source;
mod story;
mod stream;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use softnet_engine::capture::{CaptureStats, Record};
use softnet_rtnl::nl::Operation;

use self::line::Line;
use self::pcapng::Pcapng;
use self::source::{Received, Source};
use crate::client::{Daemon, Reach};
use crate::failure::{Exit, Failure};
use crate::report;
use crate::selection::Part;
use crate::signals::Stop;

/// Interval at which a capture without packets looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Time that the daemon has for its last numbers.
const LAST: Duration = Duration::from_secs(1);
/// Bytes that are read at once.
pub(crate) const PART: usize = 256 * 1024;

pub(crate) const HELP: &str = "\
Filters are words as tcpdump has them:
  [src|dst] host ADDRESS | net PREFIX | port NUMBER
  ether [src|dst] [host] MAC          vlan [NUMBER]
  tcp, udp, icmp, icmp6, arp, ip, ip6, proto NUMBER
  and, or, not, and parentheses (quoted, for the shell)

Examples:
  softnet capture web -c 20 tcp port 443
  softnet capture web:1:20 -w web.pcapng
  softnet capture web --dropped
  softnet capture web -w - | tshark -r -
  softnet capture vm7 web --story 'udp and dst port 53'

A line, and the comment of a packet in a file, says what happened to it: when, on its way in or
out, in which queue and class, how long it waited, and why it was dropped. With --story a line says
all of that of a packet's way from one port to another: when it came, where and how long it waited,
and that it was sent, or why it was dropped. Needs the right to make changes.";

/// Options of the command line.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub daemon: Reach,
    /// Port, or a class of it: `web`, `web:1:10`. What is received is in no class
    #[arg(value_name = "PORT[:CLASS]")]
    of: Part,
    /// Capture what is dropped at the port, with the reason, not what is received and sent
    #[arg(long)]
    dropped: bool,
    /// End after so many packets
    #[arg(short = 'c', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write a pcapng file, or with `-` to the standard output, instead of lines
    #[arg(short = 'w', value_name = "FILE")]
    write: Option<PathBuf>,
    /// Tell the way of each packet that FLOW, a filter, matches: a line from its arrival to its end
    #[arg(long, value_name = "FLOW", conflicts_with_all = ["dropped", "write"])]
    story: Option<String>,
    /// Packets to capture, such as `udp and host 10.0.0.1`; default: all. With --story: the other
    /// port of their way
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
}

/// Argument of the operation, as JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    port: String,
    class: Option<String>,
    dropped: bool,
    filter: String,
}

/// Answer to the operation, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Started {
    /// The port's name.
    port: String,
    /// Nanoseconds since 1970 at which times of records start.
    base: u64,
    /// Bytes of a frame that come at most.
    snap: u32,
}

/// Captures until it is told to end.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(flow) = &options.story {
        return story::run(options, flow);
    }
    let to_stdout = options.write.as_deref() == Some(Path::new("-"));
    if to_stdout && io::stdout().is_terminal() {
        let what = "the standard output is a terminal; name a file (-w FILE), or leave -w out";
        return Err(Failure::new(Exit::Config, what));
    }
    let stop = Stop::on_signals().map_err(failed("cannot catch signals"))?;
    let filter = options.filter.join(" ");
    let mut source = Source::start(&options.daemon, &options.of, options.dropped, &filter)?;
    source
        .socket
        .set_read_timeout(Some(LOOK))
        .map_err(failed("cannot read from the daemon"))?;
    let output = match &options.write {
        None => Output::Lines(Line::new(&source.port)),
        Some(path) => {
            let out: Box<dyn Write> = match to_stdout {
                true => Box::new(io::stdout()),
                false => Box::new(File::create(path).map_err(|error| {
                    Failure::because(
                        Exit::Config,
                        format!("cannot write {}", path.display()),
                        &error,
                    )
                })?),
            };
            let file = Pcapng::new(BufWriter::new(out), &source.port, source.snap);
            Output::File(file.map_err(failed("cannot write the capture"))?)
        }
    };
    let mut session = Session {
        output,
        base: source.base,
        left: options.count,
        written: 0,
        last: source.base,
    };
    let ended = session
        .receive(&mut source, &stop)
        .and_then(|()| session.settle(&mut source));
    let Source { port, stats, .. } = source;
    match ended.and_then(|()| session.end(stats)) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        result => result.map_err(failed("the capture ended"))?,
    }
    session.report(&port, stats);
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::because(Exit::Failure, what, &error)
}

/// Has the daemon start a capture. Returns its answer, and the socket on which packets come.
fn start(daemon: &Reach, request: &Request) -> Result<(Started, UnixStream), Failure> {
    let request = serde_json::to_string(request)
        .map_err(|error| Failure::because(Exit::Failure, "cannot word the request", &error))?;
    let (text, file) = Daemon::connect(daemon)?.exchange(Operation::Capture, &request)?;
    let not_understood = || Failure::new(Exit::Failure, "the daemon's answer is not understood");
    let started: Started = serde_json::from_str(&text).map_err(|_| not_understood())?;
    let socket = UnixStream::from(file.ok_or_else(not_understood)?);
    Ok((started, socket))
}

/// Destination of the packets.
enum Output {
    Lines(Line),
    File(Pcapng<BufWriter<Box<dyn Write>>>),
}

/// A capture that runs.
struct Session {
    output: Output,
    base: u64,
    /// Packets until the end, if there is one.
    left: Option<u64>,
    written: u64,
    /// Time of the last packet.
    last: u64,
}

impl Session {
    /// Takes packets until there are enough, the daemon or the port is gone, or a signal comes.
    fn receive(&mut self, source: &mut Source, stop: &Stop) -> io::Result<()> {
        let mut part = vec![0; PART];
        while !stop.requested() && self.left != Some(0) {
            match self.take(source, &mut part)? {
                Received::Some => self.flush()?,
                Received::Interrupted | Received::Late => {}
                Received::End => return Ok(()),
            }
        }
        Ok(())
    }

    /// Has the daemon stop, and takes its last numbers. It may not be there any more.
    fn settle(&mut self, source: &mut Source) -> io::Result<()> {
        self.left = Some(0);
        let mut part = vec![0; PART];
        if source.socket.shutdown(Shutdown::Write).is_err()
            || source.socket.set_read_timeout(Some(LAST)).is_err()
        {
            return Ok(());
        }
        while self.take(source, &mut part)? == Received::Some {}
        Ok(())
    }

    /// Takes what has come: packets as long as some are wanted.
    fn take(&mut self, source: &mut Source, part: &mut [u8]) -> io::Result<Received> {
        source.receive(part, |stats, record, frame| match self.left {
            Some(0) => Ok(()),
            _ => self.packet(stats, &record, frame),
        })
    }

    fn packet(&mut self, stats: &CaptureStats, record: &Record, frame: &[u8]) -> io::Result<()> {
        self.last = self.base.saturating_add(record.time.nanos());
        match &mut self.output {
            Output::Lines(line) => {
                let line = line.of(self.last, record, frame);
                io::stdout().lock().write_all(line.as_bytes())?;
            }
            Output::File(file) => file.packet(self.last, record, frame, stats.missed)?,
        }
        self.written += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.output {
            Output::Lines(_) => Ok(()),
            Output::File(file) => file.flush(),
        }
    }

    fn end(&mut self, stats: CaptureStats) -> io::Result<()> {
        if let Output::File(file) = &mut self.output {
            file.statistics(self.last, stats, self.written)?;
        }
        self.flush()
    }

    /// Says what was captured, and what not.
    fn report(&self, port: &str, stats: CaptureStats) {
        let CaptureStats { missed, unseen, .. } = stats;
        report::note(format_args!(
            "port {port:?}: packets captured: {}, missed: {missed}",
            self.written
        ));
        note_unseen(unseen);
    }
}

fn note_unseen(unseen: u64) {
    if unseen > 0 {
        report::note(format_args!(
            "{unseen} more were dropped of which nothing was left to capture (by the driver, or \
             before they were packets)"
        ));
    }
}
