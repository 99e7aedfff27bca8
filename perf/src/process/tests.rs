//! Tests of parsing the output of programs and of the kernel.

use super::*;

#[test]
fn testpmd_rates_are_summed_over_ports_without_the_first_two_seconds() {
    let block = |port: usize, rate: u64| {
        format!(
            "  ######## NIC statistics for port {port}  ########\n  RX-packets: 5\n\
             \n  Throughput (since last show)\n  Rx-pps:     {rate}          Rx-bps:  512\n\
             \x20 Tx-pps:     1          Tx-bps:  9\n"
        )
    };
    let text: String = (1..=4u64)
        .flat_map(|second| [block(0, second * 1_000_000), block(1, second * 500_000)])
        .collect();
    let lines: Vec<String> = text.lines().map(String::from).collect();
    assert_eq!(testpmd_rates(&lines), [4.5, 6.0]);
    assert!(testpmd_rates(&[]).is_empty());
}

#[test]
fn only_worker_thread_times_are_counted() {
    let line = |name: &str| {
        format!("4242 ({name}) R 1 4242 4242 0 -1 4194624 10 0 0 0 150 30 0 0 20 0 3 0 77 1 1")
    };
    assert_eq!(worker_time(&line("lcore-worker-1")), Some(Duration::from_millis(1800)));
    assert_eq!(worker_time(&line("a) (dpdk-worker1")), Some(Duration::from_millis(1800)));
    assert_eq!(worker_time(&line("dpdk-testpmd")), None);
    assert_eq!(worker_time("4242 (lcore-worker-1) R 1"), Some(Duration::ZERO));
    assert_eq!(worker_time(""), None);
}

#[test]
fn rates_of_a_finished_program_are_read() {
    let script = "for n in 1 2 3 4; do echo \"Mpps $n.5\"; done; echo bad >&2";
    let command = ["sh", "-c", script].map(String::from).to_vec();
    let running = Program { command, reading: Reading::Meter }.start().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    let outcome = running.stop();
    assert_eq!(outcome.rates, [3.5, 4.5]);
    assert_eq!(outcome.last_lines.last().map(String::as_str), Some("bad"));
}

#[test]
fn running_program_is_ended_by_sigint() {
    let command = ["sleep", "100"].map(String::from).to_vec();
    let mut running = Program { command, reading: Reading::Silent }.start().unwrap();
    assert!(running.is_alive());
    let start = Instant::now();
    running.stop();
    assert!(start.elapsed() < Duration::from_secs(5));
}
