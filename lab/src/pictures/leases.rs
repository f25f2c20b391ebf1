//! The protocol of leases as a sequence.

use std::mem;

use tollgate_core::{Tick, algorithm::Retry};
use tollgate_prefilter::{Grant, ReturnedLease};

use crate::pictures::{
    exchange::{Call, Happening, LEASED, Traffic, What, run},
    svg::Svg,
};

const TITLE: &str = "Leases: two processes, one limit";

/// Where the lines of the two processes and the store are.
const PROCESSES: [f64; 2] = [170.0, 640.0];
const STORE: f64 = 405.0;
/// Where the boxes of their names end, and where the first part begins.
const HEADS: f64 = 104.0;
const TOP: f64 = 120.0;

/// How many steps of the beginning are drawn, and how many from the first scheduled lease on.
const FIRST: usize = 9;
const AT_LIMIT: usize = 11;

/// What is drawn below another.
enum Step {
    /// A process has decided requests by itself.
    Here {
        process: usize,
        admitted: u32,
        denied: u32,
    },
    /// One or more calls of a process without leases. Only the last is drawn.
    Calls {
        at: Tick,
        process: usize,
        count: u32,
        call: Call,
    },
}

pub(super) fn draw() -> Svg {
    let steps = steps(run(LEASED, &traffic(), 6_000_000));
    let returns = find(&steps, 0, |call| !call.has_request);
    let is_scheduled = |call: &Call| matches!(call.grant, Some(Grant::Scheduled { .. }));
    let at_limit = find(&steps, returns, is_scheduled);
    let parts = [
        ("Units are left", 0..FIRST),
        ("A process is idle for two seconds", returns..returns + 1),
        ("The bucket is empty", at_limit..at_limit + AT_LIMIT),
    ];

    let mut drawing = Drawing {
        svg: Svg::new(0.0, TITLE, description(&steps)),
        y: TOP,
    };
    let mut drawn = 0;
    for (name, part) in parts {
        drawing.part(name, &steps[drawn..part.start], &steps[part.clone()]);
        drawn = part.end;
    }
    drawing.finish()
}

/// The first process is busy from the start, and more so after a second. The other comes, pauses, and comes again.
fn traffic() -> [Traffic; 4] {
    let traffic = |process, from, to, every| Traffic {
        process,
        from,
        to,
        every,
    };
    [
        traffic(0, 0, 1_000_000, 5_000),
        traffic(0, 1_000_000, 6_000_000, 2_300),
        traffic(1, 100_000, 400_000, 9_000),
        traffic(1, 4_000_000, 6_000_000, 9_100),
    ]
}

/// Folds what a process decides by itself between two calls, and calls that neither request nor return anything.
fn steps(happened: Vec<Happening>) -> Vec<Step> {
    let mut here = [(0, 0); 2];
    let mut steps = Vec::new();
    for Happening { at, process, what } in happened {
        let call = match what {
            What::Here { is_allowed: true } => {
                here[process].0 += 1;
                continue;
            }
            What::Here { is_allowed: false } => {
                here[process].1 += 1;
                continue;
            }
            What::Call(call) => call,
        };
        let (admitted, denied) = mem::take(&mut here[process]);
        if admitted + denied > 0 {
            steps.push(Step::Here {
                process,
                admitted,
                denied,
            });
        }
        if let Some(Step::Calls {
            process: same,
            count,
            call: last,
            ..
        }) = steps.last_mut()
            && *same == process
            && is_plain(last)
            && is_plain(&call)
        {
            *count += 1;
            *last = call;
            continue;
        }
        steps.push(Step::Calls {
            at,
            process,
            count: 1,
            call,
        });
    }
    steps
}

/// Whether it is allowed, and neither requests nor returns anything.
fn is_plain(call: &Call) -> bool {
    call.is_allowed && call.wants.is_empty()
}

/// The first step from `from` on that is such a call.
fn find(steps: &[Step], from: usize, is: impl Fn(&Call) -> bool) -> usize {
    let mut calls = steps.iter().skip(from);
    let place = calls.position(|step| matches!(step, Step::Calls { call, .. } if is(call)));
    from + place.expect("the run of this picture has such a call")
}

struct Drawing {
    svg: Svg,
    y: f64,
}

