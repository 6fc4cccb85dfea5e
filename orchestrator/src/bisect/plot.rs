//! Every step's samples against the two ends, as a picture.

use std::error::Error;

use plotters::prelude::*;

use super::account::{Account, Mark};
use super::observation::Place;

const GOOD: RGBColor = RGBColor(0x1b, 0x6e, 0xb5);
const BAD: RGBColor = RGBColor(0xc0, 0x39, 0x2b);
const OTHER: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// An SVG of the runs of every step in the order they were asked: points, the
/// ends' means as lines and one standard deviation around each as a band. `None`
/// when there is nothing to plot.
///
/// # Errors
/// The picture could not be drawn.
pub fn samples(account: &Account) -> Result<Option<String>, Box<dyn Error>> {
    let columns: Vec<_> = account
        .steps
        .iter()
        .filter(|s| !s.values.is_empty())
        .collect();
    let values = || columns.iter().flat_map(|s| s.values.iter().copied());
    let low = values().fold(f64::INFINITY, f64::min);
    let high = values().fold(f64::NEG_INFINITY, f64::max);
    if columns.is_empty() || !low.is_finite() {
        return Ok(None);
    }
    let room = if high > low { (high - low) * 0.08 } else { 0.5 };
    let width = u32::try_from(columns.len())
        .unwrap_or(u32::MAX)
        .clamp(6, 60)
        * 56
        + 120;
    let last = f64::from(u32::try_from(columns.len()).unwrap_or(u32::MAX));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (width, 320)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(34)
            .y_label_area_size(76)
            .build_cartesian_2d(0.0..last, (low - room)..(high + room))?;
        let label = |at: &f64| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a column's number"
            )]
            let column = columns.get(at.floor().max(0.0) as usize);
            match column.map(|step| step.place) {
                Some(Place::GoodEnd) => "good".to_owned(),
                Some(Place::BadEnd) => "bad".to_owned(),
                Some(Place::At(_)) => {
                    column.map_or_else(String::new, |s| s.tree.chars().take(7).collect())
                }
                None => String::new(),
            }
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE.mix(0.0))
            .x_labels(columns.len() + 1)
            .x_label_offset(28)
            .x_label_formatter(&label)
            .draw()?;
        if let Some(ends) = account.ends.as_ref().filter(|e| e.interval.is_some()) {
            for (mean, sd, colour) in [
                (ends.good, ends.good_sd, GOOD),
                (ends.bad, ends.bad_sd, BAD),
            ] {
                let (bottom, top) = ((mean - sd).max(low - room), (mean + sd).min(high + room));
                chart.draw_series([Rectangle::new(
                    [(0.0, bottom), (last, top)],
                    colour.mix(0.08).filled(),
                )])?;
                chart.draw_series([PathElement::new(
                    vec![(0.0, mean), (last, mean)],
                    colour.mix(0.6),
                )])?;
            }
        }
        let mut at = 0.0;
        for step in &columns {
            let colour = match step.mark {
                Mark::Good => GOOD,
                Mark::Bad => BAD,
                Mark::Skip | Mark::Unclear => OTHER,
            };
            let runs = f64::from(u32::try_from(step.values.len()).unwrap_or(u32::MAX));
            let mut run = 0.0;
            let points: Vec<_> = step
                .values
                .iter()
                .map(|value| {
                    run += 1.0;
                    // Spread over the column in the order of the runs.
                    (at + 0.2 + 0.6 * run / (runs + 1.0), *value)
                })
                .collect();
            chart.draw_series(
                points
                    .into_iter()
                    .map(|point| Circle::new(point, 3, colour.filled())),
            )?;
            at += 1.0;
        }
        area.present()?;
    }
    Ok(Some(svg))
}
