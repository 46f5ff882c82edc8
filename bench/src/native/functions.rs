//! What the components of `examples/keyed-sum` do, as functions over the same columns: the same rows
//! and the same states, byte for byte.

use serde::{Deserialize, Serialize};
use tidelock::types::batch::{Batch, Effects, OutputColumns, StateColumn};
use tidelock::types::column::Column;

/// Longest encoding of [`Totals`], in bytes: two numbers of 64 bits in groups of 7.
const TOTALS_BYTES_MAX: usize = 20;

#[derive(Deserialize)]
struct Event<'a> {
    user: &'a str,
    amount: i64,
}

#[derive(Serialize)]
struct KeyedAmount<'a> {
    user: &'a str,
    amount: i64,
}

#[derive(Deserialize)]
struct Amount {
    amount: i64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Totals {
    count: u64,
    sum: i64,
}

#[derive(Serialize)]
struct Row<'a> {
    user: &'a str,
    count: u64,
    sum: i64,
}

/// The map: user and amount of each event, keyed by the user.
pub(crate) fn parse(batch: &Batch) -> Result<Effects, String> {
    let mut outputs = one_output_each(batch);
    for (index, payload) in batch.messages.payloads.iter().enumerate() {
        let Event { user, amount } = json(index, payload)?;
        outputs.keys.push(user.as_bytes());
        push_json(&mut outputs.payloads, &KeyedAmount { user, amount })?;
    }
    Ok(Effects {
        outputs,
        ..Effects::default()
    })
}

/// The transform: count and sum of each user, as they are after each amount.
pub(crate) fn sum(batch: &Batch) -> Result<Effects, String> {
    let mut totals = totals_of_keys(batch)?;
    let mut outputs = one_output_each(batch);
    let messages = batch
        .messages
        .keys
        .iter()
        .zip(batch.messages.payloads.iter());
    for (index, (key_index, payload)) in messages.enumerate() {
        let Amount { amount } = json(index, payload)?;
        let totals = &mut totals[*key_index as usize];
        totals.count += 1;
        totals.sum += amount;
        let Totals { count, sum } = *totals;
        let key = batch.keys.get(*key_index as usize);
        let user = std::str::from_utf8(key)
            .map_err(|error| format!("the key of message {index}: {error}"))?;
        outputs.keys.push(key);
        push_json(&mut outputs.payloads, &Row { user, count, sum })?;
    }
    Ok(Effects {
        outputs,
        states: vec![state_column(&totals)?],
        ..Effects::default()
    })
}

/// Output columns with one row for each message, but for keys and payloads, which are empty.
fn one_output_each(batch: &Batch) -> OutputColumns {
    let count = batch.messages.payloads.len();
    let size_bytes = batch.messages.payloads.bytes.len();
    OutputColumns {
        streams: vec![0; count],
        parents: (0..).take(count).collect(),
        keys: Column::with_capacity(count, size_bytes / 4),
        payloads: Column::with_capacity(count, size_bytes),
        ..OutputColumns::default()
    }
}

/// The totals of each of the batch's keys; every key has a message.
fn totals_of_keys(batch: &Batch) -> Result<Vec<Totals>, String> {
    let mut totals = vec![Totals::default(); batch.keys.len()];
    let [kept] = &batch.states[..] else {
        return Err(format!("{} states, expected 1", batch.states.len()));
    };
    for (key_index, value) in kept.keys.iter().zip(kept.values.iter()) {
        totals[*key_index as usize] = postcard::from_bytes(value)
            .map_err(|error| format!("the totals of key {key_index}: {error}"))?;
    }
    Ok(totals)
}

fn state_column(totals: &[Totals]) -> Result<StateColumn, String> {
    let mut values = Column::with_capacity(totals.len(), TOTALS_BYTES_MAX / 2 * totals.len());
    for totals in totals {
        let mut buffer = [0; TOTALS_BYTES_MAX];
        let value = postcard::to_slice(totals, &mut buffer)
            .map_err(|error| format!("totals can't be encoded: {error}"))?;
        values.push(value);
    }
    Ok(StateColumn {
        keys: (0..).take(totals.len()).collect(),
        values,
    })
}

fn json<'a, T: Deserialize<'a>>(index: usize, payload: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(payload).map_err(|error| format!("message {index}: {error}"))
}

