//! Text as `--generate` and `--expect` take it: read, or refused in a line that names the column.

use crate::config::Expectation;
use crate::sim::generate;

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match generate::flow(text) {
        Ok(generated) => {
            assert!(generated.flow.arrivals().is_ok());
            if let Some(tcp) = generated.tcp {
                assert!(tcp.rtt >= 1_000 && (1..=10_000).contains(&tcp.count));
            }
        }
        Err(error) => names_a_column(&error, text),
    }
    if let Err(error) = text.parse::<Expectation>() {
        names_a_column(&error, text);
    }
}

fn names_a_column(error: &str, text: &str) {
    let column = error.strip_prefix("column ");
    let column = column.and_then(|rest| rest.split_once(": "));
    let column = column.and_then(|(column, _)| column.parse().ok());
    // What is missing is missing behind the end.
    let columns = 1..=text.chars().count() + 2;
    assert!(
        column.is_some_and(|column| columns.contains(&column)),
        "{error}"
    );
    assert!(!error.contains(char::is_control), "{error:?}");
}
