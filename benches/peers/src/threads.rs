//! A request through a layer on one and on two threads: what all processors write costs only there.

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{body::Body, extract::ConnectInfo};
use http::{Extensions, HeaderMap, HeaderValue, Request};
use tollgate::{
    Limiter, MemoryStore, Rule,
    header::HeaderStyle,
    key::{KeyBuf, KeyExtractor, KeyPart, PartKind, client_ip, extension, header},
    service::RateLimit,
};
use tollgate_benches::{
    check::{LASTING, WIDE},
    layer::{API_KEY, Bare, layer_by, send},
    workload::{Namer, hot, uniform},
};
use tower::{Layer, Service};
use tower_governor::{
    GovernorError, GovernorLayer,
    governor::GovernorConfigBuilder,
    key_extractor::{self, PeerIpKeyExtractor},
};

use crate::{
    harness::{Compared, Course},
    keyed::named,
    layers::ByApiKey,
    numbers::{LASTING_NUMBERS, Numbers, WIDE_NUMBERS},
    reference::{BareLimit, Check, LossyTable, by_address, by_header},
    table::Row,
};

const MANY: u32 = 100_000;

type Inner = Bare<Body>;

/// Who asks: one client or many, on some threads, by a key of some kind.
#[derive(Clone, Copy)]
struct Load<'a> {
    course: Course<'a>,
    request: fn(&mut Namer, u32) -> Request<Body>,
    /// How the reference checks such a request.
    reference: Check,
    /// Whether all have a state that stays, or one client takes as much as it likes.
    is_one: bool,
}

impl Load<'_> {
    /// Nanoseconds of a request: its making and the dropping of its answer included.
    fn run<S>(self, round: usize, service: &S) -> f64
    where
        S: Service<Request<Body>> + Clone + Sync,
    {
        let own = || (service.clone(), Namer::new());
        self.course
            .run_with(round, own, |(service, namer), client| {
                let request = (self.request)(namer, client);
                let _ = black_box(send(service, request).is_ok());
            })
    }

    /// What a layer without fields and one with two add, where a request takes `bare` without a layer.
    fn costs<S>(
        self,
        round: usize,
        bare: f64,
        check: impl Fn(u32) + Sync,
        [none, two]: [&S; 2],
    ) -> Costs
    where
        S: Service<Request<Body>> + Clone + Sync,
    {
        let course = self.course;
        let check = course.run_with(round, || (), |(), client| check(client));
        let none = self.run(round, none);
        Costs {
            layer: none - bare - check,
            fields: self.run(round, two) - none,
        }
    }

    fn numbers(self) -> Numbers {
        if self.is_one {
            WIDE_NUMBERS
        } else {
            LASTING_NUMBERS
        }
    }

    fn ours(self, key: impl KeyExtractor, headers: HeaderStyle) -> RateLimit<Inner> {
        let quota = if self.is_one { WIDE } else { LASTING };
        let layer = layer_by(key, quota, headers).expect("a valid rule");
        layer.layer(Inner::new())
    }

    fn reference(self, fields: bool) -> BareLimit<Inner> {
        let table = Arc::new(LossyTable::new(self.numbers()));
        BareLimit::new(Inner::new(), table, self.reference, fields)
    }
}

fn from_address(_: &mut Namer, client: u32) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let address = SocketAddr::from(((0x0a00_0000 | client).to_be_bytes(), 40_000));
    request.extensions_mut().insert(ConnectInfo(address));
    request
}

fn with_header(namer: &mut Namer, client: u32) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    let name = HeaderValue::from_str(namer.name(client)).expect("ASCII");
    request.headers_mut().insert(API_KEY, name);
    request
}

fn with_extension(_: &mut Namer, client: u32) -> Request<Body> {
    let mut request = Request::new(Body::empty());
    request.extensions_mut().insert(Tenant(client));
    request
}

/// What a middleware in front has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Tenant(u32);

impl KeyPart for Tenant {
    fn add_to(&self, key: &mut KeyBuf, kind: PartKind) {
        key.push(kind, self.0.to_le_bytes());
    }
}

/// tower_governor by the same extension.
#[derive(Clone, Copy, Debug)]
struct ByTenant;

impl key_extractor::KeyExtractor for ByTenant {
    type Key = Tenant;

    fn extract<T>(&self, request: &Request<T>) -> Result<Tenant, GovernorError> {
        let tenant = request.extensions().get().copied();
        tenant.ok_or(GovernorError::UnableToExtractKey)
    }
}

fn by_tenant(table: &LossyTable, _: &HeaderMap, found: &Extensions) -> Option<u64> {
    table.check(found.get::<Tenant>()?)
}

/// What the layers of one key add to the bare service: ours beside tower_governor's.
fn added<K>(
    load: Load<'_>,
    rounds: usize,
    ours: impl KeyExtractor,
    theirs: K,
    fields: bool,
) -> (Compared, Compared)
where
    K: key_extractor::KeyExtractor + Sync,
    K::Key: Send + Sync,
{
    let (interval, burst) = load.numbers();
    let mut theirs = GovernorConfigBuilder::default().key_extractor(theirs);
    theirs.period(interval).burst_size(burst);
    if fields {
        let theirs = theirs.use_headers().finish().expect("neither is zero");
        let theirs = GovernorLayer::new(theirs).layer(Inner::new());
        compare(
            load,
            rounds,
            &load.ours(ours, HeaderStyle::DRAFT_11),
            &theirs,
            fields,
        )
    } else {
        let theirs = theirs.finish().expect("neither is zero");
        let theirs = GovernorLayer::new(theirs).layer(Inner::new());
        compare(
            load,
            rounds,
            &load.ours(ours, HeaderStyle::NONE),
            &theirs,
            fields,
        )
    }
}