/// Appends a value to a column without a buffer in between.
fn push_json(column: &mut Column, value: &impl Serialize) -> Result<(), String> {
    serde_json::to_writer(&mut column.bytes, value)
        .map_err(|error| format!("a row can't be written: {error}"))?;
    let end = u32::try_from(column.bytes.len())
        .map_err(|_| "a batch of more than 4 GiB of rows".to_owned())?;
    column.ends.push(end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn batch(keys: &[&str], messages: &[(u32, &str)]) -> Batch {
        let mut batch = Batch {
            keys: keys.iter().map(|key| key.as_bytes()).collect(),
            states: vec![StateColumn::default()],
            ..Batch::default()
        };
        for (key, payload) in messages {
            batch.messages.streams.push(0);
            batch.messages.keys.push(*key);
            batch.messages.event_times.push(0);
            batch.messages.payloads.push(payload.as_bytes());
        }
        batch
    }

    fn texts(column: &Column) -> Vec<&str> {
        let values = column.iter().map(std::str::from_utf8);
        values.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn an_amount_is_keyed_by_its_user() {
        let event = r#"{"user":"user-1","amount":970,"time":1,"note":"abcdefgh"}"#;
        let effects = parse(&batch(&[""], &[(0, event)])).unwrap();
        assert_eq!(texts(&effects.outputs.keys), ["user-1"]);
        assert_eq!(
            texts(&effects.outputs.payloads),
            [r#"{"user":"user-1","amount":970}"#]
        );
        assert_eq!(effects.outputs.parents, [0]);
    }

    #[test]
    fn totals_run_along_for_each_user_and_from_batch_to_batch() {
        let first = batch(
            &["a", "b"],
            &[(0, r#"{"amount":5}"#), (1, r#"{"amount":-2}"#)],
        );
        let effects = sum(&first).unwrap();
        let mut second = batch(&["a"], &[(0, r#"{"amount":7}"#)]);
        second.states[0].keys.push(0);
        let kept = effects.states[0].values.get(0);
        second.states[0].values.push(kept);
        assert_eq!(
            texts(&effects.outputs.payloads),
            [
                r#"{"user":"a","count":1,"sum":5}"#,
                r#"{"user":"b","count":1,"sum":-2}"#
            ]
        );
        let effects = sum(&second).unwrap();
        assert_eq!(
            texts(&effects.outputs.payloads),
            [r#"{"user":"a","count":2,"sum":12}"#]
        );
        assert_eq!(texts(&effects.outputs.keys), ["a"]);
    }

    /// What the example's own answers say, which its components are held to as well; in batches, so
    /// that states go from one to the next.
    #[test]
    fn the_functions_give_the_rows_of_the_example() {
        let events = include_str!("../../../examples/keyed-sum/data/events.jsonl");
        let expected = include_str!("../../../examples/keyed-sum/expected/sums.jsonl");
        let events: Vec<(u32, &str)> = events.lines().map(|line| (0, line)).collect();
        let mut states: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        let mut rows = String::new();
        for events in events.chunks(7) {
            let amounts = parse(&batch(&[""], events)).unwrap().outputs;
            let mut users = texts(&amounts.keys);
            users.sort_unstable();
            users.dedup();
            let place = |user: &str| users.binary_search(&user).unwrap() as u32;
            let places = texts(&amounts.keys).into_iter().map(place);
            let messages: Vec<_> = places.zip(texts(&amounts.payloads)).collect();
            let mut input = batch(&users, &messages);
            for (key_index, user) in (0..).zip(&users) {
                if let Some(value) = states.get(user.as_bytes()) {
                    input.states[0].keys.push(key_index);
                    input.states[0].values.push(value);
                }
            }
            let effects = sum(&input).unwrap();
            let kept = &effects.states[0];
            for (key_index, value) in kept.keys.iter().zip(kept.values.iter()) {
                let user = input.keys.get(*key_index as usize);
                states.insert(user.to_owned(), value.to_owned());
            }
            for row in texts(&effects.outputs.payloads) {
                rows.push_str(row);
                rows.push('\n');
            }
        }
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_greatest_totals_have_room() {
        let totals = Totals {
            count: u64::MAX,
            sum: i64::MIN,
        };
        let column = state_column(&[totals]).unwrap();
        assert_eq!(column.values.get(0).len(), TOTALS_BYTES_MAX);
    }

    #[test]
    fn a_line_without_an_amount_fails() {
        let event = r#"{"user":"user-1"}"#;
        let reason = parse(&batch(&[""], &[(0, event)])).unwrap_err();
        assert!(reason.starts_with("message 0: "), "{reason}");
        assert!(reason.contains("amount"), "{reason}");
    }
}
