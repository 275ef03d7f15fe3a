//! `[engine]`: workers, buffers, and where the daemon listens.

use std::thread;
use std::time::Duration;

use softnet_engine::rx::BACKLOG_LIMIT;
use softnet_io::{MetricsPlace, Scheduling};
use softnet_tc::DefaultQdisc;
use softnet_tc::Unset::{Value, Words};

use super::allow::ALLOW;
use super::control::{FILE, GROUP, MODE, PATH, default_mode};
use super::form::{List, Maybe, Number, Text, Time, Word};
use super::key::{self, Key, keys, names};
use super::model::Config;
use super::table::Table;
use super::write::Writer;

const WORKERS_MAX: i64 = 1024;
/// A pool smaller than one poll of one worker would drop on every burst.
const BUFFERS_MIN: i64 = 256;
const BUFFERS_MAX: i64 = 16_777_216;
/// Longest time that an idle worker may poll before it sleeps: beyond, sleeping costs nothing in
/// comparison.
const BUSY_POLL_MAX: Duration = Duration::from_millis(1);

const SCHEDULING: Word<Option<Scheduling>> = Word(
    &[
        ("auto", None),
        ("realtime", Some(Scheduling::Realtime)),
        ("nice", Some(Scheduling::Nice)),
        ("normal", Some(Scheduling::Normal)),
    ],
    |word| format!("{word:?} is no scheduling class; use auto, realtime, nice or normal"),
);

fn default_qdisc(name: &str) -> Result<DefaultQdisc, String> {
    let text = "cannot be the default qdisc; use one without classes that needs no options, like";
    DefaultQdisc::find(name).ok_or_else(|| format!("{name:?} {text} fq_codel, fq or cake"))
}

