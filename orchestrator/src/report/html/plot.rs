//! Plots of a page: they stretch with it, so drawing and text are apart. Curves
//! are SVG without text in a 1000-wide box that is stretched freely; strokes and
//! dots keep their size (`non-scaling-stroke`), labels are HTML.

use std::fmt::Write;

use maud::{Markup, html};

use crate::{
    report::number::{Unit, number},
    stats::summary::{quantile, sorted},
};

/// Width of every drawing, in its own units.
const WIDTH: f64 = 1000.0;
/// Values are drawn one by one up to this many; a box stands for all of them anyway.
const MOST_DOTS: usize = 400;

/// A range of values and round marks on it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Scale {
    /// A scale that holds all values, 0 included when it is near.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        if low > 0.0 && low < 0.5 * high {
            low = 0.0;
        }
        if high < 0.0 && high > 0.5 * low {
            high = 0.0;
        }
        if high - low <= f64::EPSILON * high.abs().max(low.abs()) {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.1 };
            (low, high) = (if low == 0.0 { 0.0 } else { low - room }, high + room);
        }
        // Round steps of 1, 2 or 5 times a power of ten, four to eight of them.
        let raw = (high - low) / 5.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| *step >= raw * 0.999)
            .unwrap_or(10.0 * power);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks: Vec<f64> = (0..=(last - first) as usize)
            .map(|place| (first + place as f64) * step)
            .collect();
        Self {
            low: first * step,
            high: last * step,
            ticks,
        }
    }

    fn share(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    fn x(&self, value: f64) -> f64 {
        (self.share(value) * WIDTH * 10.0).round() / 10.0
    }

    /// Marks below a plot.
    pub fn axis(&self, divisor: f64, unit: &str) -> Markup {
        let last = self.ticks.len() - 1;
        html! {
            div.axis {
                div.ticks {
                    @for (place, tick) in self.ticks.iter().enumerate() {
                        span style=(format!("left:{:.2}%", self.share(*tick) * 100.0)) {
                            (number(tick / divisor))
                            @if place == last && !unit.is_empty() { " " (unit) }
                        }
                    }
                }
            }
        }
    }

    fn grid(&self, height: f64) -> String {
        let mut path = String::new();
        for tick in &self.ticks {
            let _ = write!(path, "M{} 0v{height}", self.x(*tick));
        }
        path
    }
}

/// One side's values in a strip: a box over all samples (whiskers from the 1st
/// to the 99th percentile, quartiles, median) and dots for the runs.
pub(super) fn strip(
    scale: &Scale,
    class: &str,
    label: &str,
    runs: &[f64],
    samples: &[f64],
    is_first: bool,
) -> Markup {
    let of_box = if samples.is_empty() { runs } else { samples };
    let sorted = sorted(of_box);
    let mut dots = String::new();
    let shown: &[f64] = if samples.is_empty() || samples.len() > MOST_DOTS {
        runs
    } else {
        samples
    };
    for (place, value) in shown.iter().enumerate() {
        // Neighbours are set apart vertically, by the same pattern every time.
        let y = 11 + [0, -4, 4, -2, 2][place % 5];
        let _ = write!(dots, "M{} {y}h0", scale.x(*value));
    }
    let boxes = (!sorted.is_empty()).then(|| {
        let at = |p: f64| scale.x(quantile(&sorted, p));
        (
            format!("M{} 11H{}", at(0.01), at(0.99)),
            format!("M{} 11H{}", at(0.25), at(0.75)),
            format!("M{} 4v14", at(0.5)),
        )
    });
    html! {
        div.strip.first[is_first] {
            div.lbl { (label) }
            svg viewBox="0 0 1000 22" preserveAspectRatio="none" role="img" aria-label=(label) {
                path.grid d=(scale.grid(22.0)) {}
                @if let Some((whisker, half, middle)) = &boxes {
                    path class=(format!("whisker {class}")) d=(whisker) {}
                    path class=(format!("half {class}")) d=(half) {}
                    path class=(format!("mid {class}")) d=(middle) {}
                }
                path class=(format!("dots {class}")) d=(dots) {}
            }
        }
    }
}

