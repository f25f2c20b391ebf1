//! The labels under which rustdoc finds the pictures of the guide.

use std::{collections::BTreeMap, fmt::Write};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::pictures::Picture;

/// The link definitions of each crate, by its name. A page of rustdoc has no file next to it, so the definition holds the picture.
#[must_use]
pub fn guide_links(pictures: &[Picture]) -> BTreeMap<&'static str, String> {
    let mut links: BTreeMap<_, String> = BTreeMap::new();
    for Picture {
        name,
        svg,
        shown_by,
    } in pictures
    {
        let Some(package) = shown_by else { continue };
        let (links, svg) = (links.entry(*package).or_default(), STANDARD.encode(svg));
        writeln!(links, "[{name}.svg]: data:image/svg+xml;base64,{svg}")
            .expect("a string takes all text");
    }
    links
}
