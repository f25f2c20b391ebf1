//! Half of the processes in another region than the store: the bounds of the guide's page.

use tollgate_lab::{Consistency, regions};

#[test]
fn a_limit_holds_over_a_long_way_and_through_a_cut() {
    let rows: Vec<_> = regions::rows(1).collect();
    assert_eq!(rows.len(), 12);
    for row in rows {
        let case = row.to_string();
        for figures in [&row.whole, &row.cut] {
            match row.consistency {
                // Each process keeps back a twentieth of the limit at most.
                Consistency::Eventual => assert!(figures.over <= 16.0 * 0.05, "{case}"),
                _ => assert_eq!(figures.over, 0.0, "{case}"),
            }
        }
        let alone = row.whole.alone_part();
        match row.consistency {
            Consistency::Exact => assert!(row.whole.latency(990) >= row.round_trip * 900, "{case}"),
            _ if row.workload.name() == "hot" => assert!(alone > 0.95, "{case}"),
            _ => assert!(row.whole.utilisation() > 0.9, "{case}"),
        }
        // Leases outlive the beginning of a cut.
        assert!(
            row.cut.failed_part() > 0.0 || row.consistency == Consistency::Eventual,
            "{case}"
        );
    }
}
