//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Instant;

use clap::{Parser, Subcommand};

use softnet_rtnl::nl::Operation;

use crate::client::{self, Daemon};
use crate::daemon::{self, Start};
use crate::failure::{Exit, Failure};
use crate::privileges::{self, Separation};
use crate::reload::Loaded;
use crate::{
    capture, check, config, demo, documents, exec, import, port, report, sim, stats, top,
};

const EXIT_CODES: &str = "Exit codes:
  0    success; `run` was stopped by SIGINT or SIGTERM and stopped cleanly
  1    it failed while running, or no daemon can be reached
  2    the command line or the configuration is wrong, or what it names cannot be opened: a socket
       for clients, or a port (`reload`, `run --strict`)
  3    `check --strict` found no error, but something to warn of; `import --strict` left something
       out; a result of `sim` breaks an expectation
  130  `demo` was interrupted before it was done, or a second signal ended `run` at once";

/// The release, and the revision if the build was told which it is.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let release = env!("CARGO_PKG_VERSION");
    option_env!("SOFTNET_REVISION").map_or_else(
        || release.to_owned(),
        |revision| format!("{release} ({revision})"),
    )
});

/// A software switch and traffic shaper in user space.
#[derive(Debug, Parser)]
#[command(name = "softnet", version = VERSION.as_str())]
#[command(after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Socket on which the daemon listens, if not the default one
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the ports and bridges of a configuration file until SIGINT or SIGTERM
    ///
    /// The devices exist while it runs. At the end it prints what each port received, sent and
    /// dropped, if the standard output is a terminal, else the sum of all ports. A port whose
    /// device cannot be opened, or is removed meanwhile, is opened as soon as that is possible;
    /// what is sent there until then is dropped and counted.
    #[command(after_help = EXIT_CODES)]
    Run {
        /// Configuration file (TOML)
        config: PathBuf,
        /// Print the counters as one JSON object
        #[arg(long)]
        json: bool,
        /// Answer `tc`, `ip` and `bridge` on this socket, not on that of the configuration
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// End if a port cannot be opened at the start, instead of trying again later
        #[arg(long)]
        strict: bool,
        /// Start no privileged helper: one process does all that its user may do, and keeps its
        /// rights
        #[arg(long)]
        no_helper: bool,
        /// Start no privileged helper: use the one that listens there (`softnet helper`)
        ///
        /// The daemon needs no rights then, and devices are made in its network namespace.
        #[arg(long, value_name = "PATH", conflicts_with_all = ["no_helper", "userns"])]
        helper: Option<PathBuf>,
        /// Take over from the daemon that runs at the same control socket, if one does
        ///
        /// The running state is kept, but for what this configuration sets otherwise, if it was
        /// edited. All devices but those of af_xdp and passt stay open: no carrier drops, and
        /// connections go on. If the new daemon cannot run, the old one resumes. Needs root, or the
        /// user of the old daemon.
        #[arg(long)]
        replace: bool,
        /// Make devices in a user and network namespace of its own, without being root
        ///
        /// `nsenter -t PID -U -n --preserve-credentials` enters them. `netns = { pid = N }` of a
        /// port reaches containers of the same user.
        #[arg(long)]
        userns: bool,
    },
    /// Open devices, sockets and files for daemons without rights: `softnet run --helper PATH`
    ///
    /// Serves each daemon of one user that connects, until SIGINT or SIGTERM; those that are
    /// connected by then are served on. Listens on the socket that systemd passes, else on the one
    /// that `--listen` names. A daemon without `--helper` starts a helper by itself.
    #[command(after_help = EXIT_CODES)]
    Helper {
        /// First enter the namespaces whose files come
        #[arg(long, hide = true, conflicts_with = "user")]
        enter: bool,
        /// Configuration file of the daemons: what of others may be opened for them
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// User of the daemons, by name or number; no other is served
        #[arg(long, value_name = "USER", requires = "config")]
        user: Option<String>,
        /// Make a socket there and listen on it, unless systemd passes one
        #[arg(long, value_name = "PATH", requires = "user")]
        listen: Option<PathBuf>,
    },
    /// Check configuration files and say where they are wrong
    ///
    /// Warns of valid settings that are probably mistakes, such as a default class that does not
    /// exist. Only reads the files: whether ports can be opened on this machine is seen by `run`.
    #[command(after_help = EXIT_CODES)]
    Check {
        /// Configuration files (TOML)
        #[arg(required = true, value_name = "FILE")]
        configs: Vec<PathBuf>,
        /// End with exit code 3 if there are warnings and no errors
        #[arg(long)]
        strict: bool,
        /// Print one JSON object: for each file whether it is valid, errors and warnings with place
        #[arg(long)]
        json: bool,
    },
    /// Write manual pages and completions of shells into a folder, for a package
    #[command(hide = true)]
    Documents {
        /// The folder
        directory: PathBuf,
    },
    /// Print the JSON schema of configuration files, for editors and other checkers
    Schema,
    /// Show Softnet at work: two hosts, a switch, real traffic, then a rate limit
    ///
    /// Makes two hosts (unnamed network namespaces) joined by a switch, and measures TCP, UDP and
    /// pings between them with ordinary sockets, first through a plain port, then through one
    /// shaped to 100 Mb/s, then through a slow link with a long queue (bufferbloat), with fq_codel
    /// and with cake. Works as root, and unprivileged where user namespaces are allowed.
    /// Leaves nothing behind.
    #[command(after_help = EXIT_CODES)]
    Demo {
        /// Seconds of measuring in all
        #[arg(
            long, value_name = "N", default_value_t = 15,
            value_parser = clap::value_parser!(u64).range(1..=86_400)
        )]
        seconds: u64,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        /// Draw the pings under load, too, as an SVG picture
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Run a tree of queueing disciplines (qdiscs) in virtual time
    ///
    /// Feeds a capture, generated flows or both through a tree of qdiscs, and prints for each
    /// class what left at which rate, what was dropped and why, and how long packets stayed. Takes
    /// as long as the computer needs, and gives the same result to the nanosecond on every run.
    #[command(after_help = sim::HELP)]
    Sim(Box<sim::Options>),
    /// Print the policy that the kernel runs at an interface as a configuration
    ///
    /// Qdiscs, classes and filters; what this version lacks is a comment. The interface stays as
    /// it is. `softnet sim --config FILE --port DEV` tries the policy out.
    #[command(after_help = EXIT_CODES)]
    Import(import::Options),
    /// Run tc against the daemon: `softnet exec -- tc ARGS`
    ///
    /// Example: `softnet tc -s qdisc show dev web`.
    #[command(disable_help_flag = true)]
    Tc(Words),
    /// Run ip against the daemon: `softnet exec -- ip ARGS`
    #[command(disable_help_flag = true)]
    Ip(Words),
    /// Run bridge against the daemon: `softnet exec -- bridge ARGS`
    #[command(disable_help_flag = true)]
    Bridge(Words),
    /// Run any program, such as a script of tc and ip, against the daemon instead of the kernel
    ///
    /// The program's AF_NETLINK sockets for NETLINK_ROUTE go to the daemon. Example:
    /// `softnet exec -- ./shape.sh`.
    #[command(after_help = exec::HELP)]
    Exec(exec::Options),
    /// Show what the daemon counts, live: packets, drops by reason, queueing delay, qdiscs, workers
    ///
    /// The same as `run` prints at its end. Examples: `softnet stats --watch --top 5`, `softnet
    /// stats web:1:10`.
    #[command(after_help = EXIT_CODES)]
    Stats(stats::Options),
    /// Show ports, classes and flows by rate, drops or delay, live
    ///
    /// Keys: arrows choose, Enter shows the classes of a port and Esc the ports again, s changes
    /// the order, / filters by name, q ends. Flows (`--flows web`) are counted from two captures of
    /// the port, which need the right to make changes.
    #[command(after_help = EXIT_CODES)]
    Top(top::Options),
    /// Capture packets of a port, with queue, class, time waited and reasons of drops
    ///
    /// Prints a line for each, or writes a pcapng file, until Ctrl-C. Delays no packet: those that
    /// come too fast are missed, and counted at the end.
    #[command(after_help = capture::HELP)]
    Capture(capture::Options),
    /// Print the daemon's running state as a configuration file
    ///
    /// Changes by tc, ip and bridge are in it, but for permanent members of multicast groups
    /// (`bridge mdb`). For each of these there is a comment with the command that makes it.
    #[command(after_help = EXIT_CODES)]
    DumpConfig(client::Reach),
    /// Have the daemon apply its configuration file anew, as SIGHUP does, while packets flow
    ///
    /// All of the file is applied, or nothing. What does not differ keeps its queues and counters;
    /// changes by tc, ip and bridge are reverted to the file.
    #[command(after_help = EXIT_CODES)]
    Reload {
        #[command(flatten)]
        daemon: client::Reach,
        /// Print what would change, and change nothing: a line for each object that comes (+) or
        /// goes (-), and for each key that changes (~)
        #[arg(long)]
        dry_run: bool,
    },
    /// Show the level of the daemon's log, or change it while the daemon runs
    ///
    /// `error`: what does not work. `warning`: what is likely wrong, too. `notice`: who changed
    /// what, too. `info`, the level at the start: all.
    #[command(after_help = EXIT_CODES)]
    Log {
        #[command(flatten)]
        daemon: client::Reach,
        /// The new level
        #[arg(value_parser = ["error", "warning", "notice", "info"])]
        level: Option<String>,
    },
    /// Add, change, remove and show ports while packets flow, by the keys of the configuration file
    #[command(after_help = EXIT_CODES)]
    Port(port::Command<port::Port>),
    /// Add, change and remove groups of ports that share rates
    #[command(after_help = EXIT_CODES)]
    RateGroup(port::Command<port::RateGroup>),
}