/// Values over the order of runs, as shares of the mean of their cell, with the
/// medians of the thirds of the campaign.
pub(super) fn order(values: &[(usize, f64)], caption: &str) -> Markup {
    const HEIGHT: f64 = 150.0;
    let scale = Scale::of(values.iter().map(|(_, value)| *value).chain([0.0]));
    let last = values.iter().map(|(run, _)| *run).max().unwrap_or(0).max(1) as f64;
    let x = |run: f64| (run / last * WIDTH * 10.0).round() / 10.0;
    let y = |value: f64| ((1.0 - scale.share(value)) * HEIGHT * 10.0).round() / 10.0;
    let mut dots = String::new();
    for (run, value) in values {
        let _ = write!(dots, "M{} {}h0", x(*run as f64), y(*value));
    }
    let mut grid = String::new();
    for tick in &scale.ticks {
        let _ = write!(grid, "M0 {}h1000", y(*tick));
    }
    let mut steps = String::new();
    if values.len() >= 6 {
        for third in values.chunks(values.len().div_ceil(3)) {
            let shares: Vec<f64> = third.iter().map(|(_, value)| *value).collect();
            let middle = y(quantile(&sorted(&shares), 0.5));
            let (start, end) = (third[0].0 as f64, third[third.len() - 1].0 as f64);
            let _ = write!(steps, "M{} {middle}H{}", x(start), x(end));
        }
    }
    html! {
        figure {
            figcaption { (caption) }
            div.order {
                @for tick in &scale.ticks {
                    span.y style=(format!("top:{:.1}px", y(*tick))) { (format!("{:+.0} %", tick * 100.0).replace("+0 %", "0 %").replace("-0 %", "0 %")) }
                }
                svg viewBox="0 0 1000 150" preserveAspectRatio="none" role="img" aria-label=(caption) {
                    path.grid d=(grid) {}
                    path.dots.n d=(dots) {}
                    path.trend d=(steps) {}
                }
                div.ticks {
                    span style="left:0%" { "run 0" }
                    span style="left:100%" { "run " (last as usize) }
                }
            }
        }
    }
}

/// Means over nights, with lines where a level holds.
pub(super) fn levels(
    means: &[(usize, f64)],
    steps: &[(usize, usize, f64)],
    unit: &Unit,
    ends: (&str, &str),
) -> Markup {
    const HEIGHT: f64 = 150.0;
    let scale = Scale::of(means.iter().map(|(_, mean)| *mean));
    let last = means
        .iter()
        .map(|(night, _)| *night)
        .max()
        .unwrap_or(0)
        .max(1) as f64;
    let x = |night: usize| (night as f64 / last * WIDTH * 10.0).round() / 10.0;
    let y = |value: f64| ((1.0 - scale.share(value)) * HEIGHT * 10.0).round() / 10.0;
    let (mut dots, mut grid, mut lines) = (String::new(), String::new(), String::new());
    for (night, mean) in means {
        let _ = write!(dots, "M{} {}h0", x(*night), y(*mean));
    }
    for tick in &scale.ticks {
        let _ = write!(grid, "M0 {}h1000", y(*tick));
    }
    for (start, end, level) in steps {
        let _ = write!(lines, "M{} {}H{}", x(*start), y(*level), x(*end));
    }
    html! {
        figure {
            figcaption { "a dot per night" @if !unit.name.is_empty() { ", " (unit.name) } @if !steps.is_empty() { "; dashed: levels between changes" } }
            div.order {
                @for tick in &scale.ticks {
                    span.y style=(format!("top:{:.1}px", y(*tick))) { (unit.show(*tick)) }
                }
                svg viewBox="0 0 1000 150" preserveAspectRatio="none" role="img" aria-label="means over nights" {
                    path.grid d=(grid) {}
                    path.trend d=(lines) {}
                    path.dots.n d=(dots) {}
                }
                div.ticks {
                    span style="left:0%" { (ends.0) }
                    span style="left:100%" { (ends.1) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_hold_their_values_between_round_marks() {
        let scale = Scale::of([48_211.0, 51_020.0, 0.0]);
        assert_eq!((scale.low, scale.high), (0.0, 60_000.0));
        assert_eq!(scale.ticks.len(), 4);
        let near = Scale::of([1003.0, 1009.0]);
        assert_eq!((near.low, near.high), (1002.0, 1010.0));
        assert_eq!(Scale::of([0.0; 4]).high, 1.0);
        assert_eq!(Scale::of([]).ticks.first(), Some(&0.0));
        let one = Scale::of([7.0]);
        assert!(one.low < 7.0 && one.high > 7.0);
        let negative = Scale::of([-3.0, 2.0]);
        assert!(negative.ticks.contains(&0.0));
    }
}
