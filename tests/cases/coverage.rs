//! The verdicts and drop reasons that the cases cover, and the tests that cover the others.

use super::{Case, Counted};
use std::collections::BTreeSet;
use tables::reason::DropReason;

/// A drop reason that no case can cause on every plane, and the test that causes it.
#[derive(Clone, Copy, Debug)]
pub struct CoveredElsewhere {
    /// The reason.
    pub reason: DropReason,
    /// Why frames alone cannot cause it.
    pub because: &'static str,
    /// The file of the test, relative to the root of the workspace.
    pub file: &'static str,
    /// The test's name.
    pub test: &'static str,
}

/// All drop reasons without a case, with their tests.
pub const COVERED_ELSEWHERE: &[CoveredElsewhere] = &[
    CoveredElsewhere {
        reason: DropReason::NoRoute,
        because: "the checked configuration and slowpath give every backend a next hop",
        file: "tests/scenarios/drop_reasons.rs",
        test: "a_backend_without_a_next_hop_has_no_route",
    },
    CoveredElsewhere {
        reason: DropReason::NatNoAddress,
        because: "configuration validation rejects such a service",
        file: "tests/scenarios/drop_reasons.rs",
        test: "nat_without_an_address_of_the_family_is_dropped",
    },
    CoveredElsewhere {
        reason: DropReason::FlowTableFull,
        because: "the table has to be full of confirmed flows",
        file: "tests/scenarios/drop_reasons.rs",
        test: "a_table_full_of_confirmed_flows_drops_new_ones",
    },
    CoveredElsewhere {
        reason: DropReason::FlowContended,
        because: "another lcore has to hold the bucket's lock during all attempts for the packet",
        file: "tests/scenarios/drop_reasons.rs",
        test: "a_locked_bucket_is_contended_until_the_flow_table_recovers",
    },
    CoveredElsewhere {
        reason: DropReason::NoHeadroom,
        because: "the buffer pool has to be empty",
        file: "tests/scenarios/cases_wire.rs",
        test: "an_answer_without_headroom_is_dropped_if_the_pool_is_empty",
    },
    CoveredElsewhere {
        reason: DropReason::TxQueueFull,
        because: "the NIC's ring has to be full",
        file: "tests/scenarios/cases_wire.rs",
        test: "packets_for_a_full_transmit_ring_are_counted",
    },
    CoveredElsewhere {
        reason: DropReason::NicUnavailable,
        because: "the NIC has to be reset or removed",
        file: "tests/scenarios/nic_faults.rs",
        test: "a_faulty_nic_works_again_and_every_frame_is_counted",
    },
    CoveredElsewhere {
        reason: DropReason::Undecided,
        because: "a stage has to be defective",
        file: "tests/scenarios/drop_reasons.rs",
        test: "a_packet_without_a_decision_is_counted_as_undecided",
    },
    CoveredElsewhere {
        reason: DropReason::StageMissing,
        because: "some of the XDP programs have to be missing",
        file: "ebpf-fallback/tests/pipeline.rs",
        test: "packet_with_a_missing_stage_is_counted",
    },
];

/// Returns the drop reasons that at least one case counts.
pub fn reasons_covered(cases: &[Case]) -> BTreeSet<DropReason> {
    counted(cases)
        .filter_map(|counted| match counted {
            Counted::Drop(reason) => Some(reason),
            Counted::Verdict(_) => None,
        })
        .collect()
}

/// Returns the verdicts that at least one case counts.
pub fn verdicts_covered(cases: &[Case]) -> BTreeSet<&'static str> {
    counted(cases)
        .filter_map(|counted| match counted {
            Counted::Verdict(name) => Some(name),
            Counted::Drop(_) => None,
        })
        .collect()
}

fn counted(cases: &[Case]) -> impl Iterator<Item = Counted> {
    cases.iter().flat_map(|case| &case.steps).flat_map(|step| step.counted.iter().copied())
}