/// The words after `tc`, `ip` or `bridge`, which are that program's.
#[derive(Debug, clap::Args)]
struct Words {
    /// Arguments of the program
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGS"
    )]
    words: Vec<OsString>,
}

/// Runs the program; `started` is when it was.
pub(crate) fn run(started: Instant) -> ExitCode {
    let Arguments {
        socket: at,
        command,
    } = Arguments::parse();
    let program = |name, Words { words }| exec::Options::of(name, words);
    let result = match command {
        Command::Run {
            config,
            json,
            socket,
            strict,
            no_helper,
            helper,
            replace,
            userns,
        } => {
            let how = Start {
                strict,
                replace,
                separation: Separation {
                    helper,
                    no_helper,
                    userns,
                },
            };
            Loaded::load(&config, socket.or(at)).and_then(|loaded| daemon::run(loaded, json, &how))
        }
        Command::Helper {
            config,
            user: Some(user),
            listen,
            ..
        } => privileges::attend(&user, listen.as_deref(), config.as_deref()),
        Command::Helper { enter, config, .. } => privileges::serve(enter, config.as_deref()),
        Command::Check {
            configs,
            strict,
            json: false,
        } => check::text(&configs, strict),
        Command::Check {
            configs,
            strict,
            json: true,
        } => check::json(&configs, strict),
        Command::Documents { directory } => documents::write(&directory),
        Command::Schema => print(&format!("{:#}\n", config::schema())),
        Command::Demo {
            seconds,
            json,
            plot,
        } => demo::run(&demo::Options {
            seconds,
            json,
            plot,
            started,
        }),
        Command::Sim(options) => sim::run(&options),
        Command::Import(options) => import::run(&options),
        Command::Tc(words) => exec::run(&program("tc", words).at(at)),
        Command::Ip(words) => exec::run(&program("ip", words).at(at)),
        Command::Bridge(words) => exec::run(&program("bridge", words).at(at)),
        Command::Exec(options) => exec::run(&options.at(at)),
        Command::Stats(mut options) => {
            options.daemon = options.daemon.at(at);
            stats::run(&options)
        }
        Command::Top(mut options) => {
            options.daemon = options.daemon.at(at);
            top::run(&options)
        }
        Command::Capture(mut options) => {
            options.daemon = options.daemon.at(at);
            capture::run(&options)
        }
        Command::DumpConfig(daemon) => Daemon::connect(&daemon.at(at))
            .and_then(|daemon| daemon.ask(Operation::DumpConfig, ""))
            .and_then(|text| print(&text)),
        Command::Reload { daemon, dry_run } => {
            Daemon::connect(&daemon.at(at)).and_then(|daemon| match dry_run {
                true => daemon
                    .ask(Operation::DryRun, "")
                    .and_then(|lines| print(&lines)),
                false => daemon
                    .ask(Operation::Reload, "")
                    .map(|warnings| warnings.lines().for_each(report::note)),
            })
        }
        Command::Log { daemon, level } => Daemon::connect(&daemon.at(at))
            .and_then(|daemon| daemon.ask(Operation::Log, &level.unwrap_or_default()))
            .and_then(|level| print(&level)),
        Command::Port(port) => port::run(port, at),
        Command::RateGroup(group) => port::run_group(group, at),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report::note(&failure);
            failure.exit.into()
        }
    }
}

