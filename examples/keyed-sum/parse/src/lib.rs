//! Takes user and amount out of a JSON line and keys them by the user. A line that is no such object
//! fails the run: the input is generated, so a wrong line is a fault of its generator.

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// JSON objects, a line each.
    Events,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// The amount of each event, keyed by its user.
    Amounts,
}

/// The map.
#[derive(Debug)]
pub struct Parse;

/// An event's fields that matter; the others are passed over.
#[derive(Deserialize)]
struct Event<'a> {
    user: &'a str,
    amount: i64,
}

#[derive(Serialize)]
struct Amount<'a> {
    user: &'a str,
    amount: i64,
}

impl Map for Parse {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;

    fn new(_: NoParameters) -> Result<Parse> {
        Ok(Parse)
    }

    fn on_message(&self, message: &Message<Inputs>, effects: &mut Effects<Outputs>) -> Result<()> {
        let Event { user, amount } = message.json()?;
        let output = effects.emit(Outputs::Amounts).key(user);
        output.json(&Amount { user, amount })
    }
}

export!(Parse);

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    const EVENT: &str = r#"{"user":"user-00042445","amount":970,"time":1699999997472,"item":"item-025875","channel":"web","note":"abcdefgh"}"#;

    #[test]
    fn an_amount_is_keyed_by_its_user() {
        let bench = TestBench::<Parse>::assert_cuts_agree("{}", |bench| {
            bench.send("events", "", Timestamp(0), EVENT);
            bench.run()
        });
        let [output] = bench.outputs() else {
            panic!("{} outputs", bench.outputs().len());
        };
        assert_eq!(output.stream, "amounts");
        assert_eq!(&output.key[..], b"user-00042445");
        assert_eq!(output.text(), r#"{"user":"user-00042445","amount":970}"#);
    }

    #[test]
    fn a_line_without_an_amount_fails() {
        let mut bench = TestBench::<Parse>::new("{}").expect("it takes no parameters");
        bench.send("events", "", Timestamp(0), r#"{"user":"user-1"}"#);
        let failure = bench.run().expect_err("the amount is missing");
        assert!(failure.reason.contains("amount"), "{}", failure.reason);
    }
}
