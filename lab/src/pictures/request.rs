//! The way of a request through the layer: drawn by hand. The layer is no part of the laboratory, so no run of it is behind this.

use crate::pictures::svg::Svg;

const TITLE: &str = "The way of a request";

/// The middle of the way.
const WAY: f64 = 380.0;

pub(super) fn draw() -> Svg {
    let mut svg = Svg::new(590.0, TITLE, DESCRIPTION);
    svg.text((0.0, 18.0), "head", TITLE);
    svg.text(
        (0.0, 38.0),
        "small soft",
        "What the layer does with each request, from the top to the bottom.",
    );

    node(
        &mut svg,
        (WAY, 58.0),
        300.0,
        "request",
        &["its head; the body is not read"],
    );
    svg.arrow((WAY, 108.0), (WAY, 130.0));
    let checks = [
        "each rule that applies: a key, a cost, a plan",
        "no rule applies, or a preflight: passes uncounted",
    ];
    node(&mut svg, (WAY, 130.0), 340.0, "checks", &checks);
    svg.arrow((WAY, 196.0), (WAY, 218.0));

    // What decides.
    svg.rect((0.0, 218.0), (758.0, 146.0), "box");
    svg.text((16.0, 240.0), "head", "one decision, all or nothing");
    let here = [
        "the deny cache denies,",
        "memory or a lease decides,",
        "with no call",
    ];
    node(&mut svg, (130.0, 256.0), 228.0, "in the process", &here);
    let store = [
        "one call for the other rules,",
        "with a deadline",
        "of 50 ms (default)",
    ];
    node(&mut svg, (380.0, 256.0), 208.0, "in Redis", &store);
    let fallback = [
        "each rule's own answer:",
        "a local share (default), a cap,",
        "allow, or deny with 503",
    ];
    node(
        &mut svg,
        (628.0, 256.0),
        228.0,
        "Redis does not answer",
        &fallback,
    );
    svg.arrow((244.0, 300.0), (276.0, 300.0));
    svg.arrow((484.0, 300.0), (514.0, 300.0));

    svg.arrow((200.0, 364.0), (200.0, 398.0));
    svg.text((210.0, 386.0), "yes head", "allow");
    svg.arrow((560.0, 364.0), (560.0, 398.0));
    svg.text((570.0, 386.0), "no head", "deny");

    node(
        &mut svg,
        (200.0, 398.0),
        340.0,
        "your handler",
        &["runs; it may settle the cost or give units back"],
    );
    svg.arrow((200.0, 448.0), (200.0, 470.0));
    let fields = [
        "RateLimit and RateLimit-Policy,",
        "as the style of the layer says",
    ];
    node(&mut svg, (200.0, 470.0), 340.0, "response", &fields);
    svg.arrow((200.0, 536.0), (200.0, 558.0));
    let end = "at the end of the body its slots are free";
    svg.text((200.0, 576.0), "small mid", end);

    let denial = [
        "429 with Retry-After; for gRPC",
        "RESOURCE_EXHAUSTED with RetryInfo",
        "the handler is not called",
    ];
    node(&mut svg, (560.0, 398.0), 340.0, "response", &denial);
    let takes = "nothing is taken from any rule";
    svg.arrow((560.0, 480.0), (560.0, 502.0));
    svg.text((560.0, 520.0), "small mid", takes);
    svg
}

const DESCRIPTION: &str = "A request's head becomes checks: a key, a cost and a plan for each rule that applies. They are decided in one \
decision, all or nothing: in the process, by the deny cache, the memory store or a lease; otherwise by one call to Redis with a deadline; \
and if Redis does not answer, by each rule's own answer to that. An allowed request goes to the handler, and its response gets header \
fields. A denied one is answered with 429 and Retry-After, or with RESOURCE_EXHAUSTED for gRPC, without a call of the handler, and takes \
nothing from any rule.";

/// A box with a head and some lines, from its upper middle.
fn node(svg: &mut Svg, (x, y): (f64, f64), width: f64, head: &str, lines: &[&str]) {
    let height = 34.0 + 16.0 * lines.len() as f64;
    svg.rect((x - width / 2.0, y), (width, height), "box");
    svg.text((x, y + 21.0), "head mid", head);
    for (place, line) in lines.iter().enumerate() {
        let y = y + 40.0 + 16.0 * place as f64;
        svg.text((x, y), "small soft mid", line);
    }
}