/// Prints the result of a command.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    report::print(text)
        .map_err(|error| Failure::because(Exit::Failure, "cannot print the result", &error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn short_forms_pass_on_every_word() {
        let line = [
            "softnet", "--socket", "s", "tc", "-s", "--help", "--socket", "x", "--",
        ];
        let arguments = Arguments::try_parse_from(line).expect("parsed");
        assert_eq!(arguments.socket.as_deref(), Some(Path::new("s")));
        match arguments.command {
            Command::Tc(Words { words }) => assert_eq!(words, &line[4..]),
            other => panic!("{other:?}"),
        }
    }

    /// The lines by which the units start programs are ones that this program takes.
    #[test]
    fn units_say_what_is_understood() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");
        let mut seen = Vec::new();
        for unit in ["softnet.service", "softnet-helper.service"] {
            let text = std::fs::read_to_string(format!("{root}/{unit}")).expect(unit);
            for line in text.lines().filter(|line| line.starts_with("Exec")) {
                let (_, words) = line.split_once('=').expect(line);
                let arguments = Arguments::try_parse_from(words.split_whitespace()).expect(line);
                seen.push(match arguments.command {
                    Command::Run { helper, .. } => helper,
                    Command::Helper { user, config, .. } => {
                        assert_eq!(user.as_deref(), Some("softnet"));
                        config
                    }
                    Command::Reload { .. } => None,
                    other => panic!("{other:?}"),
                });
            }
        }
        let socket = std::fs::read_to_string(format!("{root}/softnet-helper.socket"));
        let socket = socket.expect("a socket");
        let listens = socket
            .lines()
            .find_map(|line| line.strip_prefix("ListenSequentialPacket="));
        let paths =
            [listens, Some("/etc/softnet/softnet.toml")].map(|path| path.map(PathBuf::from));
        let [listens, file] = paths;
        assert_eq!(seen, [listens, None, file]);
    }

    #[test]
    fn helpers_of_their_own_have_a_user_and_a_file() {
        let parse = |line: &str| {
            let words = line.split(' ');
            Arguments::try_parse_from(["softnet"].into_iter().chain(words)).is_ok()
        };
        assert!(parse("helper --config f --user u --listen s"));
        assert!(parse("helper --config f") && parse("helper --enter"));
        for line in [
            "helper --user u",
            "helper --config f --listen s",
            "helper --enter --config f --user u",
            "run f --helper s --no-helper",
            "run f --helper s --userns",
        ] {
            assert!(!parse(line), "{line}");
        }
    }

    #[test]
    fn seconds_are_limited() {
        let parse = |n: &str| Arguments::try_parse_from(["softnet", "demo", "--seconds", n]);
        assert!(parse("1").is_ok());
        for bad in ["0", "-1", "1.5", "86401", "x"] {
            assert_eq!(
                parse(bad).expect_err(bad).exit_code(),
                Exit::Config as i32,
                "{bad}"
            );
        }
    }
}
