//! Writing SVG.
//!
//! By hand, because a picture needs a dozen elements, and because libraries that draw charts write colours into each of them. These
//! colours are in classes, which follow the reader's preference for light or dark, also in an `<img>`.

use std::fmt::{self, Display, Write};

/// A picture, element by element. Lengths are in pixels, from the top left corner.
#[derive(Debug)]
pub(crate) struct Svg {
    height: f64,
    title: &'static str,
    description: String,
    body: String,
}

/// The width of all pictures: that of a column of text.
pub(crate) const WIDTH: f64 = 760.0;
/// The paper around them. Without paper, a page in the dark that a browser does not know of would hide the text.
const MARGIN: f64 = 12.0;

/// Classes of colour (`paper`, `bar`, `yes`, `no`, `over`, `soft`, `box`, `grid`, `line`, `mark`), of texts (`head`, `small`, `mid`, `end`).
const STYLE: &str = "\
text{font:14px system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;fill:#1f2328}
.head{font-weight:600}.small{font-size:12px}.mid{text-anchor:middle}.end{text-anchor:end}
.paper{fill:#fff}.soft,.bar{fill:#59636e}.yes{fill:#0969da}.no,.over{fill:#bc4c00}
.box{fill:#f6f8fa;stroke:#818b98}.grid,.line,.mark{fill:none;stroke:#d1d9e0}.line{stroke:#59636e}
.mark{stroke:#59636e;stroke-dasharray:4 3}
@media(prefers-color-scheme:dark){
text{fill:#e6edf3}.paper{fill:#161b22}.soft,.bar{fill:#9198a1}.yes{fill:#4493f8}.no,.over{fill:#f0883e}
.box{fill:#212830;stroke:#656c76}.grid{stroke:#3d444d}.line,.mark{stroke:#9198a1}
}
";

impl Svg {
    /// An empty picture. The title and the description are for readers who cannot see it.
    pub(crate) fn new(height: f64, title: &'static str, description: impl Into<String>) -> Self {
        Self {
            height,
            title,
            description: description.into(),
            body: String::new(),
        }
    }

    /// A line of text. `y` is where its letters stand.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), class: &str, text: impl Display) {
        let (x, y, text) = (Length(x), Length(y), escaped(&text.to_string()));
        let class = attribute(class);
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\"{class}>{text}</text>"
        ));
    }

    /// Lines through some points, one after the other.
    pub(crate) fn lines(&mut self, class: &str, points: impl IntoIterator<Item = (f64, f64)>) {
        let lines = path(points);
        let class = attribute(class);
        self.element(format_args!("<path d=\"{lines}\"{class}/>"));
    }

    /// The whole file.
    #[must_use]
    pub(crate) fn finish(self) -> String {
        let corner = Length(-MARGIN);
        let (width, height) = (WIDTH + 2.0 * MARGIN, self.height + 2.0 * MARGIN);
        let (width, height) = (Length(width), Length(height));
        let (title, description) = (escaped(self.title), escaped(&self.description));
        let body = self.body;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{corner} {corner} {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-labelledby=\"title description\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"description\">{description}</desc>\n\
             <style>\n{STYLE}</style>\n\
             <rect x=\"{corner}\" y=\"{corner}\" width=\"{width}\" height=\"{height}\" class=\"paper\"/>\n{body}</svg>\n"
        )
    }

    fn element(&mut self, element: fmt::Arguments<'_>) {
        write(&mut self.body, element);
        self.body.push('\n');
    }
}

/// A length to a tenth of a pixel, in as few letters as it takes.
struct Length(f64);

impl Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Adding 0 turns -0 into 0.
        write!(f, "{}", (self.0 * 10.0).round() / 10.0 + 0.0)
    }
}

/// Lines as a path has them.
fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.into_iter().enumerate() {
        let way = if place == 0 { "M" } else { "L" };
        write(&mut path, format_args!("{way}{} {}", Length(x), Length(y)));
    }
    path
}

fn attribute(class: &str) -> String {
    if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn write(text: &mut String, what: fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_lengths_are_short() {
        let mut svg = Svg::new(40.0, "a < b & c", "d > e");
        svg.text((1.04, -0.01), "", "<script>&");
        let file = svg.finish();
        assert!(file.contains(">a &lt; b &amp; c</title>"), "{file}");
        assert!(file.contains(">d &gt; e</desc>"), "{file}");
        let text = "<text x=\"1\" y=\"0\">&lt;script&gt;&amp;</text>";
        assert!(file.contains(text), "{file}");
    }
}