/// Ours beside theirs, and beside the reference, round by round.
fn compare<O, T>(
    load: Load<'_>,
    rounds: usize,
    ours: &O,
    theirs: &T,
    fields: bool,
) -> (Compared, Compared)
where
    O: Service<Request<Body>> + Clone + Sync,
    T: Service<Request<Body>> + Clone + Sync,
{
    let (bare, reference) = (Inner::new(), load.reference(fields));
    let rounds: Vec<_> = (0..=rounds)
        .map(|round| {
            let before = load.run(round, &bare);
            let (ours, theirs) = (load.run(round, ours), load.run(round, theirs));
            let reference = load.run(round, &reference);
            let bare = f64::midpoint(before, load.run(round, &bare));
            (
                (ours - bare, theirs - bare),
                (ours - bare, reference - bare),
            )
        })
        .skip(1)
        .collect();
    let (theirs, reference): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    (Compared::of(&theirs), Compared::of(&reference))
}

/// The rows.
pub(crate) fn rows(rounds: usize, print: &mut dyn FnMut(Row)) {
    let (one, many) = (hot(), uniform(MANY));
    let places = [(&one, 1), (&one, 2), (&many, 1), (&many, 2)];
    for (fields, how) in [(false, "no fields"), (true, "two fields")] {
        for (clients, threads) in places {
            let is_one = clients.len() == one.len();
            let course = Course { clients, threads };
            let load = |request, reference| Load {
                course,
                request,
                reference,
                is_one,
            };
            let keys = if is_one { "one key" } else { "100 000 keys" };
            let mut print_both = |by, (theirs, reference)| {
                let what = named(&format!("layer by {by}, {how}, {keys}"), course);
                let row = |peer, compared| Row::compared(what.clone(), "ns", peer, compared);
                print(row("tower_governor", theirs).gate(1.0));
                print(row("reference", reference));
            };
            let load_of = load(from_address, by_address);
            let (ours, theirs) = (client_ip(), PeerIpKeyExtractor);
            print_both("address", added(load_of, rounds, ours, theirs, fields));
            let load_of = load(with_header, by_header);
            let (ours, theirs) = (header(API_KEY), ByApiKey);
            print_both("header", added(load_of, rounds, ours, theirs, fields));
            let load_of = load(with_extension, by_tenant);
            let (ours, theirs) = (extension::<Tenant>(), ByTenant);
            print_both("extension", added(load_of, rounds, ours, theirs, fields));
        }
    }
}

/// Nanoseconds on some threads, each with other keys.
#[derive(Clone, Copy)]
struct Costs {
    /// What a layer without fields adds to the service and to the check.
    layer: f64,
    /// What two fields add to that.
    fields: f64,
}

/// What a layer costs on two threads beside what it costs on one: ours, and the reference.
pub(crate) fn scaling(rounds: usize, print: &mut dyn FnMut(Row)) {
    let many = uniform(MANY);
    let load = |threads| Load {
        course: Course {
            clients: &many,
            threads,
        },
        request: from_address,
        reference: by_address,
        is_one: false,
    };
    let bare = Inner::new();
    let none = load(1).ours(client_ip(), HeaderStyle::NONE);
    let two = load(1).ours(client_ip(), HeaderStyle::DRAFT_11);
    let rule = Rule::new("rule-0", LASTING);
    let limiter = Limiter::new(MemoryStore::new(), [rule]).expect("a valid rule");
    let ours = |client| {
        let check = check(&limiter, client);
        black_box(limiter.acquire(&[check]).ready());
    };
    let (no_field, two_fields) = (load(1).reference(false), load(1).reference(true));
    let table = LossyTable::new(LASTING_NUMBERS);
    let reference = |client: u32| {
        let address = Ipv4Addr::from(0x0a00_0000 | client);
        black_box(table.check(IpAddr::from(address)));
    };
    let both = |round| {
        [1, 2].map(|threads| {
            let load = load(threads);
            let bare = load.run(round, &bare);
            [
                load.costs(round, bare, ours, [&none, &two]),
                load.costs(round, bare, reference, [&no_field, &two_fields]),
            ]
        })
    };
    let measured: Vec<[[Costs; 2]; 2]> = (0..=rounds).map(both).skip(1).collect();
    for (what, figure) in [
        (
            "layer beyond its check, 2 threads / 1 thread",
            (|costs| costs.layer) as fn(&Costs) -> f64,
        ),
        ("two fields, 2 threads / 1 thread", |costs| costs.fields),
    ] {
        let row = |what: String, side: usize| {
            let rounds = measured.iter().map(|[one, two]| {
                let [one, two] = [&one[side], &two[side]];
                (figure(two), figure(one))
            });
            let compared = Compared::of(&rounds.collect::<Vec<_>>());
            Row::compared(what, "ns", "on 1 thread", compared)
        };
        print(row(what.into(), 0).gate(1.2));
        print(row(format!("the same of the reference, {what}"), 1));
    }
}

#[inline]
fn check(limiter: &Limiter, client: u32) -> tollgate::Check {
    let mut key = KeyBuf::new();
    let address = std::net::IpAddr::from((0x0a00_0000 | client).to_be_bytes());
    address.add_to(&mut key, PartKind::ADDRESS);
    limiter.check_at(0, &key, 1)
}
