//! What windows should emit, calculated the slow way: every message is kept, and windows and panes are
//! made of all of them anew whenever something happens.

use std::collections::BTreeSet;

use tidelock_guest::window::Timing;

use crate::panes::{Kind, Options, Row};

/// A message that was not too late.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    key: String,
    moment: u64,
    id: u32,
}

/// A window of a key and the messages in it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Span {
    key: String,
    end: u64,
    start: u64,
    ids: BTreeSet<u32>,
}

/// A pane that was emitted, with all messages that its window had then.
struct Emitted {
    span: Span,
    number: u32,
}

pub(crate) struct Model {
    options: Options,
    watermark: u64,
    seen: Vec<Seen>,
    /// Of this run.
    emitted: Vec<Emitted>,
    pub(crate) panes: Vec<Row>,
    pub(crate) too_late: Vec<u32>,
}

impl Model {
    pub(crate) fn new(options: Options) -> Model {
        Model {
            options,
            watermark: 0,
            seen: Vec::new(),
            emitted: Vec::new(),
            panes: Vec::new(),
            too_late: Vec::new(),
        }
    }

    pub(crate) fn message(&mut self, key: &str, moment: u64, id: u32) {
        self.seen.push(Seen {
            key: key.to_owned(),
            moment,
            id,
        });
        let mine: Vec<Span> = (self.spans().into_iter())
            .filter(|span| span.ids.contains(&id) && !self.is_freed(span, self.watermark))
            .collect();
        if mine.is_empty() {
            self.seen.pop();
            self.too_late.push(id);
        }
        for span in mine {
            if span.end <= self.watermark {
                self.emit(&span, Timing::Late);
            } else if (self.options.early_after)
                .is_some_and(|count| self.fresh(&span).len() >= count as usize)
            {
                self.emit(&span, Timing::Early);
            }
        }
    }

    pub(crate) fn step(&mut self, watermark: u64) {
        let before = self.watermark;
        self.watermark = watermark.max(before);
        let mut due = Vec::new();
        for span in self.spans() {
            // One that is over already had its pane on time, at a message or a step.
            if span.end > before && span.end <= self.watermark {
                due.push((span.end, Timing::OnTime, span));
            } else if span.end > self.watermark && !self.fresh(&span).is_empty() {
                let next = (self.options.early_every).map(|period| (before / period + 1) * period);
                if let Some(next) = next.filter(|next| *next <= self.watermark) {
                    due.push((next, Timing::Early, span));
                }
            }
        }
        due.sort_by_key(|(trigger, _, span)| (*trigger, span.end, span.start));
        for (_, timing, span) in due {
            self.emit(&span, timing);
        }
        self.forget();
    }

    pub(crate) fn end_of_run(&mut self) {
        self.step(u64::MAX);
        self.watermark = 0;
        self.emitted.clear();
        assert!(self.seen.is_empty(), "{:?}", self.seen);
    }

    /// All windows that have messages.
    fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut seen = self.seen.clone();
        seen.sort();
        for message in seen {
            for (start, end) in self.extents(message.moment) {
                let same = |span: &&mut Span| {
                    let joined = match self.options.kind {
                        // The messages come in the order of their moments.
                        Kind::Session { .. } => start < span.end,
                        _ => (span.start, span.end) == (start, end),
                    };
                    span.key == message.key && joined
                };
                match spans.iter_mut().find(same) {
                    Some(span) => {
                        span.end = span.end.max(end);
                        span.ids.insert(message.id);
                    }
                    None => spans.push(Span {
                        key: message.key.clone(),
                        end,
                        start,
                        ids: BTreeSet::from([message.id]),
                    }),
                }
            }
        }
        spans.sort_by_key(|span| (span.end, span.start));
        spans
    }

    /// Starts and ends of the windows of a moment, found by trying all.
    fn extents(&self, moment: u64) -> Vec<(u64, u64)> {
        let (size, period) = match self.options.kind {
            Kind::Tumbling { size } => (size, size),
            Kind::Sliding { size, period } => (size, period),
            Kind::Session { gap } => return vec![(moment, moment + gap)],
        };
        let (size, period, moment) = (size as i64, period as i64, moment as i64);
        (moment - size + 1..=moment)
            .filter(|start| (start - self.options.offset as i64) % period == 0)
            .map(|start| (start.max(0) as u64, (start + size) as u64))
            .collect()
    }

    /// Panes of a window, or of sessions that are part of it now.
    fn earlier<'a>(&'a self, span: &'a Span) -> impl Iterator<Item = &'a Emitted> {
        self.emitted.iter().filter(|earlier| {
            let same = match self.options.kind {
                Kind::Session { .. } => !earlier.span.ids.is_disjoint(&span.ids),
                _ => (earlier.span.start, earlier.span.end) == (span.start, span.end),
            };
            earlier.span.key == span.key && same
        })
    }

    /// The messages of a window that no pane has told of.
    fn fresh(&self, span: &Span) -> BTreeSet<u32> {
        let told: BTreeSet<u32> = (self.earlier(span))
            .flat_map(|earlier| earlier.span.ids.iter().copied())
            .collect();
        span.ids.difference(&told).copied().collect()
    }

    fn emit(&mut self, span: &Span, timing: Timing) {
        let ids = match self.options.discarding {
            true => self.fresh(span),
            false => span.ids.clone(),
        };
        let number = (self.earlier(span))
            .map(|earlier| earlier.number + 1)
            .max()
            .unwrap_or(0);
        self.panes.push(Row {
            key: span.key.clone(),
            start: span.start,
            end: span.end,
            timing,
            number,
            ids: ids.into_iter().collect(),
        });
        self.emitted.push(Emitted {
            span: span.clone(),
            number,
        });
    }

    fn is_freed(&self, span: &Span, watermark: u64) -> bool {
        span.end.saturating_add(self.options.allowed_lateness) <= watermark
    }

    /// Forgets messages all of whose windows are freed.
    fn forget(&mut self) {
        let kept: BTreeSet<u32> = (self.spans().into_iter())
            .filter(|span| !self.is_freed(span, self.watermark))
            .flat_map(|span| span.ids)
            .collect();
        self.seen.retain(|message| kept.contains(&message.id));
    }
}
