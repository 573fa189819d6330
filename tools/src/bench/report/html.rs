//! The report as one page that needs nothing else: a chart in SVG, the table, the settings.
//!
//! The chart has a line per target over the sizes, both axes logarithmic. No scripts, no fonts, no links.

use std::fmt::Write as _;

use super::{Kind, Report, Row, duration, grouped};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
/// Room for the labels: left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (80.0, 150.0, 20.0, 45.0);
/// Told apart also by people who see few colours.
const COLOURS: [&str; 6] = ["#555555", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:62em;margin:2em auto;padding:0 1em;\
    color:#222;background:#fff}table{border-collapse:collapse;margin:.5em 0 1.5em}\
    td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid #ddd}\
    td:first-child,th:first-child,td:last-child,th:last-child{text-align:left}\
    svg text{font:12px system-ui,sans-serif;fill:#333}pre{background:#f5f5f5;padding:1em;overflow:auto}";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let heading = report.heading();
    let (title, facts) = heading.split_once('\n').unwrap_or((&heading, ""));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{}</h1>\n<p>{}<br>{}</p>\n",
        escape(title),
        escape(title),
        escape(facts),
        escape(&report.summary)
    );
    page.push_str(&chart(report));
    let mut sizes: Vec<_> = report.rows.iter().map(|row| row.size).collect();
    sizes.dedup();
    for size in sizes {
        let noun = if report.kind == Kind::Fanout { "subscribers" } else { "connections" };
        let _ = writeln!(page, "<h2>{} {noun}</h2>\n<table>", grouped(size as u64));
        line(&mut page, "th", &report.columns());
        for row in report.rows.iter().filter(|row| row.size == size) {
            line(&mut page, "td", &report.cells(row));
        }
        page.push_str("</table>\n");
    }
    page.push_str("<h2>Targets</h2>\n<table>\n");
    for target in &report.targets {
        let command = target.commands.join(" | ");
        line(&mut page, "td", &[target.name.clone(), target.address.clone(), command]);
    }
    page.push_str("</table>\n");
    for note in &report.notes {
        let _ = writeln!(page, "<p>{}</p>", escape(note));
    }
    let settings = serde_json::to_string_pretty(&report.settings).unwrap_or_default();
    let _ = writeln!(page, "<h2>Settings</h2>\n<pre>{}</pre>\n</body></html>", escape(&settings));
    page
}

fn line(page: &mut String, tag: &str, cells: &[String]) {
    page.push_str("<tr>");
    for cell in cells {
        let _ = write!(page, "<{tag}>{}</{tag}>", escape(cell));
    }
    page.push_str("</tr>\n");
}

/// A logarithmic axis.
#[derive(Clone, Copy)]
struct Axis {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Axis {
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let (from, to) = (low.max(1.0).log10(), high.max(1.0).log10());
        // A single value sits in the middle of a decade.
        if to - from < 0.2 {
            return Axis { from: from - 0.5, to: to + 0.5, start, end };
        }
        Axis { from, to, start, end }
    }

    fn place(self, value: f64) -> f64 {
        let share = (value.max(1.0).log10() - self.from) / (self.to - self.from);
        self.start + share * (self.end - self.start)
    }

    /// 1, 2 and 5 of every decade within.
    fn marks(self) -> Vec<f64> {
        let decades = self.from.floor() as i32..=self.to.ceil() as i32;
        let marks = decades.flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        marks.filter(|mark| (self.from - 0.01..=self.to + 0.01).contains(&mark.log10())).collect()
    }
}

fn value(kind: Kind, row: &Row) -> f64 {
    match kind {
        Kind::Fanout => row.latency.p50_ns as f64,
        Kind::Echo | Kind::Connect => row.per_second.unwrap_or(0.0),
    }
}

fn chart(report: &Report) -> String {
    let (left, right, top, bottom) = MARGIN;
    let kind = report.kind;
    let x = Axis::over(report.rows.iter().map(|row| row.size as f64), left, WIDTH - right);
    let y = Axis::over(report.rows.iter().map(|row| value(kind, row)), HEIGHT - bottom, top);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"100%\" role=\"img\">\n");
    for mark in y.marks() {
        let at = y.place(mark);
        let label = if kind == Kind::Fanout { duration(mark as u64) } else { grouped(mark as u64) };
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            WIDTH - right,
            left - 8.0,
            at + 4.0
        );
    }
    let mut sizes: Vec<_> = report.rows.iter().map(|row| row.size).collect();
    sizes.dedup();
    for size in sizes {
        let at = x.place(size as f64);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - bottom + 18.0,
            grouped(size as u64)
        );
    }
    let titles = match kind {
        Kind::Fanout => "subscribers (p50 to the last one, lower is better)",
        Kind::Echo => "connections (echoes a second, higher is better)",
        Kind::Connect => "client at a time (connections a second, higher is better)",
    };
    let middle = (left + WIDTH - right) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{titles}</text>",
        HEIGHT - 6.0
    );
    for (index, target) in report.targets.iter().enumerate() {
        lines(&mut svg, report, &target.name, COLOURS[index % COLOURS.len()], (x, y), index);
    }
    svg.push_str("</svg>\n");
    svg
}

fn lines(
    svg: &mut String,
    report: &Report,
    name: &str,
    colour: &str,
    axes: (Axis, Axis),
    index: usize,
) {
    let (x, y) = axes;
    let rows = report.rows.iter().filter(|row| row.target == name);
    let points: Vec<_> =
        rows.map(|row| (x.place(row.size as f64), y.place(value(report.kind, row)))).collect();
    let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
        path.join(" ")
    );
    for (x, y) in &points {
        let _ = write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>");
    }
    let (at_x, at_y) = (WIDTH - MARGIN.1 + 20.0, MARGIN.2 + 14.0 + 20.0 * index as f64);
    let _ = writeln!(
        svg,
        "<rect x=\"{at_x}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
         <text x=\"{}\" y=\"{at_y}\">{}</text>",
        at_y - 6.0,
        at_x + 20.0,
        escape(name)
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
