//! What the computations take and emit, as text that says where it came from.

/// A message that a computation emits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emitted {
    /// Index of the output.
    pub output: u16,
    /// Its key.
    pub key: Vec<u8>,
    /// Its event time, 0 for none.
    pub event_time: u64,
    /// Its payload: that of the message it came from, then what was done to it.
    pub payload: Vec<u8>,
}

/// A timer that fires.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fired {
    /// The name of its stream.
    pub stream: String,
    /// When it was to fire.
    pub trigger_time: u64,
    /// The event time that it carries.
    pub event_time: u64,
    /// Its key.
    pub key: Vec<u8>,
}

/// What the transform saw of an item, as the answer to it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// What was answered.
    pub what: SeenItem,
    /// The watermark of each input.
    pub watermarks: Vec<u64>,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeenItem {
    /// A message of this payload.
    Message(Vec<u8>),
    /// A timer.
    Timer(Fired),
}

/// The record that a message goes back to.
pub fn record_of(payload: &[u8]) -> &[u8] {
    payload
        .split(|byte| *byte == b'/')
        .next()
        .unwrap_or(payload)
}

/// What an answer to a message says behind the message's payload.
pub(super) fn answer(name: &str, count: u64, watermarks: &[u64], output: u16) -> String {
    let texts: Vec<String> = watermarks.iter().map(u64::to_string).collect();
    format!("/{name}:{count}w{}.{output}", texts.join(","))
}

/// What an answer to a timer goes back to: the last record of the key, then the timer, which fires as the
/// `number`th one of its key.
pub(super) fn timer_payload(record: &[u8], name: &str, fired: &Fired, number: u64) -> Vec<u8> {
    let Fired {
        stream,
        trigger_time,
        event_time,
        key,
    } = fired;
    let key = key.escape_ascii();
    let timer = format!("/{name}!{stream}@{trigger_time}@{event_time}@{key}@{number}");
    [record, timer.as_bytes()].concat()
}

/// What the transform `name` saw, by one of its answers; `None` for what is no answer of it.
pub fn seen(name: &str, row: &[u8]) -> Option<Seen> {
    let at = row.iter().rposition(|byte| *byte == b'/')?;
    let (payload, answer) = (&row[..at], std::str::from_utf8(&row[at + 1..]).ok()?);
    let answer = answer.strip_prefix(name)?.strip_prefix(':')?;
    let (answer, _output) = answer.split_once('.')?;
    let (_count, watermarks) = answer.split_once('w')?;
    let watermarks = watermarks.split(',').map(|text| text.parse().ok());
    Some(Seen {
        what: match timer_of(name, payload) {
            Some(fired) => SeenItem::Timer(fired),
            None => SeenItem::Message(payload.to_vec()),
        },
        watermarks: watermarks.collect::<Option<_>>()?,
    })
}

fn timer_of(name: &str, payload: &[u8]) -> Option<Fired> {
    let at = payload.iter().rposition(|byte| *byte == b'/')?;
    let timer = std::str::from_utf8(&payload[at + 1..]).ok()?;
    let mut parts = timer.strip_prefix(name)?.strip_prefix('!')?.split('@');
    Some(Fired {
        stream: parts.next()?.to_owned(),
        trigger_time: parts.next()?.parse().ok()?,
        event_time: parts.next()?.parse().ok()?,
        key: parts.next()?.as_bytes().to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_what_was_seen() {
        let row = [
            b"s0p1.7/m0.1",
            answer("t1", 3, &[5, u64::MAX], 0).as_bytes(),
        ]
        .concat();
        let message = seen("t1", &row).expect("it is an answer");
        assert_eq!(message.what, SeenItem::Message(b"s0p1.7/m0.1".to_vec()));
        assert_eq!(message.watermarks, [5, u64::MAX]);
        assert_eq!(seen("t", &row), None);
        assert_eq!(seen("t2", b"s0p1.7/m0.1"), None);
        let fired = Fired {
            stream: "ring".to_owned(),
            trigger_time: 70,
            event_time: 8,
            key: b"k4".to_vec(),
        };
        let payload = timer_payload(b"s0p1.7", "t1", &fired, 9);
        let row = [&payload[..], answer("t1", 1, &[0], 1).as_bytes()].concat();
        let timer = seen("t1", &row).expect("it is an answer");
        assert_eq!(timer.what, SeenItem::Timer(fired));
        assert_eq!(record_of(&row), b"s0p1.7");
    }
}
