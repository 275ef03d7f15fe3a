//! `softnet documents DIR`: manual pages and completions, from the descriptions of commands, keys
//! and options. For who makes a package.

use std::fs;
use std::io;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::Value;

use crate::cli::Arguments;
use crate::config;
use crate::failure::{Exit, Failure};

/// Writes them into a folder: `man/`, and a file a shell.
pub(crate) fn write(directory: &Path) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let man = directory.join("man");
        fs::create_dir_all(&man)?;
        let command = Arguments::command();
        clap_mangen::generate_to(command.clone(), &man)?;
        fs::write(man.join("softnet.toml.5"), configuration(&config::schema()))?;
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            clap_complete::generate_to(shell, &mut command.clone(), "softnet", directory)?;
        }
        let bash = directory.join("softnet.bash");
        // Some releases of the crate name it otherwise.
        let other = directory.join("softnet");
        match other.exists() {
            true => fs::rename(other, bash),
            false => Ok(()),
        }
    };
    written().map_err(|error| {
        let what = format!("cannot write to {}", directory.display());
        Failure::because(Exit::Failure, what, &error)
    })
}

/// softnet.toml(5), from the schema.
fn configuration(schema: &Value) -> String {
    let mut page = String::from(
        ".TH SOFTNET.TOML 5 \"\" softnet\n.SH NAME\nsoftnet.toml \\- configuration of softnet\n\
         .SH DESCRIPTION\nA file in TOML that \\fBsoftnet run\\fR reads and \\fBsoftnet check\\fR \
         checks. Names and units of traffic control are those of \\fBtc\\fR(8).\n",
    );
    let tables = schema["properties"].as_object();
    for (table, value) in tables.into_iter().flatten() {
        let (head, keys) = match value["items"]["properties"].as_object() {
            Some(keys) => (format!("[[{table}]]"), keys),
            None => match value["properties"].as_object() {
                Some(keys) => (format!("[{table}]"), keys),
                None => continue,
            },
        };
        page += &format!(".SH {}\n", roff(&head));
        for (key, value) in keys {
            let about = value["description"].as_str().unwrap_or_default();
            page += &format!(".TP\n.B {}\n{}\n", roff(key), roff(about));
        }
    }
    page += ".SH SEE ALSO\n.BR softnet (1),\n.BR tc (8)\n";
    page
}

/// A line of text in a manual page.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_and_the_file() {
        let directory = std::env::temp_dir().join(format!("softnet-man-{}", std::process::id()));
        write(&directory).expect("ours");
        for file in [
            "man/softnet.1",
            "man/softnet-run.1",
            "softnet.bash",
            "_softnet",
            "softnet.fish",
        ] {
            assert!(directory.join(file).is_file(), "{file}");
        }
        let page = fs::read_to_string(directory.join("man/softnet.toml.5")).expect("a page");
        for part in [".SH [[port]]", ".B workers", ".B mcast_querier", ".B rate"] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("]("), "a link of the reference");
        fs::remove_dir_all(directory).expect("ours");
    }
}