impl Drawing {
    /// A part, with what is left out above it.
    fn part(&mut self, name: &str, left_out: &[Step], steps: &[Step]) {
        let (here, calls) = counts(left_out);
        self.y += 10.0;
        self.svg.lines("grid", [(0.0, self.y), (758.0, self.y)]);
        self.svg.text((0.0, self.y + 18.0), "head", name);
        if calls > 0 {
            let what = format!("{here} requests decided in the processes and {calls} calls later");
            self.svg
                .text((758.0, self.y + 18.0), "small soft end", what);
        }
        self.y += 30.0;
        // Time passes where nothing is drawn, so the lines of life begin anew.
        let top = if calls > 0 { self.y - 6.0 } else { HEADS };
        for step in steps {
            self.step(step);
        }
        for x in [PROCESSES[0], STORE, PROCESSES[1]] {
            self.svg.lines_below("grid", [(x, top), (x, self.y)]);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Here {
                process,
                admitted,
                denied,
            } => {
                let x = PROCESSES[*process];
                let text = match (admitted, denied) {
                    (_, 0) => format!("{admitted} admitted here"),
                    (0, _) => format!("{denied} denied here"),
                    _ => format!("{admitted} admitted, {denied} denied here"),
                };
                let width = if *admitted > 0 && *denied > 0 {
                    200.0
                } else {
                    140.0
                };
                self.svg
                    .rect((x - width / 2.0, self.y), (width, 24.0), "box");
                self.svg.text((x, self.y + 16.0), "small mid", text);
                self.y += 34.0;
            }
            Step::Calls {
                at,
                process,
                count,
                call,
            } => {
                let x = PROCESSES[*process];
                let middle = (x + STORE) / 2.0;
                let (seconds, ms) = (at / 1_000_000, at / 1_000 % 1_000);
                let time = format!("{seconds}.{ms:03} s");
                self.svg.text((0.0, self.y + 20.0), "small soft", time);
                self.svg
                    .text((middle, self.y + 10.0), "small mid", question(*count, call));
                self.svg.arrow((x, self.y + 16.0), (STORE, self.y + 16.0));
                self.svg
                    .text((middle, self.y + 32.0), "small mid", reply(call));
                self.svg.arrow((STORE, self.y + 38.0), (x, self.y + 38.0));
                self.y += 54.0;
            }
        }
    }

    /// The picture is as high as the rest has become.
    fn finish(mut self) -> Svg {
        let svg = &mut self.svg;
        svg.height = self.y + 8.0;
        svg.text((0.0, 18.0), "head", TITLE);
        let what = "A bucket of 1 000 units, refilled with 100 a second. A tenth of it may be on lease, in all processes together.";
        svg.text((0.0, 38.0), "small soft", what);
        let how =
            "From a run of the engine in the simulator, with a round trip of half a millisecond.";
        svg.text((0.0, 55.0), "small soft", how);
        let heads = [
            (PROCESSES[0], "process A"),
            (STORE, "Redis"),
            (PROCESSES[1], "process B"),
        ];
        for (x, name) in heads {
            svg.rect((x - 60.0, HEADS - 30.0), (120.0, 30.0), "box");
            svg.text((x, HEADS - 10.0), "mid", name);
        }
        self.svg
    }
}

fn question(count: u32, call: &Call) -> String {
    let mut parts = Vec::new();
    match (call.has_request, count) {
        (true, 1) => parts.push("a request".to_owned()),
        (true, _) => parts.push(format!("{count} requests, a call each")),
        (false, _) => {}
    }
    if let Some(ReturnedLease { left: 1.., .. }) = call.wants.returned {
        let left = call.wants.returned.map_or(0, |lease| lease.left);
        parts.push(format!("{left} units go back"));
    }
    if call.wants.requests_grant() {
        parts.push("wants a lease".to_owned());
    }
    parts.join(", ")
}

fn reply(call: &Call) -> String {
    if !call.has_request {
        return "done".to_owned();
    }
    let decision = match call.retry {
        _ if call.is_allowed => "admitted".to_owned(),
        Some(Retry::After(wait)) => format!("denied for {} ms", wait.as_millis()),
        _ => "denied".to_owned(),
    };
    match call.grant {
        Some(Grant::Tracked { units, .. }) => format!("{decision}, {units} units on lease"),
        Some(Grant::Scheduled {
            units, after: 0, ..
        }) => {
            format!("{decision}, the next {units} units")
        }
        Some(Grant::Scheduled { units, after, .. }) => {
            format!("{decision}, {units} units in {} ms", after / 1_000)
        }
        _ => decision,
    }
}

/// The requests that processes have decided by themselves, and the calls.
fn counts(steps: &[Step]) -> (u32, u32) {
    let (mut here, mut calls) = (0, 0);
    for step in steps {
        match step {
            Step::Here {
                admitted, denied, ..
            } => here += admitted + denied,
            Step::Calls { count, .. } => calls += count,
        }
    }
    (here, calls)
}

fn description(steps: &[Step]) -> String {
    let (here, calls) = counts(steps);
    format!(
        "A sequence between two processes and Redis, from a run of the engine. While units are left, a busy process is granted units on \
         lease with its request and admits the next requests without a call. A process that is idle returns its lease. When the bucket \
         is empty, processes are granted units that will be refilled, and deny the rest by themselves. In six seconds {here} \
         requests are decided in the processes, and there are {calls} calls."
    )
}
