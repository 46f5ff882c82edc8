//! Several measurements of one thing: their median and their range.

use std::fmt;

/// Measurements in ascending order, at least one.
#[derive(Debug)]
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    /// Takes measurements; `None` if there are none.
    pub(crate) fn of(measured: impl IntoIterator<Item = f64>) -> Option<Figures> {
        let mut measured: Vec<f64> = measured.into_iter().collect();
        measured.sort_by(f64::total_cmp);
        (!measured.is_empty()).then_some(Figures(measured))
    }

    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        match self.0.len() % 2 {
            1 => self.0[middle],
            _ => (self.0[middle - 1] + self.0[middle]) / 2.0,
        }
    }

    fn range(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

/// The median, the least and the greatest, with as many digits as the precision says.
impl fmt::Display for Figures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = formatter.precision().unwrap_or(0);
        let (least, greatest) = self.range();
        let median = self.median();
        write!(
            formatter,
            "{median:.digits$} ({least:.digits$}-{greatest:.digits$})"
        )
    }
}

/// The figures with so many digits, or that there are none.
pub(crate) fn shown(figures: Option<Figures>, digits: usize) -> String {
    figures.map_or_else(|| "unknown".to_owned(), |it| format!("{it:.digits$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_range_do_not_depend_on_the_order() {
        let figures = Figures::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!(format!("{figures:.1}"), "2.0 (1.0-3.0)");
        let figures = Figures::of([4.0, 1.0]).unwrap();
        assert_eq!(format!("{figures:.1}"), "2.5 (1.0-4.0)");
        assert!(Figures::of([]).is_none());
    }
}
