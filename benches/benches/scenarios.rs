//! Wall-clock benches of the scenarios: `cargo bench -p tollgate-benches`.

use criterion::{Criterion, criterion_group, criterion_main};
use tollgate_benches::scenario::ALL;

fn scenarios(criterion: &mut Criterion) {
    for scenario in ALL {
        let mut step = scenario
            .set_up()
            .expect("the rules of a scenario are valid");
        criterion.bench_function(scenario.name, |bencher| bencher.iter(&mut step));
    }
}

criterion_group!(benches, scenarios);
criterion_main!(benches);