pub(super) static ENGINE: &[Key<Config>] = keys! { Config =>
    /// number of worker threads, 1 to 1024
    "workers": Words("the number of `cpus`; without it one per CPU that the process may use"), "0"
        => Number(1, WORKERS_MAX), |c| Some(&mut c.workers);
    /// list with the CPU of each worker
    "cpus": Words("the system chooses"), "[0]"
        => List(Number(0, 1023)), |c| Some(&mut c.cpus);
    /// number of packet buffers of 2 KiB that all ports share, 256 to 16777216
    "buffers": Value, "100"
        => Number(BUFFERS_MIN, BUFFERS_MAX), |c| Some(&mut c.buffers);
    /// packets that may wait on a worker's backlog, 1 to 65000. A large frame counts once for each
    /// 8 KiB of buffers that it keeps
    "max_backlog": Value, "0"
        => Number(1, BACKLOG_LIMIT as i64), |c| Some(&mut c.settings.max_backlog);
    /// how long an idle worker polls before it sleeps, `0s` to `1ms`
    "busy_poll": Value, "\"2ms\""
        => Time(BUSY_POLL_MAX, "0s (never) to 1ms"), |c| Some(&mut c.settings.busy_poll);
    /// kind of the qdisc at a transmit queue to which none is attached, as the kernel's
    /// `net.core.default_qdisc`: one without classes that needs no options
    "default_qdisc": Value, "\"tbf\""
        => Text(default_qdisc, |of| Some(of.name().to_owned())),
        |c| Some(&mut c.settings.default_qdisc);
    /// scheduling class of a worker for the first 2 ms after it is woken, `auto`, `realtime`
    /// (`SCHED_RR`, priority 1), `nice` (level -20) or `normal`; then it is `normal` until it has
    /// nothing to do. Without the right for one the next is used, and `softnet run` says so
    "scheduling": Words("`\"auto\"`: the first of them that the system allows"), "\"fifo\""
        => SCHEDULING, |c| Some(&mut c.scheduling);
    /// path of the socket on which the daemon answers `tc`, `ip` and `bridge` (`softnet exec`)
    "socket": Words("that in `$SOFTNET_SOCKET`; else `/run/softnet/rtnetlink.sock` for root,
        `$XDG_RUNTIME_DIR/softnet/rtnetlink.sock` for others, also for root of a user namespace
        (`unshare -Urn`); without that variable in `$TMPDIR/softnet-UID`"), "\"\""
        => Maybe(PATH), |c| Some(&mut c.control.socket);
    /// mode of that socket, in octal: who may connect
    "socket_mode": Words("with `socket_group` `\"0660\"`, else `\"0600\"`"), "\"rw\""
        => MODE, |c| Some(&mut c.control.mode);
    /// group of that socket, by name or number; its members may change things, as root and the
    /// daemon's own user may
    "socket_group": Words("none"), "\"\""
        => Maybe(GROUP), |c| Some(&mut c.control.group);
    /// path of a file in which the running state outlives the daemon
    /// ([the running state](operations.md#the-running-state))
    "state": Words("none: a start has the configuration alone"), "\"\""
        => Maybe(FILE), |c| Some(&mut c.state);
    /// list of patterns: what of others the privileged helper may open for ports added at run time:
    /// `interface:NAME`, `interface:NAMESPACE/NAME`, `socket:/PATH`, `file:/PATH`; `*`, `?` and
    /// `[…]` stand for characters of a name ([what the helper
    /// opens](security.md#what-the-helper-opens)). A reload may change it
    "allow": Words("`[]`: only what ports of the file name"), "[\"eth0\"]"
        => List(ALLOW), |c| Some(&mut c.allow);
    /// address and port, or path of a Unix socket, at which Prometheus gets counters over HTTP
    /// ([metrics](operations.md#metrics)); whoever can connect can read them
    "metrics": Words("nowhere"), "\"9090\""
        => Maybe(Text(MetricsPlace::parse, MetricsPlace::text)), |c| Some(&mut c.metrics);
    /// number of classes of a port that have metrics of their own: those that sent most. There are
    /// sums over all
    "metrics_classes": Value, "-1"
        => Number(0, 1_000_000), |c| Some(&mut c.metrics_classes);
    /// path of a second socket, on which nothing can be changed; open to everybody unless there is
    /// `monitor_group`
    "monitor_socket": Words("none"), "\"\""
        => Maybe(PATH), |c| Some(&mut c.control.monitor);
    /// group of that socket, by name or number, which alone may then connect there
    "monitor_group": Words("none"), "\"x\""
        => Maybe(GROUP), |c| Some(&mut c.control.monitor_group);
};

/// Reads the table. Without a number in it, there are `workers`. Returned is the number of workers,
/// if what is given is one.
pub(super) fn read(
    table: Option<&Table<'_>>,
    workers: Option<usize>,
    config: &mut Config,
) -> Option<usize> {
    let cpus = || thread::available_parallelism().map_or(1, usize::from);
    let Some(table) = table else {
        config.workers = workers.unwrap_or_else(cpus);
        return Some(config.workers);
    };
    table.known(&names(ENGINE).collect::<Vec<_>>(), |_| "");
    config.workers = 0;
    key::read(ENGINE, table, config, None);
    let listed = table.find("cpus").and_then(|cpus| cpus.as_list());
    if !table.has("workers") {
        let listed = listed.as_ref().map(Vec::len);
        let listed = listed.map(|n| n.clamp(1, WORKERS_MAX as usize));
        config.workers = listed.or(workers).unwrap_or_else(cpus);
    }
    let workers = config.workers;
    if let Some(cpus) = &listed
        && workers != 0
        && cpus.len() != workers
    {
        let n = cpus.len();
        let text = format!("there are {n} CPUs for {workers} workers; give one for each");
        table.problem::<()>("cpus", text);
    }
    let control = &mut config.control;
    if !table.has("socket_mode") {
        control.mode = default_mode(control.group.as_ref());
    }
    if !table.has("monitor_socket") && table.has("monitor_group") {
        let text = "is the group of `monitor_socket`, which is missing";
        table.problem::<()>("monitor_group", text);
    }
    (workers != 0).then_some(workers)
}

pub(super) fn write(w: &mut Writer, config: &Config) {
    w.table("[engine]");
    key::write(w, ENGINE, config, None);
    for path in [
        &config.control.socket,
        &config.control.monitor,
        &config.state,
    ] {
        w.check_path(path.as_deref());
    }
}
