//! Counts the amounts of each key and adds them up; each amount brings the totals so far.

use serde::{Deserialize, Serialize};
use tidelock_guest::prelude::*;

/// What it reads.
#[derive(Streams)]
pub enum Inputs {
    /// Amounts, keyed by user.
    Amounts,
}

/// What it writes.
#[derive(Streams)]
pub enum Outputs {
    /// One row for each amount.
    Sums,
}

/// What it keeps for each user.
#[derive(Debug, State)]
pub struct Keyed {
    #[state(version = 1, codec = Postcard)]
    totals: Value<Totals>,
}

/// The amounts so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    count: u64,
    sum: i64,
}

/// The transform.
#[derive(Debug)]
pub struct Sum;

#[derive(Deserialize)]
struct Amount {
    amount: i64,
}

#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    count: u64,
    sum: i64,
}

impl Transform for Sum {
    type Parameters = NoParameters;
    type Inputs = Inputs;
    type Outputs = Outputs;
    type Timers = NoTimers;
    type State = Keyed;

    fn new(_: NoParameters) -> Result<Sum> {
        Ok(Sum)
    }

    fn on_message(
        &self,
        message: &Message<Inputs>,
        state: &mut Keyed,
        effects: &mut Effects<Outputs>,
    ) -> Result<()> {
        let Amount { amount } = message.json()?;
        let totals = state.totals.get_or_default()?;
        totals.count += 1;
        totals.sum += amount;
        let Totals { count, sum } = *totals;
        let user = message.key_text()?;
        effects.emit(Outputs::Sums).json(&Row { user, count, sum })
    }
}

export!(Sum);

#[cfg(test)]
mod tests {
    use tidelock_guest::testing::TestBench;

    use super::*;

    #[test]
    fn totals_run_along_for_each_user() {
        let bench = TestBench::<Sum>::assert_cuts_agree("{}", |bench| {
            for (user, amount) in [("a", 5), ("b", -2), ("a", 7)] {
                let payload = format!(r#"{{"user":"{user}","amount":{amount}}}"#);
                bench.send("amounts", user, Timestamp(0), payload);
            }
            bench.run()
        });
        assert_eq!(
            bench.payloads("sums"),
            [
                r#"{"user":"a","count":1,"sum":5}"#,
                r#"{"user":"b","count":1,"sum":-2}"#,
                r#"{"user":"a","count":2,"sum":12}"#,
            ]
        );
        let totals = bench.state::<Postcard, Totals>("totals", "a");
        assert_eq!(totals, Some(Totals { count: 2, sum: 12 }));
    }
}
