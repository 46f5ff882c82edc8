//! Numbers drawn by Zipf's law: of `n` ranks, rank `k` comes in proportion to `k` to the power of `-s`.
//!
//! By rejection-inversion (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from
//! monotone discrete distributions", 1996): no table, whatever `n` is. Logarithms and exponentials are
//! those of the crate `libm`, which computes them by additions and multiplications alone; those have
//! one result on every machine, which the ones of the operating system have not.

/// The law for one number of ranks and one exponent.
#[derive(Debug, Clone)]
pub(super) struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The integral of the hat function up to half a rank behind the first one, less the first one's weight.
    integral_first: f64,
    /// Up to half a rank behind the last one.
    integral_last: f64,
    /// A point so close below a rank is of that rank without a further look.
    squeeze: f64,
}

impl Zipf {
    /// A law of at least 1 rank and an exponent above 0.
    pub(super) fn new(ranks: u64, exponent: f64) -> Zipf {
        let mut law = Zipf {
            ranks: ranks as f64,
            exponent,
            integral_first: 0.0,
            integral_last: 0.0,
            squeeze: 0.0,
        };
        law.integral_first = law.integral(1.5) - 1.0;
        law.integral_last = law.integral(law.ranks + 0.5);
        law.squeeze = 2.0 - law.inverse(law.integral(2.5) - law.weight(2.0));
        law
    }

    /// A rank from 1 on. `uniform` gives a number from 0 to below 1 for each attempt, the first of which
    /// nearly always does.
    pub(super) fn draw(&self, uniform: impl Fn(u64) -> f64) -> u64 {
        let mut attempt = 0;
        loop {
            let at = uniform(attempt);
            let area = self.integral_last + at * (self.integral_first - self.integral_last);
            let point = self.inverse(area);
            let rank = libm::floor(point + 0.5).clamp(1.0, self.ranks);
            let is_below = rank - point <= self.squeeze;
            if is_below || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as u64;
            }
            attempt += 1;
        }
    }

    fn weight(&self, at: f64) -> f64 {
        libm::exp(-self.exponent * libm::log(at))
    }

    fn integral(&self, at: f64) -> f64 {
        let log = libm::log(at);
        expm1_ratio((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may lead a little below the least value.
        let product = (area * (1.0 - self.exponent)).max(-1.0);
        libm::exp(log1p_ratio(product) * area)
    }
}

/// `(exp(x) - 1) / x`, also where `x` is next to 0.
fn expm1_ratio(x: f64) -> f64 {
    match x.abs() > 1e-8 {
        true => libm::expm1(x) / x,
        false => 1.0 + x / 2.0 * (1.0 + x / 3.0),
    }
}

/// `log(1 + x) / x`, also where `x` is next to 0.
fn log1p_ratio(x: f64) -> f64 {
    match x.abs() > 1e-8 {
        true => libm::log1p(x) / x,
        false => 1.0 - x * (0.5 - x / 3.0),
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64_with_seed;

    use super::*;

    fn counts(ranks: u64, exponent: f64, draws: u64) -> Vec<u64> {
        let law = Zipf::new(ranks, exponent);
        let mut counts = vec![0; ranks as usize];
        for draw in 0..draws {
            let uniform = |attempt| {
                let drawn = xxh3_64_with_seed(&draw.to_le_bytes(), attempt);
                (drawn >> 11) as f64 / (1_u64 << 53) as f64
            };
            counts[law.draw(uniform) as usize - 1] += 1;
        }
        counts
    }

    #[test]
    fn ranks_come_as_often_as_the_law_says() {
        for (ranks, exponent) in [(1, 1.0), (2, 0.5), (10, 1.0), (10, 2.5), (100, 0.99)] {
            let draws = 200_000;
            let counts = counts(ranks, exponent, draws);
            let weights: Vec<f64> = (1..=ranks).map(|k| (k as f64).powf(-exponent)).collect();
            let sum: f64 = weights.iter().sum();
            for (rank, (count, weight)) in counts.iter().zip(&weights).enumerate() {
                let expected = draws as f64 * weight / sum;
                let off = (*count as f64 - expected).abs();
                assert!(
                    off < 5.0 * expected.sqrt() + 1.0,
                    "{ranks} ranks, exponent {exponent}: rank {} came {count} times, {expected} expected",
                    rank + 1
                );
            }
        }
    }

    #[test]
    fn draws_stay_within_the_ranks() {
        let greatest_below_one = 1.0 - f64::EPSILON / 2.0;
        for ranks in [1, 2, 1_000_000, 1 << 40] {
            for exponent in [0.001, 0.5, 1.0, 1.000_000_001, 3.0, 10.0] {
                let law = Zipf::new(ranks, exponent);
                for at in [0.0, 1e-300, 0.25, 0.5, greatest_below_one] {
                    // Later attempts are in the middle, where every law accepts something.
                    let rank = law.draw(|attempt| match attempt {
                        0 => at,
                        attempt => (attempt as f64 * 0.618_033_988_75).fract(),
                    });
                    assert!(
                        (1..=ranks).contains(&rank),
                        "{ranks} {exponent} {at}: {rank}"
                    );
                }
            }
        }
    }
}
