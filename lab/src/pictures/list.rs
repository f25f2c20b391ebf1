//! All pictures.

use crate::pictures::{
    arrivals, bytes, crossover, figures, leases, request, sub_buckets, svg::Svg, turn,
};

/// A picture of the documentation.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The name of its file, without `.svg`.
    pub name: &'static str,
    /// What its file holds.
    pub svg: String,
    /// The crate with the page of the guide that shows it.
    pub shown_by: Option<&'static str>,
}

/// Draws all pictures. They are the same each time.
#[must_use]
pub fn all() -> Vec<Picture> {
    let picture = |name, svg: Svg| Picture {
        name,
        svg: svg.finish(),
        shown_by: shown_by(name),
    };
    vec![
        picture("arrivals", arrivals::draw()),
        picture("turn", turn::draw()),
        picture("sub-buckets", sub_buckets::draw()),
        picture("bytes", bytes::draw()),
        picture("crossover", crossover::draw()),
        picture("leases", leases::draw()),
        picture("request", request::draw()),
        picture("figures", figures::draw()),
    ]
}

fn shown_by(name: &str) -> Option<&'static str> {
    match name {
        "arrivals" | "turn" | "sub-buckets" | "request" => Some("tollgate"),
        "crossover" | "leases" => Some("tollgate-redis"),
        _ => None,
    }
}
