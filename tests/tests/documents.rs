//! Promises of the documents about the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use softnet::stats::DropReason;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace")
        .to_owned()
}

/// Calls `each` with the path and the text of every Rust file below `folder`.
fn rust_files(folder: &Path, each: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, each);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            each(&path, &fs::read_to_string(&path).expect("a text"));
        }
    }
}

/// The codes in a text: `INV-` or `BUG-`, capital letters, `-`, digits.
fn codes(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-');
    let is_code = |word: &&str| {
        let mut parts = word.split('-');
        let kind = parts.next();
        let area = parts.next().unwrap_or_default();
        let number = parts.next().unwrap_or_default();
        matches!(kind, Some("INV" | "BUG"))
            && parts.next().is_none()
            && !area.is_empty()
            && area.bytes().all(|b| b.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
    };
    text.split(word)
        .filter(is_code)
        .map(str::to_owned)
        .collect()
}

/// The part of a file that is tests or models.
fn tests_of<'a>(path: &Path, text: &'a str) -> &'a str {
    let path = path.strip_prefix(root()).expect("below the root");
    let path = path.to_str().expect("UTF-8");
    if ["test", "model", "fuzz/"]
        .iter()
        .any(|word| path.contains(word))
    {
        return text;
    }
    // A module of tests comes last in its file.
    text.rfind("\nmod tests {")
        .map_or("", |start| &text[start..])
}

/// The codes in the names of functions: `inv_pf_1_2_3_...` is INV-PF-1, INV-PF-2 and INV-PF-3.
fn codes_of_names(text: &str) -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for name in text.split("fn ").skip(1) {
        let mut words = name.split(['_', '(']);
        let (Some(kind @ ("inv" | "bug")), Some(area)) = (words.next(), words.next()) else {
            continue;
        };
        let start = format!("{kind}-{area}-").to_uppercase();
        let numbers = words.take_while(|word| word.parse::<u32>().is_ok());
        codes.extend(numbers.map(|number| format!("{start}{number}")));
    }
    codes
}

#[test]
fn every_code_is_defined_used_and_named_by_a_test() {
    let text = fs::read_to_string(root().join("docs/invariants.md")).expect("invariants.md");
    let mut defined = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("- `")) {
        let (code, meaning) = line.split_once("` ").expect("a meaning after the code");
        assert_eq!(codes(code).len(), 1, "not a code: {code}");
        assert!(meaning.len() > 10, "{code} has no meaning");
        assert!(defined.insert(code.to_owned()), "{code} is defined twice");
    }

    let (mut used, mut tested) = (BTreeSet::new(), BTreeSet::new());
    for folder in ["crates", "tests", "fuzz"] {
        let folder = root().join(folder);
        if folder.is_dir() {
            rust_files(&folder, &mut |path, text| {
                used.extend(codes(text));
                tested.extend(codes(tests_of(path, text)));
                tested.extend(codes_of_names(tests_of(path, text)));
            });
        }
    }
    let undefined: Vec<_> = used.difference(&defined).collect();
    let unused: Vec<_> = defined.difference(&used).collect();
    assert!(undefined.is_empty(), "used, not defined: {undefined:?}");
    assert!(unused.is_empty(), "defined, not used: {unused:?}");
    let untested: Vec<_> = defined.difference(&tested).collect();
    assert!(untested.is_empty(), "no test names: {untested:?}");
}

/// The documents that people write: those in the root and below `docs`.
fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root(), root().join("docs")];
    folders.extend(["docs/decisions", "docs/results"].map(|folder| root().join(folder)));
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// Targets of a document's links, but for addresses elsewhere.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let files = targets.filter_map(|target| target.split('#').next());
    files
        .filter(|file| !file.is_empty() && !file.contains("://"))
        .collect()
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a text");
        let folder = document.parent().expect("a folder");
        for link in links(&text) {
            let found = folder.join(link).exists();
            assert!(found, "{}: there is no {link}", document.display());
        }
    }
}

/// A cell names files from the folder of crates on, or from the folder named last.
#[test]
fn files_to_touch_exist() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, section) = page.split_once("## To add something").expect("the table");
    let (section, _) = section.split_once("\n## ").expect("a section after it");
    let mut rows = 0;
    for row in section.lines().filter(|line| line.starts_with("| a")) {
        let mut folder = PathBuf::new();
        rows += 1;
        for name in row.split('`').skip(1).step_by(2) {
            if name.contains('/') {
                let top = if name.starts_with("docs/") {
                    ""
                } else {
                    "crates"
                };
                let path = root().join(top).join(name);
                assert!(path.exists(), "there is no {name}");
                let is_folder = name.ends_with('/');
                folder = if is_folder {
                    path
                } else {
                    path.with_file_name("")
                };
            } else if name.ends_with(".rs") {
                assert!(folder.join(name).exists(), "there is no {name}: {row}");
            }
        }
    }
    assert!(rows >= 9, "{rows} rows");
}

/// Each has a row of three cells, in the order of the list.
#[test]
fn every_drop_reason_has_a_cause_and_a_remedy() {
    let page = fs::read_to_string(root().join("docs/drop-reasons.md")).expect("the page");
    let mut names = Vec::new();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [name, cause, remedy] = cells[..] else {
            panic!("not three cells: {row}");
        };
        assert!(cause.ends_with('.') && remedy.ends_with('.'), "{row}");
        names.push(name.trim_end_matches('`'));
    }
    let all: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(names, all);
}

#[test]
fn every_page_of_the_book_is_in_its_table_of_contents() {
    let book = root().join("docs");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).expect("SUMMARY.md");
    let links = links(&summary);
    let listed: BTreeSet<PathBuf> = links.iter().map(|link| book.join(link)).collect();
    assert_eq!(listed.len(), links.len(), "a page is there twice");
    for page in documents() {
        if page.starts_with(&book) && !page.ends_with("SUMMARY.md") {
            assert!(listed.contains(&page), "{} is not there", page.display());
        }
    }
}

/// Pages that were measured before programs knew their revision, until they are measured anew.
/// Nothing is added here.
const NAMELESS: [&str; 1] = ["tap-io"];

#[test]
fn results_are_of_revisions_that_exist() {
    let git = |arguments: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.arg("-C").arg(root()).args(arguments).output()
    };
    let shallow = git(&["rev-parse", "--is-shallow-repository"]);
    if !shallow.is_ok_and(|said| said.stdout == b"false\n") {
        return softnet_tests::skip("this is no repository with its whole history");
    }
    for entry in fs::read_dir(root().join("docs/results")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a text");
        let revision = text.split("\"revision\":").nth(1).expect("a revision");
        let revision = revision.split('"').nth(1).expect("a text");
        let known = git(&["cat-file", "-e", &format!("{revision}^{{commit}}")]);
        let known = known.is_ok_and(|said| said.status.success());
        let listed = NAMELESS.contains(&&*name);
        assert_ne!(known, listed, "{name} is of {revision}");
    }
}
