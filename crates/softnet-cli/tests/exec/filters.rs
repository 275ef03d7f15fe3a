//! `tc filter` and `tc chain` against the daemon, as `filters.txt` has them from Linux 7.2 with
//! iproute2 7.3:
//!
//! ```text
//! $ what tc is told
//! what it prints
//! = exit code
//! ```
//!
//! Softnet puts help behind the kernel's text, and a text where the kernel has none.

use crate::common::{Daemon, Scratch, has_program, text};
use crate::exec;

const RECORDED: &str = include_str!("filters.txt");

/// Replaces `start` and the digits behind it, wherever it is.
fn replace_numbers(text: &str, start: &str, with: &str) -> String {
    let mut parts = text.split(start);
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        all.push_str(with);
        all.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    all
}

/// Without what differs between versions of tc, and what Softnet does not have.
fn normalized(printed: &str) -> String {
    let text = printed.replace("*flowid", "flowid");
    let text = text.replace("We have an error talking to the kernel\n", "");
    let text = replace_numbers(&text, " index ", " index 0");
    let text = replace_numbers(&text, "\"index\":", "\"index\":0");
    let text = replace_numbers(&text, ",\"installed\":", "");
    let text = replace_numbers(&text, ",\"last_used\":", "");
    let lines = text
        .lines()
        .map(|line| match line.split_once(" installed ") {
            Some((start, _)) => start,
            None => line,
        });
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

fn is_same(printed: &str, expected: &str) -> bool {
    let is_error = expected.starts_with("Error: ");
    printed == expected
        || is_error && printed.starts_with(expected.trim_end_matches('.'))
        || expected.starts_with("RTNETLINK answers: ") && !printed.is_empty()
}

#[test]
fn tc_prints_of_filters_what_it_prints_with_the_kernel() {
    if !has_program("tc") {
        return;
    }
    let scratch = Scratch::new("filters");
    let port = |n| format!("[[port]]\nname = \"d{n}\"\ndriver = \"null\"\n");
    let ports: String = (0..5).map(port).collect();
    let mut daemon = Daemon::start(&scratch, &ports);
    let run = |told: &str| {
        // Quotation marks are those of a shell.
        let output = exec(&daemon.socket, &["sh", "-c", &format!("exec tc {told}")]).output();
        let output = output.expect("tc");
        let printed = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), normalized(&printed))
    };
    let mut commands = RECORDED.split("\n$ ").skip(1).peekable();
    assert!(commands.peek().is_some());
    let mut differ = Vec::new();
    for command in commands {
        let (told, rest) = command.split_once('\n').expect("a line");
        let (expected, code) = rest.rsplit_once("= ").expect("an exit code");
        let code = code.lines().next().and_then(|code| code.parse().ok());
        let expected = normalized(expected);
        let (got, printed) = run(told);
        if got != code || !is_same(&printed, &expected) {
            differ.push(format!(
                "tc {told}\n{expected}\n= {code:?}\n-- is\n{printed}\n= {got:?}"
            ));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    daemon.running.assert_running();
}
