//! Numbers as people read them: three or four digits that mean something,
//! groups of three, one unit per table.

use topolab_protocol::sample::MetricKind;

use crate::stats::bootstrap::{Change, Scale};

/// Stands between digits and their unit; tables do not break lines there.
pub const NBSP: char = '\u{a0}';

/// The unit a table's values are shown in.
#[derive(Debug, Clone, PartialEq)]
pub struct Unit {
    /// Values are divided by this.
    pub divisor: f64,
    /// Its name.
    pub name: String,
}

impl Unit {
    /// The unit in which values of this size read best: nanoseconds become
    /// µs, ms or s, bytes become KiB, MiB or GiB; all others stay.
    pub fn of(unit: &str, kind: MetricKind, largest: f64) -> Self {
        const TIME: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
        const BYTES: [(f64, &str); 4] = [
            (1_073_741_824.0, "GiB"),
            (1_048_576.0, "MiB"),
            (1024.0, "KiB"),
            (1.0, "B"),
        ];
        let scale = match (unit, kind) {
            ("ns", MetricKind::Duration) => &TIME,
            ("B", MetricKind::Size) => &BYTES,
            _ => {
                return Self {
                    divisor: 1.0,
                    name: unit.into(),
                };
            }
        };
        let (divisor, name) = scale
            .iter()
            .find(|(size, _)| largest.abs() >= *size)
            .unwrap_or(&scale[3]);
        Self {
            divisor: *divisor,
            name: (*name).into(),
        }
    }

    /// A value in this unit, without its name.
    pub fn show(&self, value: f64) -> String {
        number(value / self.divisor)
    }
}

/// A number with the digits that matter, groups of three apart.
pub fn number(value: f64) -> String {
    let size = value.abs();
    let decimals = if value == value.trunc() || size >= 1000.0 {
        0
    } else if size >= 100.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        // Three significant digits, however small.
        (2 - size.log10().floor() as i32).clamp(3, 12) as usize
    };
    let text = format!("{value:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, format!(".{fraction}")),
        None => (digits, String::new()),
    };
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 {
            grouped.push(NBSP);
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// A share as a percentage, `3.1 %`.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    let decimals = usize::from(percent.abs() < 99.95 && percent.fract() != 0.0 || percent == 0.0);
    format!("{percent:.decimals$}{NBSP}%")
}

/// A change with its sign: `-3.1 %`, `+240 %`, `×12`.
pub fn signed_percent(share: f64) -> String {
    if share >= 9.995 {
        return format!("×{}", number(share + 1.0));
    }
    let text = percent(share);
    if share > 0.0 {
        format!("+{text}")
    } else {
        text
    }
}

/// `mean ±CoV`, or the mean alone where there is no CoV.
pub fn mean_and_cov(unit: &Unit, mean: f64, cov: Option<f64>) -> String {
    match cov {
        Some(cov) => format!("{}{NBSP}±{}", unit.show(mean), percent(cov)),
        None => unit.show(mean),
    }
}

/// The interval of a change, `[-3.1 %, +0.4 %]`, or `[+12, +15] count`.
pub fn interval(change: &Change, unit: &Unit) -> String {
    let one = |value: f64| match change.scale {
        Scale::Relative => signed_percent(value),
        Scale::Absolute if value > 0.0 => format!("+{}", unit.show(value)),
        Scale::Absolute => unit.show(value),
    };
    let text = format!(
        "[{},{NBSP}{}]",
        one(change.interval.low),
        one(change.interval.high)
    );
    match change.scale {
        Scale::Relative => text,
        Scale::Absolute => format!("{text}{NBSP}{}", unit.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        text.replace(NBSP, " ")
    }

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let shown: Vec<String> = [
            0.0,
            7.0,
            48_211.4,
            1_234_567.0,
            123.456,
            12.345,
            1.0 / 3.0,
            0.000_123_4,
            -5_000.5,
            -0.5,
        ]
        .iter()
        .map(|value| plain(&number(*value)))
        .collect();
        assert_eq!(
            shown,
            [
                "0",
                "7",
                "48 211",
                "1 234 567",
                "123.5",
                "12.35",
                "0.333",
                "0.000123",
                "-5 000",
                "-0.500"
            ]
        );
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(plain(&percent(0.0)), "0.0 %");
        assert_eq!(plain(&percent(0.0312)), "3.1 %");
        assert_eq!(plain(&percent(3.806)), "381 %");
        assert_eq!(plain(&percent(0.05)), "5 %");
        assert_eq!(plain(&signed_percent(-1.0)), "-100 %");
        assert_eq!(plain(&signed_percent(0.034)), "+3.4 %");
        assert_eq!(plain(&signed_percent(119.0)), "×120");
    }

    #[test]
    fn units_follow_the_size_of_values() {
        let time = Unit::of("ns", MetricKind::Duration, 2.5e6);
        assert_eq!(
            (time.name.as_str(), time.show(2.5e6).as_str()),
            ("ms", "2.50")
        );
        assert_eq!(Unit::of("B", MetricKind::Size, 3e9).name, "GiB");
        assert_eq!(Unit::of("count", MetricKind::Count, 3e9).name, "count");
        assert_eq!(Unit::of("ns", MetricKind::Duration, 0.0).name, "ns");
    }
}
