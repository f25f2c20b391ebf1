//! A picture of how many requests lower limits would deny.

/// The parts of its limits that each rule is tried with, in percent.
pub(crate) const STEPS: [u32; 10] = [100, 90, 80, 70, 60, 50, 40, 30, 20, 10];

const COLOURS: [&str; 6] = [
    "#0b6bcb", "#d1495b", "#2e8540", "#8a5cd1", "#b36b00", "#00798c",
];
const BEGIN: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\" viewBox=\"0 0 660 ";

/// A line for each rule: the share of its requests that is denied, by step.
pub(crate) fn picture<'a>(lines: impl Iterator<Item = (&'a str, Vec<f64>)>) -> String {
    let lines: Vec<_> = lines.collect();
    let shares = lines.iter().flat_map(|(_, shares)| shares);
    // A picture of nothing has a scale as well.
    let most = shares.fold(0.01_f64, |most, share| most.max(*share));
    let height = 370 + 18 * lines.len();
    let mut svg = format!(
        "{BEGIN}{height}\">\n<rect width=\"660\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"60\" y=\"22\" font-size=\"14\">Requests \
         denied, by the part of the limit that is left</text>\n"
    );
    for part in 0..=4 {
        let (y, share) = (320 - 70 * part, most * f64::from(part) * 25.0);
        svg += &format!(
            "<path d=\"M60 {y}H620\" stroke=\"#ddd\"/><text x=\"4\" y=\"{y}\">{share:.2} %</text>\n"
        );
    }
    let x = |step: usize| 60 + 560 * step / (STEPS.len() - 1);
    for (step, percent) in STEPS.iter().enumerate() {
        svg += &format!(
            "<text x=\"{}\" y=\"340\" text-anchor=\"middle\">{percent} %</text>\n",
            x(step)
        );
    }
    for (index, (rule, shares)) in lines.iter().enumerate() {
        let (colour, y) = (COLOURS[index % COLOURS.len()], 368 + 18 * index);
        let point = |(step, share): (usize, &f64)| {
            format!("{},{:.1} ", x(step), 320.0 - 280.0 * share / most)
        };
        let points: String = shares.iter().enumerate().map(point).collect();
        let rule = rule.replace('&', "&amp;").replace('<', "&lt;");
        svg += &format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\n<text x=\"60\" y=\"{y}\" \
             fill=\"{colour}\">{rule}</text>\n"
        );
    }
    svg + "</svg>\n"
}
