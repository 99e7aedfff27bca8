//! Tests of the figures from fixed samples, and of the comparison programs on this machine.

use super::*;
use crate::peers::{self, Core, Memory};

fn case(name: &str) -> Case {
    Case { programs: Vec::new(), ..Case::single(name, silent()) }
}

fn silent() -> Program {
    Program { command: Vec::new(), reading: crate::Reading::Silent }
}

fn comparison(cases: Vec<Case>, forward_only: Option<usize>, unit: Unit) -> Comparison {
    Comparison { title: "t".to_string(), cases, forward_only, unit }
}

fn samples(values: &[(f64, f64)]) -> Vec<Sample> {
    values.iter().map(|&(mpps, share)| Sample { mpps, share }).collect()
}

#[test]
fn table_shows_ratios_to_the_first_case_and_omits_disturbed_rounds() {
    let cases = vec![case("limit"), case("weir")];
    let comparison = comparison(cases, None, Unit::Nanoseconds);
    let rounds = [
        samples(&[(100.0, 0.99), (102.0, 0.98), (98.0, 1.0)]),
        samples(&[(40.0, 0.99), (10.0, 0.4), (50.0, 0.95)]),
    ];
    let table = comparison.table(&rounds, 0.9);
    let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[1], ["limit", "100.00", "98.00..102.00", "10.0", "1.000"]);
    assert_eq!(lines[2][..5], ["weir", "50.00", "40.00..50.00", "20.0", "0.500"]);
    assert!(table.ends_with("1 of 3 rounds below the minimum core share\n"), "{table}");
}

#[test]
fn net_figure_excludes_the_cost_of_refill() {
    let names = ["limit", "forward only", "fill only"].map(case).to_vec();
    let cases = [names, vec![case("weir").refilling(2)]].concat();
    let comparison = comparison(cases, Some(1), Unit::Nanoseconds);
    // 10, 5, 8 and 43 ns: 3 of the 43 are spent on writing.
    let rounds = [100.0, 200.0, 125.0, 1000.0 / 43.0].map(|mpps| samples(&[(mpps, 1.0)]));
    let table = comparison.table(&rounds, 0.9);
    let lines: Vec<Vec<&str>> = table.lines().map(|l| l.split_whitespace().collect()).collect();
    // A name of two words, and no net figures.
    assert_eq!(lines[2].len(), 6, "{table}");
    assert_eq!(lines[4][3..], ["43.0", "0.233", "40.0", "0.250"]);
}

#[test]
fn rows_show_the_columns_side_by_side_with_their_ratio() {
    let names = ["limit", "forward only", "fill only"].map(case).to_vec();
    let weir = |column| case("weir").refilling(2).in_row("NAT44", column);
    let others = vec![weir("requests"), weir("answers"), case("x").in_row("tunnel", "answers")];
    let comparison = comparison([names, others].concat(), Some(1), Unit::Nanoseconds);
    // 3 ns of 43 and of 63 are spent on writing; the last case writes nothing.
    let ns = [10.0, 5.0, 8.0, 43.0, 63.0, 20.0];
    let rounds = ns.map(|ns| samples(&[(1000.0 / ns, 1.0)]));
    let rows = comparison.rows(&rounds, 0.9);
    let lines: Vec<&str> = rows.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "| ns/packet, net | requests | answers | answers / requests |",
            "|---|---|---|---|",
            "| NAT44 | 40.0 | 60.0 | 1.50 |",
            "| tunnel |  | 20.0 |  |",
        ]
    );
}

#[test]
fn failed_program_has_no_rate() {
    let script = "for n in 1 2 3 4; do echo Mpps 9.0; done; echo 7 packets dropped; exit 1";
    let command = ["sh", "-c", script].map(String::from).to_vec();
    let program = Program { command, reading: crate::Reading::Meter };
    let error = Case::single("weir", program).run(5).unwrap_err().to_string();
    assert!(error.contains("7 packets dropped"), "{error}");
}

#[test]
fn case_without_a_rate_reports_its_command_and_output() {
    let command = ["sh", "-c", "echo no port; exit 1"].map(String::from).to_vec();
    let program = Program { command, reading: crate::Reading::Meter };
    let error = Case::single("weir", program).run(5).unwrap_err().to_string();
    assert!(
        error.starts_with("weir: no valid rate from `sh -c") && error.contains("no port"),
        "{error}"
    );
}

/// Asserts only that both reference programs forward and that their rates are read; the speed does
/// not matter.
#[test]
fn reference_programs_forward_and_their_rates_are_read() {
    let seconds = 5;
    let eal =
        |prefix: &str| peers::eal(Core::Second, Memory::Small, prefix, &["net_null0", "net_null1"]);
    for (name, program) in [
        ("C", peers::c_loop(eal("weir-perf-c"), "5tswap", seconds)),
        ("testpmd", peers::testpmd(eal("weir-perf-t"), "5tswap", 2)),
    ] {
        let sample = Case::single(name, program).run(seconds).unwrap();
        assert!(sample.mpps > 0.05 && sample.share > 0.0, "{name}: {sample:?}");
    }
}
