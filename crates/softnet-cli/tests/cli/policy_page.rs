//! The page that a newcomer follows, docs/policy-ci.md: its commands run, and print what it shows.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Scratch, has_program, may_make_networks, text};

/// Runs a command as a newcomer does, in the folder of the examples.
fn run(folder: &Path, commands: &str) -> String {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_softnet"));
    let path = env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", program.parent().expect("a folder").display());
    let mut command = Command::new("sh");
    // A terminal shows both streams.
    command.args(["-c", &format!("exec 2>&1\n{commands}")]);
    let output = command.current_dir(folder).env("PATH", path).output();
    let output = output.expect("sh");
    let told = text(&output.stdout);
    assert!(output.status.success(), "{commands}: {told}");
    told
}

/// The commands of the program in a job of a CI; installing it and all else is not for a test.
fn of_job(job: &str) -> Vec<String> {
    let mut lines = job.lines().map(str::trim);
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with("softnet ") || line.starts_with("sh ") {
            let mut command = line.to_owned();
            while command.ends_with('\\') {
                command = command.trim_end_matches('\\').to_owned();
                command += lines.next().expect("the rest of a command");
            }
            commands.push(command);
        }
    }
    commands
}

/// With `SOFTNET_WRITE_REFERENCE` what is printed is written into the page instead.
#[test]
fn the_page_shows_what_is_printed() {
    if !has_program("tc") || !may_make_networks() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy-ci.md");
    let page = fs::read_to_string(&path).expect("the page");
    let scratch = Scratch::new("page");
    let folder = scratch.path("");
    let (mut printed, mut ran) = (String::new(), 0);
    let mut written: Vec<String> = Vec::new();
    for (place, part) in page.split("```").enumerate() {
        written.push(part.to_owned());
        // Every other part is between fences.
        let Some((language, block)) = part.split_once('\n').filter(|_| place % 2 == 1) else {
            continue;
        };
        match language {
            "sh" if block.starts_with("cargo install") => {}
            "sh" => printed = run(&folder, block),
            "text" => written[place] = format!("text\n{printed}"),
            "toml" => drop(scratch.file("softnet.toml", block)),
            "yaml" => {
                let commands = of_job(block);
                ran += commands.len();
                for command in commands {
                    run(&folder, &command);
                    let junit = fs::read_to_string(scratch.path("sim.xml")).expect("a file");
                    assert!(junit.contains("failures=\"0\""), "{command}: {junit}");
                }
            }
            other => panic!("a block in {other:?}"),
        }
    }
    let written = written.join("```");
    assert_eq!(ran, 2, "jobs");
    if env::var_os("SOFTNET_WRITE_REFERENCE").is_some() {
        fs::write(&path, written).expect("the page");
    } else {
        let told = "run it with SOFTNET_WRITE_REFERENCE=1 if that is right";
        assert_eq!(page, written, "{told}");
    }
}
