//! Answers of programs to commands, and their comparison.

use std::collections::HashMap;

use serde_json::Value;

/// A command of a section with its answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) section: String,
    pub(crate) command: String,
    pub(crate) code: i32,
    /// Lines or JSON values without what is different each time.
    pub(crate) said: Vec<String>,
}

/// Answers between the marks of `RUN`, with the lines of each sorted.
pub(crate) fn parse(text: &str) -> Vec<Answer> {
    let mut answers = parse_in_order(text);
    for answer in &mut answers {
        answer.said.sort_unstable();
    }
    answers
}

/// Answers between the marks of `RUN`.
pub(crate) fn parse_in_order(text: &str) -> Vec<Answer> {
    let mut answers: Vec<Answer> = Vec::new();
    let (mut section, mut command, mut said) = (String::new(), None, String::new());
    let mut handles = HashMap::new();
    for line in text.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix("== ") {
            section = name.to_owned();
            handles.clear();
        } else if let Some(text) = line.strip_prefix("$ ") {
            command = Some(text.to_owned());
            said.clear();
        } else if let Some(code) = line.strip_prefix("= ")
            && let Ok(code) = code.parse()
            && let Some(command) = command.take()
        {
            let said = normal(&said, &mut handles);
            let section = section.clone();
            answers.push(Answer {
                section,
                command,
                code,
                said,
            });
        } else {
            said.push_str(line);
            said.push('\n');
        }
    }
    answers
}

/// The answer's lines or JSON values, with names for automatic handles, addresses that nobody set,
/// numbers of links and times.
fn normal(text: &str, handles: &mut HashMap<String, usize>) -> Vec<String> {
    let mut said: Vec<String> = match serde_json::from_str(text) {
        Ok(Value::Array(values)) => values.iter().map(Value::to_string).collect(),
        _ => text.lines().map(str::to_owned).collect(),
    };
    for line in &mut said {
        *line = without_numbers(line);
        *line = without_times(&words(line, handles));
    }
    said
}

/// Without the number of a link, which starts its line.
fn without_numbers(line: &str) -> String {
    if let Some((number, rest)) = line.split_once(": ")
        && number.parse::<u32>().is_ok()
    {
        return format!("N: {rest}");
    }
    match line.split_once("\"ifindex\":") {
        Some((before, rest)) => {
            let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            format!("{before}\"ifindex\":N{rest}")
        }
        None => line.to_owned(),
    }
}

/// Without the seconds since an action was made and used, and seeds that nobody set.
fn without_times(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    for at in 1..words.len() {
        if ["installed", "used", "firstused"].contains(&words[at - 1]) {
            words[at] = "N";
        }
        // The shortest of a thousand is longer.
        if words[at - 1] == "seed" && words[at].len() > 12 {
            words[at] = "N";
        }
    }
    words.join(" ")
}

/// A name for a handle that was chosen.
fn automatic(major: &str, handles: &mut HashMap<String, usize>) -> String {
    let count = handles.len();
    let number = handles.entry(major.to_owned()).or_insert(count);
    format!("automatic-{number}")
}

fn words(line: &str, handles: &mut HashMap<String, usize>) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == ':';
    let (mut normal, mut rest) = (String::new(), line);
    while let Some(start) = rest.find(is_part) {
        normal.push_str(&rest[..start]);
        rest = &rest[start..];
        let word = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        rest = &rest[word.len()..];
        let set = ["02:00:", "00:00:", "01:00:", "ff:ff:", "33:33:"];
        let is_automatic = |major: &str| major.len() == 4 && major.starts_with('8');
        match word.split_once(':') {
            Some((major, minor)) if is_automatic(major) => {
                let name = automatic(major, handles);
                normal.push_str(&format!("{name}:{minor}"));
            }
            // As iproute2 7.3 has it in JSON.
            None if is_automatic(word) && normal.ends_with("\"leaf\":\"0x") => {
                normal.push_str(&automatic(word, handles));
            }
            Some(_)
                if word.matches(':').count() == 5 && !set.iter().any(|a| word.starts_with(a)) =>
            {
                normal.push_str("ADDRESS");
            }
            _ => normal.push_str(word),
        }
    }
    normal + rest
}

impl Answer {
    /// True if `ours` says the same. Where Linux has an error number only, ours may have a text;
    /// where Linux has a text, ours may go on.
    pub(crate) fn agrees(&self, ours: &Answer) -> bool {
        if self.code != ours.code || self.said.len() != ours.said.len() {
            return false;
        }
        self.said.iter().zip(&ours.said).all(|(linux, ours)| {
            let text = linux.strip_prefix("Error: ");
            let number = linux.starts_with("RTNETLINK answers: ");
            linux == ours
                || text.is_some() && ours.starts_with(linux.trim_end_matches('.'))
                || number && ours.starts_with("Error: ")
        })
    }
}

#[test]
fn what_is_different_each_time_is_left_out() {
    let text = "== one\n$ tc qdisc show\nqdisc a 800a: parent 800b:1 limit 8001p\n= 0\n\
                $ ip link\n7: d0: mtu 1500\n    link/ether 5a:00:00:00:00:01 brd \
                ff:ff:ff:ff:ff:ff\n\
                = 1\n$ tc -j\n[{\"b\":1,\"handle\":\"800b:\"},{\"a\":2}]\n= 0\n";
    let answers = parse(text);
    let said: Vec<_> = answers.iter().map(|answer| answer.said.clone()).collect();
    assert_eq!(
        said,
        [
            vec!["qdisc a automatic-0: parent automatic-1:1 limit 8001p"],
            vec![
                "    link/ether ADDRESS brd ff:ff:ff:ff:ff:ff",
                "N: d0: mtu 1500"
            ],
            vec![r#"{"a":2}"#, r#"{"b":1,"handle":"automatic-1:"}"#],
        ]
    );
    assert_eq!(answers[1].code, 1);
}

#[test]
fn ours_may_say_more_and_not_less() {
    let answer = |said: &str| parse(&format!("$ x\n{said}\n= 2\n")).remove(0);
    let agree = |linux: &str, ours: &str| answer(linux).agrees(&answer(ours));
    assert!(agree("Error: A.", "Error: A. Do B."));
    assert!(agree("RTNETLINK answers: File exists", "Error: A."));
    assert!(!agree("Error: A.", "Error: B."));
    assert!(!agree("Error: A.", "RTNETLINK answers: File exists"));
    assert!(!agree("qdisc a", "qdisc a limit 1"));
}
