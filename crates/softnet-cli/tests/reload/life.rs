//! Signals, logs and the end of a daemon.

use super::*;

/// Becomes the program on a terminal of its own, with its log in a file.
const ON_A_TERMINAL: &str = "
import os, pty, sys
log, program = sys.argv[1:3]
main, terminal = pty.openpty()
os.set_inheritable(main, True)
os.dup2(terminal, 0)
os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 2)
os.execv(program, sys.argv[2:])
";

/// Logging out sends SIGHUP to what a shell left running: what `tc` changed stays.
#[test]
fn a_terminal_that_closes_reloads_nothing() {
    if !has_program("python3") {
        return;
    }
    let scratch = Scratch::new("reload-terminal");
    let log = scratch.path("log");
    let mut command = Command::new("python3");
    command.args(["-c", ON_A_TERMINAL]).arg(&log);
    command.arg(env!("CARGO_BIN_EXE_softnet"));
    let config = scratch.file("config.toml", TREE);
    let daemon = Daemon::by(command, config, scratch.path("socket"));
    let before = daemon.say("dump-config");
    daemon.write(&TREE.replace("limit = 7", "limit = 8"));
    daemon.running.signal(Signal::HUP);
    wait_for("the signal", || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("SIGHUP of a terminal"))
    });
    assert_eq!(daemon.say("dump-config"), before);
    daemon.say("reload");
    assert_ne!(daemon.say("dump-config"), before);
    daemon.stop();
}

/// Nobody reads what the daemon says: it goes on all the same.
#[test]
fn a_log_that_nobody_reads_holds_nothing_up() {
    let scratch = Scratch::new("log-full");
    let (read, write) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&write, true).expect("a pipe");
    while (&write).write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&write, false).expect("a pipe");
    let (config, socket) = (scratch.file("config.toml", PLAIN), scratch.path("socket"));
    let mut command = softnet();
    command.arg("run").arg(&config).arg("--socket").arg(&socket);
    let mut running = command.stderr(write).spawn().expect("softnet");
    let ask = |what: &str| {
        let mut softnet = softnet();
        let output = softnet.arg(what).arg("--socket").arg(&socket).output();
        output.expect("softnet").status.success()
    };
    wait_for("the daemon", || ask("reload"));
    assert!(ask("dump-config"));
    running.kill().expect("it runs");
    running.wait().expect("it ended");
    drop(read);
}

/// Who cannot be asked any more must not seem to be well.
#[test]
fn the_end_of_the_control_thread_is_the_end_of_the_daemon() {
    let scratch = Scratch::new("control-ends");
    let daemon = Daemon::start(&scratch, "");
    // `poll` fails of more files than that.
    let low = Rlimit {
        current: Some(1),
        ..getrlimit(Resource::Nofile)
    };
    prlimit(Some(daemon.running.pid()), Resource::Nofile, low).expect("a lower limit");
    assert!(!daemon.ask("dump-config").status.success());
    let output = daemon.running.finish();
    assert_eq!(output.status.code(), Some(1));
    let noted = text(&output.stderr);
    assert!(
        noted.contains("the control thread failed: Invalid argument"),
        "{noted}"
    );
}
