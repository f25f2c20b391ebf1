//! The table.

use std::fmt;

use crate::harness::Compared;

/// A line of the table: our figure, the peer's, and what it should be.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    unit: &'static str,
    ours: f64,
    peer: &'static str,
    theirs: Option<f64>,
    ratio: Option<f64>,
    gates: Vec<Gate>,
    direction: Option<f64>,
}

/// What has to hold.
#[derive(Clone, Copy, Debug)]
enum Gate {
    /// The most that our figure may be of the peer's.
    Ratio(f64),
    /// The most that our figure may be.
    Ours(f64),
}

impl Row {
    /// Ours beside a peer's.
    pub(crate) fn compared(
        what: impl Into<String>,
        unit: &'static str,
        peer: &'static str,
        compared: Compared,
    ) -> Self {
        Self {
            what: what.into(),
            unit,
            ours: compared.ours,
            peer,
            theirs: Some(compared.theirs),
            ratio: Some(compared.ratio),
            gates: Vec::new(),
            direction: None,
        }
    }

    /// Ours alone.
    pub(crate) fn alone(what: impl Into<String>, unit: &'static str, ours: f64) -> Self {
        Self {
            what: what.into(),
            unit,
            ours,
            peer: "",
            theirs: None,
            ratio: None,
            gates: Vec::new(),
            direction: None,
        }
    }

    /// The most that ours may be of the peer's.
    pub(crate) fn gate(mut self, ratio: f64) -> Self {
        self.gates.push(Gate::Ratio(ratio));
        self
    }

    /// The most that ours may be, whatever the peer's.
    pub(crate) fn gate_on_ours(mut self, most: f64) -> Self {
        self.gates.push(Gate::Ours(most));
        self
    }

    /// Where to push once everything else is right.
    pub(crate) fn direction(mut self, direction: f64) -> Self {
        self.direction = Some(direction);
        self
    }

    /// Whether all gates hold; true where there is none.
    pub(crate) fn holds(&self) -> bool {
        self.gates.iter().all(|gate| match gate {
            Gate::Ours(most) => self.ours <= *most,
            Gate::Ratio(most) => self.ratio.is_some_and(|ratio| ratio <= *most),
        })
    }

    pub(crate) fn print_head() {
        println!(
            "{:<46} {:>11} {:>16} {:>11} {:>6}  {:<10} {:>5}  gate holds",
            "what", "tollgate", "peer", "its figure", "ratio", "gate", "dir."
        );
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figure = |value: f64| {
            let decimals = if value < 10.0 { 2 } else { 1 };
            format!("{value:.decimals$} {}", self.unit)
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        write!(
            f,
            "{:<46} {:>11} {:>16} {:>11} {:>6}  {:<10} {:>5}  {}",
            self.what,
            figure(self.ours),
            self.peer,
            or_none(self.theirs.map(figure)),
            or_none(self.ratio.map(|ratio| format!("{ratio:.2}"))),
            or_none((!self.gates.is_empty()).then(|| {
                let gates = self.gates.iter().map(|gate| match gate {
                    Gate::Ratio(most) => format!("<= {most} x"),
                    Gate::Ours(most) => {
                        format!("<= {} {}", (most * 100.0).round() / 100.0, self.unit)
                    }
                });
                gates.collect::<Vec<_>>().join(", ")
            })),
            or_none(self.direction.map(|direction| direction.to_string())),
            match (self.gates.is_empty(), self.holds()) {
                (true, _) => "",
                (_, true) => "yes",
                (_, false) => "NO",
            }
        )
    }
}
