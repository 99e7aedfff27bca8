// The recording and alerting rules. Each alert has, beside its rule, one set of series for which it
// fires and one for which it does not: promtool runs both.

import { matching } from './reasons.mjs';

/** Where the runbooks of the book are served: a placeholder (RFC 2606), which operators replace. */
export const BOOK = 'https://weir.invalid/book';

/** The share of packets that may be lost, and 14.4 and 6 times this share. */
export const BUDGET = 0.0001;
export const FAST = 0.00144;
const SLOW = 0.0006;

/** Outcomes of requests to a cloud that need attention; `absent` and `conflict` are part of polling. */
const FAILED = 'throttled|transient|denied|invalid';

const WINDOWS = ['5m', '30m', '1h', '6h', '3d'];

const lost = (window) =>
  'sum without (arm, reason) (' +
  `rate(weir_drops_total{reason=~"${matching('fault')}"}[${window}])` +
  ` or rate(weir_nic_missed_packets_total[${window}]))`;
const received = (window) =>
  'sum without (arm, direction) (' +
  `rate(weir_packets_total{direction="rx"}[${window}])` +
  ` or rate(weir_nic_missed_packets_total[${window}]))`;

export const RECORDINGS = [
  ...WINDOWS.map((window) => ({
    record: `weir:packets_lost:ratio_rate${window}`,
    expr: `${lost(window)} / ${received(window)}`,
  })),
  { record: 'weir:packets_lost:rate5m', expr: lost('5m') },
  {
    record: 'weir:packets_received:rate5m',
    expr: 'sum without (arm, direction) (rate(weir_packets_total{direction="rx"}[5m]))',
  },
  {
    record: 'weir:drops_mismatched:rate5m',
    expr: `sum without (arm, reason) (rate(weir_drops_total{reason=~"${matching('mismatch')}"}[5m]))`,
  },
  {
    // With plane xdp the kernel's time is in no metric: there it has no series.
    record: 'weir:lcore_busy:ratio_rate5m',
    expr:
      'sum without (state) (rate(weir_lcore_time_seconds_total{state="busy"}[5m]))' +
      ' / sum without (state) (rate(weir_lcore_time_seconds_total[5m]))',
  },
  { record: 'weir:table_entries:ratio', expr: 'weir_table_entries / weir_table_capacity' },
  { record: 'weir:nat_ports:ratio', expr: 'weir_nat_ports / weir_nat_ports_capacity' },
  {
    record: 'weir:service_drops:ratio_rate5m',
    expr:
      'rate(weir_service_drops_total[5m]) / ' +
      '(rate(weir_service_drops_total[5m]) + rate(weir_service_packets_total[5m]))',
  },
];

// Series of the tests: `s(name, labels, values)` on one appliance, one sample a minute.
const s = (name, labels, values) => {
  const own = { job: 'weir', instance: 'a', ...labels };
  const text = Object.entries(own).map(([label, value]) => `${label}="${value}"`);
  return { series: `${name}{${text.join(',')}}`, values };
};
/** A gauge with the same value for an hour. */
const constant = (name, labels, value) => s(name, labels, `${value}x60`);
/** A counter that grows by this much a minute, for an hour. */
const growing = (name, labels, perMinute) => s(name, labels, `0+${perMinute}x60`);

const rx = (perMinute) =>
  growing('weir_packets_total', { arm: 'ingress', direction: 'rx' }, perMinute);
const drop = (reason, perMinute) =>
  growing('weir_drops_total', { arm: 'ingress', reason }, perMinute);
/** Drops that grow by this much at once, every ten minutes. */
const steps = (reason, per10Minutes) =>
  s(
    'weir_drops_total',
    { arm: 'ingress', reason },
    [0, 1, 2, 3, 4, 5].map((n) => `${n * per10Minutes}x9`).join(' '),
  );
const NO_MISSES = growing('weir_nic_missed_packets_total', { arm: 'ingress' }, 0);
const neighbor = { router: '65001', neighbor: '192.0.2.1', neighbor_asn: '65000' };
/** A table with this many of 1,000 entries. */
const filled = (table, entries) => [
  constant('weir_table_entries', { table }, entries),
  constant('weir_table_capacity', { table }, 1_000),
];
/** The highest use of NAT ports by a backend, of 1,000. */
const natPorts = (ports) => [
  constant('weir_nat_ports', { scope: 'highest_backend' }, ports),
  constant('weir_nat_ports_capacity', { scope: 'highest_backend' }, 1_000),
];
/** Seconds per minute that an lcore spends in iterations with packets. */
const busy = (perMinute) => [
  growing('weir_lcore_time_seconds_total', { lcore: '0', state: 'busy' }, perMinute),
  growing('weir_lcore_time_seconds_total', { lcore: '0', state: 'idle' }, 60 - perMinute),
];
/** Counters of a NIC, of which only these have values. */
const nic = (names, values) =>
  names.map((name) => s(`weir_nic_${name}_total`, { arm: 'ingress' }, values[name] ?? '0x60'));
const INCIDENTS = ['resets', 'removals', 'send_stalls', 'link_losses'];
/** Losses behind the XDP programs. */
export const XDP_LOSSES = ['redirects_refused', 'redirects_dropped', 'sends_dropped', 'aborted'];
const XDP_COUNTERS = XDP_LOSSES.map((name) => `xdp_${name}`);
const family = { ...neighbor, afi: 'ipv4', safi: 'unicast' };

/** Series for an alert on a gauge that is 0 or 1; it fires for the value `bad`. */
const flag = (metric, labels, bad) => ({
  fires: [constant(metric, labels, bad)],
  quiet: [constant(metric, labels, 1 - bad)],
});
/** Series for an alert on the growth of a counter; it fires for `perMinute`, and not for 0. */
const growth = (metric, labels, perMinute = 6) => ({
  fires: [growing(metric, labels, perMinute)],
  quiet: [growing(metric, labels, 0)],
});
/** An alert on flows that lost their backend: many, and a share of all. */
const flowsChanged = (metric) => ({
  expr:
    `increase(${metric}[5m]) > 100 and on (job, instance) increase(${metric}[5m])` +
    ' > on (job, instance) 0.05 * weir_table_entries{table="flows"}',
  for: '0m',
  fires: [growing(metric, {}, 200), constant('weir_table_entries', { table: 'flows' }, 5_000)],
  quiet: [growing(metric, {}, 10), constant('weir_table_entries', { table: 'flows' }, 5_000)],
});
/** An alert on requests to a cloud of which most fail. */
const callsFailing = (metric) => ({
  expr:
    `sum without (operation, outcome) (rate(${metric}{outcome=~"${FAILED}"}[15m]))` +
    ` > 0.5 * sum without (operation, outcome) (rate(${metric}[15m]))`,
  for: '10m',
  fires: calls(metric, 4, 6),
  quiet: calls(metric, 60, 6),
});
/** An alert on a listener that cannot be opened, and not on `other` ones. */
const listenerDown = (matcher, listener, other) => ({
  expr: `weir_listener_up{listener${matcher}} == 0`,
  for: '2m',
  summary: '{{ $labels.instance }} cannot open {{ $labels.listener }}',
  fires: [constant('weir_listener_up', { listener, address: '0.0.0.0:1' }, 0)],
  quiet: [
    constant('weir_listener_up', { listener, address: '0.0.0.0:1' }, 1),
    constant('weir_listener_up', { listener: other, address: '0.0.0.0:2' }, 0),
  ],
});

/**
 * The groups of alerts, each with the page of its runbooks. `fires` may be several sets of series;
 * the alert must fire for each.
 */
export const GROUPS = [
  {
    name: 'weir-appliance',
    page: 'runbooks-appliance',
    alerts: [
      {
        alert: 'WeirTargetDown',
        severity: 'page',
        expr: 'up{job="weir"} == 0',
        for: '2m',
        summary: '{{ $labels.instance }} cannot be scraped',
        description: 'Prometheus has not reached the metrics of this appliance for two minutes.',
        ...flag('up', {}, 0),
      },
      {
        alert: 'WeirNoAppliance',
        severity: 'page',
        // Both sides have the label job, by which dashboards select alerts.
        expr: 'sum by (job) (up{job="weir"}) == 0 or absent(up{job="weir"})',
        for: '2m',
        summary: 'No appliance of job weir can be scraped',
        description: 'All targets are down, or service discovery returns none.',
        fires: [[constant('up', {}, 0)], []],
        quiet: [constant('up', {}, 0), constant('up', { instance: 'b' }, 1)],
      },
      {
        alert: 'WeirNotAble',
        severity: 'page',
        expr: 'weir_able == 0',
        for: '1m',
        summary: '{{ $labels.instance }} is not able to serve',
        description:
          'Its health probes fail, so it gets no new flows. `weir status` has the reasons.',
        ...flag('weir_able', {}, 0),
      },
      {
        alert: 'WeirLcoreStopped',
        severity: 'page',
        expr: 'weir_lcore_polling == 0',
        for: '1m',
        summary: 'Lcore {{ $labels.lcore }} of {{ $labels.instance }} does not poll',
        description: 'The packets of its receive queues are not processed.',
        ...flag('weir_lcore_polling', { lcore: '0' }, 0),
      },
      {
        alert: 'WeirTablesNotAcknowledged',
        severity: 'page',
        expr: 'weir_lcore_generation_lag > 0',
        for: '1m',
        summary: 'Lcore {{ $labels.lcore }} of {{ $labels.instance }} does not acknowledge tables',
        description:
          'It is {{ $value }} generations behind. With plane dpdk, changes of services and' +
          ' backends do not reach its packets.',
        fires: [constant('weir_lcore_generation_lag', { lcore: '0' }, 3)],
        quiet: [s('weir_lcore_generation_lag', { lcore: '0' }, '0 1 0 0 2 0 0 1 0x50')],
      },
      {
        alert: 'WeirNicNotRunning',
        severity: 'page',
        expr: 'weir_nic_state{state=~"resetting|removed"} == 1',
        for: '1m',
        summary: 'The {{ $labels.arm }} NIC of {{ $labels.instance }} is {{ $labels.state }}',
        description:
          'With plane dpdk, packets that should leave through this arm are dropped as' +
          ' nic_unavailable until it is back.',
        fires: [constant('weir_nic_state', { arm: 'egress', state: 'removed' }, 1)],
        quiet: [
          constant('weir_nic_state', { arm: 'egress', state: 'removed' }, 0),
          constant('weir_nic_state', { arm: 'egress', state: 'running' }, 1),
        ],
      },
      {
        alert: 'WeirNicLinkDown',
        severity: 'page',
        expr: 'weir_nic_link_up == 0',
        for: '1m',
        summary: 'The {{ $labels.arm }} link of {{ $labels.instance }} is down',
        description: 'The NIC reports no link.',
        ...flag('weir_nic_link_up', { arm: 'egress' }, 0),
      },
      {
        alert: 'WeirNicUnstable',
        severity: 'ticket',
        // The alert is meant for three or more; `increase` extrapolates to fractions.
        expr: `sum without (arm) (${sumOf(INCIDENTS, 'increase', '1h')}) > 2.5`,
        for: '0m',
        summary: 'A NIC of {{ $labels.instance }} is unstable',
        description: '{{ $value | humanize }} resets, removals, stalls and link losses in an hour.',
        fires: nic(INCIDENTS, { resets: '0x4 1x4 2x4 3x45' }),
        quiet: nic(INCIDENTS, { resets: '7x9 8x9 9x40' }),
      },
      {
        alert: 'WeirNicErrors',
        severity: 'ticket',
        expr: `sum without (arm) (${sumOf(['receive_errors', 'send_errors'], 'rate', '5m')}) > 1`,
        for: '10m',
        summary: 'A NIC of {{ $labels.instance }} has {{ $value | humanize }} errors/s',
        description: 'Frames arrived damaged, or the driver could not send them.',
        fires: nic(['receive_errors', 'send_errors'], { receive_errors: '0+600x60' }),
        quiet: nic(['receive_errors', 'send_errors'], { receive_errors: '0+6x60' }),
      },
      {
        alert: 'WeirXdpPacketsLost',
        severity: 'ticket',
        expr: `sum without (arm) (${sumOf(XDP_COUNTERS, 'rate', '5m')}) > 1`,
        for: '5m',
        summary: 'The kernel loses {{ $value | humanize }} packets/s of {{ $labels.instance }}',
        description: 'Weir forwarded them by XDP; the kernel or the driver did not send them.',
        fires: nic(XDP_COUNTERS, { xdp_redirects_refused: '0+600x60' }),
        quiet: nic(XDP_COUNTERS, { xdp_redirects_refused: '0+6x60' }),
      },
    ],
  },
  {
    name: 'weir-traffic',
    page: 'runbooks-traffic',
    alerts: [
      {
        alert: 'WeirTrafficLost',
        severity: 'page',
        // 2 % of a 30 days' budget in an hour, or 5 % in six hours. The short window ends the alert
        // soon after the loss; the floor keeps single packets on an idle appliance from alerting.
        expr:
          `((weir:packets_lost:ratio_rate1h > ${FAST}` +
          ` and weir:packets_lost:ratio_rate5m > ${FAST})` +
          ` or (weir:packets_lost:ratio_rate6h > ${SLOW}` +
          ` and weir:packets_lost:ratio_rate30m > ${SLOW}))` +
          ' and weir:packets_lost:rate5m > 1',
        for: '2m',
        summary: '{{ $labels.instance }} loses {{ $value | humanizePercentage }} of its packets',
        description: 'At this rate the loss objective of 30 days (0.01 %) is used up within five days.',
        fires: [rx(600_000), drop('no_neighbor', 6_000), NO_MISSES],
        quiet: [rx(600_000), drop('no_neighbor', 30), drop('source_denied', 60_000), NO_MISSES],
      },
      {
        alert: 'WeirTrafficLostSlowly',
        severity: 'ticket',
        expr:
          `weir:packets_lost:ratio_rate3d > ${BUDGET}` +
          ` and weir:packets_lost:ratio_rate6h > ${BUDGET}`,
        for: '30m',
        summary: '{{ $labels.instance }} loses {{ $value | humanizePercentage }} of its packets',
        description: 'At this rate the loss objective of 30 days (0.01 %) is missed.',
        fires: [
          [rx(600_000), drop('tx_queue_full', 120), NO_MISSES],
          // Bursts, one in ten minutes.
          [rx(600_000), steps('tx_queue_full', 1_200), NO_MISSES],
        ],
        quiet: [rx(600_000), steps('tx_queue_full', 300), NO_MISSES],
      },
      {
        alert: 'WeirTunnelMismatch',
        severity: 'ticket',
        expr: 'weir:drops_mismatched:rate5m > 0.001 * weir:packets_received:rate5m > 1',
        for: '10m',
        summary: '{{ $labels.instance }} drops packets of gateways or backends it does not know',
        description:
          '{{ $value | humanize }} packets/s have a source, port, VNI or option that is not configured.',
        fires: [rx(600_000), drop('wrong_vni', 60_000)],
        quiet: [rx(600_000), drop('wrong_vni', 60)],
      },
      {
        alert: 'WeirBackendSetEmpty',
        severity: 'page',
        expr: 'sum without (arm) (rate(weir_drops_total{reason="no_backend"}[5m])) > 1',
        for: '1m',
        summary: 'A service of {{ $labels.instance }} has no backend',
        description: '{{ $value | humanize }} packets/s are dropped because no backend serves.',
        fires: [drop('no_backend', 600)],
        quiet: [drop('no_backend', 6), drop('no_flow', 600)],
      },
      {
        alert: 'WeirServiceWithoutBackend',
        severity: 'ticket',
        expr: 'sum without (state) (weir_service_backends{state="healthy"}) == 0',
        for: '10m',
        summary: 'Service {{ $labels.service }} has no healthy backend on {{ $labels.instance }}',
        description: 'Its backends fail their checks, are drained, or were removed.',
        fires: [
          constant('weir_service_backends', { service: 'shop/web', state: 'healthy' }, 0),
          constant('weir_service_backends', { service: 'shop/web', state: 'unhealthy' }, 2),
        ],
        quiet: [
          constant('weir_service_backends', { service: 'shop/web', state: 'healthy' }, 1),
          constant('weir_service_backends', { service: 'shop/web', state: 'unhealthy' }, 2),
        ],
      },
      {
        alert: 'WeirServiceDrops',
        severity: 'ticket',
        expr: 'weir:service_drops:ratio_rate5m > 0.01 and rate(weir_service_drops_total[5m]) > 1',
        for: '10m',
        summary:
          'Service {{ $labels.service }} drops {{ $value | humanizePercentage }} on {{ $labels.instance }}',
        description: 'Packets were dropped after they matched this service.',
        fires: [
          growing('weir_service_packets_total', { service: 'shop/web' }, 60_000),
          growing('weir_service_drops_total', { service: 'shop/web' }, 6_000),
        ],
        quiet: [
          growing('weir_service_packets_total', { service: 'shop/web' }, 60_000),
          growing('weir_service_drops_total', { service: 'shop/web' }, 60),
        ],
      },
      {
        alert: 'WeirBackendsUnhealthy',
        severity: 'ticket',
        expr:
          'weir_backends{state="unhealthy"} / ignoring (state)' +
          ' sum without (state) (weir_backends) > 0.25',
        for: '5m',
        summary:
          '{{ $value | humanizePercentage }} of the backends of {{ $labels.instance }} are unhealthy',
        description: 'Their health checks fail from this appliance.',
        fires: [
          constant('weir_backends', { state: 'healthy' }, 2),
          constant('weir_backends', { state: 'unhealthy' }, 2),
        ],
        quiet: [
          constant('weir_backends', { state: 'healthy' }, 9),
          constant('weir_backends', { state: 'unhealthy' }, 1),
        ],
      },
      {
        alert: 'WeirFlowsReset',
        severity: 'page',
        summary: '{{ $labels.instance }} reset {{ $value | humanize }} connections in five minutes',
        description: 'Their backends failed or were removed: clients see broken connections.',
        ...flowsChanged('weir_flows_reset_total'),
      },
      {
        alert: 'WeirFlowsMoved',
        severity: 'ticket',
        summary: '{{ $labels.instance }} moved {{ $value | humanize }} flows in five minutes',
        description: 'Their backends failed or were removed; the new backend may not know them.',
        ...flowsChanged('weir_flows_moved_total'),
      },
      {
        alert: 'WeirNextHopsUnresolved',
        severity: 'ticket',
        expr: 'weir_next_hops{state="unresolved"} > 0',
        for: '5m',
        summary: '{{ $labels.instance }} cannot resolve {{ $value }} next hops',
        description: 'Packets to backends behind them are dropped as no_neighbor.',
        fires: [constant('weir_next_hops', { state: 'unresolved' }, 1)],
        quiet: [
          constant('weir_next_hops', { state: 'resolved' }, 4),
          constant('weir_next_hops', { state: 'unresolved' }, 0),
        ],
      },
      {
        alert: 'WeirDefect',
        severity: 'ticket',
        expr: 'sum without (arm, reason) (increase(weir_drops_total{reason=~"undecided|stage_missing"}[15m])) > 0',
        for: '0m',
        summary: '{{ $labels.instance }} drops packets by a defect, or without its XDP programs',
        description:
          'Reason undecided is always a defect of Weir; stage_missing: XDP programs are not loaded.',
        fires: [drop('undecided', 1)],
        quiet: [drop('undecided', 0), drop('no_flow', 60)],
      },
    ],
  },
  {
    name: 'weir-capacity',
    page: 'runbooks-capacity',
    alerts: [
      {
        alert: 'WeirLcoreSaturated',
        severity: 'ticket',
        // Only plane dpdk has this metric.
        expr: 'weir:lcore_busy:ratio_rate5m > 0.9',
        for: '10m',
        summary: 'Lcore {{ $labels.lcore }} of {{ $labels.instance }} is almost saturated',
        description:
          'It spends {{ $value | humanizePercentage }} of its time in iterations with packets;' +
          ' near 100 % NICs drop.',
        fires: busy(57),
        quiet: busy(51),
      },
      {
        alert: 'WeirNicMissedPackets',
        severity: 'ticket',
        expr: 'sum without (arm) (rate(weir_nic_missed_packets_total[5m])) > 1',
        for: '5m',
        summary: 'A NIC of {{ $labels.instance }} drops {{ $value | humanize }} packets/s',
        description: 'Its receive queues were full: the lcores are too slow or were interrupted.',
        ...growth('weir_nic_missed_packets_total', { arm: 'ingress' }, 600),
      },
      {
        alert: 'WeirAllowanceExceeded',
        severity: 'ticket',
        expr: 'sum without (arm) (rate(weir_nic_allowance_exceeded_total[5m])) > 0',
        for: '5m',
        summary: 'AWS limits {{ $labels.instance }}: {{ $labels.allowance }}',
        description:
          'AWS queues or drops {{ $value | humanize }} packets/s beyond an allowance of the instance.',
        ...growth('weir_nic_allowance_exceeded_total', { arm: 'ingress', allowance: 'packets' }),
      },
      {
        alert: 'WeirTableNearlyFull',
        severity: 'ticket',
        expr: 'weir:table_entries:ratio > 0.8',
        for: '10m',
        summary:
          'Table {{ $labels.table }} of {{ $labels.instance }} is {{ $value | humanizePercentage }} full',
        description: 'A full table of flows drops new NAT flows; other full tables reject changes.',
        fires: filled('flows', 900),
        quiet: filled('flows', 700),
      },
      {
        alert: 'WeirFlowTableFull',
        severity: 'page',
        // Flows without an entry also come from flows.tunnel_new_per_s, which is no fault: they count
        // only while the table is nearly full.
        expr:
          'sum without (arm, reason)' +
          ' (rate(weir_drops_total{reason=~"flow_table_full|scope_table_full"}[5m])) > 1' +
          ' or (rate(weir_flows_untracked_total[5m]) > 1' +
          ' and on (job, instance) weir:table_entries:ratio{table="flows"} > 0.9)',
        for: '2m',
        summary: 'The table of flows or of scopes of {{ $labels.instance }} is exhausted',
        description: '{{ $value | humanize }} packets/s are dropped or get no entry.',
        fires: [
          [growing('weir_flows_untracked_total', {}, 600), ...filled('flows', 990)],
          [drop('flow_table_full', 600)],
          [drop('scope_table_full', 600)],
        ],
        quiet: [growing('weir_flows_untracked_total', {}, 600), ...filled('flows', 500)],
      },
      {
        alert: 'WeirNatPortsNearlyExhausted',
        severity: 'ticket',
        expr: 'weir:nat_ports:ratio > 0.8',
        for: '10m',
        summary:
          '{{ $value | humanizePercentage }} of the NAT ports of {{ $labels.instance }} are in use',
        description: 'Scope {{ $labels.scope }}. When none is left, new flows are dropped.',
        fires: natPorts(900),
        quiet: natPorts(700),
      },
      {
        alert: 'WeirNatPortsExhausted',
        severity: 'page',
        expr:
          'sum without (arm, reason)' +
          ' (rate(weir_drops_total{reason=~"nat_ports_exhausted|nat_no_address"}[5m])) > 1',
        for: '2m',
        summary: '{{ $labels.instance }} has no NAT port left',
        description: '{{ $value | humanize }} packets of new flows/s are dropped.',
        fires: [[drop('nat_ports_exhausted', 600)], [drop('nat_no_address', 600)]],
        quiet: [drop('nat_ports_exhausted', 6), drop('flow_table_full', 600)],
      },
      {
        alert: 'WeirNewFlowsLimited',
        severity: 'ticket',
        expr: 'sum without (arm, reason) (rate(weir_drops_total{reason="new_flow_limited"}[5m])) > 1',
        for: '5m',
        summary: '{{ $labels.instance }} limits new flows',
        description:
          '{{ $value | humanize }} packets/s exceed flows.nat_new_per_s: a flood, or a low limit.',
        fires: [drop('new_flow_limited', 600)],
        quiet: [drop('new_flow_limited', 6)],
      },
      {
        alert: 'WeirProbesLate',
        severity: 'ticket',
        expr: 'rate(weir_health_probes_late_total[5m]) > 0.1 * sum without (result) (rate(weir_health_probes_total[5m]))',
        for: '10m',
        summary: 'Health probes of {{ $labels.instance }} start late',
        description: '{{ $value | humanize }} probes/s are late: failures are detected late, too.',
        fires: [
          growing('weir_health_probes_late_total', {}, 30),
          growing('weir_health_probes_total', { result: 'good' }, 60),
        ],
        quiet: [
          growing('weir_health_probes_late_total', {}, 1),
          growing('weir_health_probes_total', { result: 'good' }, 60),
        ],
      },
    ],
  },
  {
    name: 'weir-control',
    page: 'runbooks-control',
    alerts: [
      {
        alert: 'WeirServicesFileRejected',
        severity: 'ticket',
        expr: 'weir_services_file_rejected == 1',
        for: '5m',
        summary: '{{ $labels.instance }} does not apply its services file',
        description:
          'The file is rejected or held, or the disk of control.state does not respond. The' +
          ' previous content stays in force: changes have no effect.',
        ...flag('weir_services_file_rejected', {}, 1),
      },
      {
        alert: 'WeirSourceHeld',
        severity: 'ticket',
        expr: 'weir_source_removal_on_hold == 1',
        for: '5m',
        summary: '{{ $labels.instance }} holds a list of source {{ $labels.source }}',
        description: 'It would remove too much and waits for confirmation.',
        ...flag('weir_source_removal_on_hold', { source: 'file' }, 1),
      },
      {
        alert: 'WeirSourceStale',
        severity: 'ticket',
        expr: 'time() - weir_source_list_timestamp_seconds{source!~"configuration|file|kubernetes-file"} > 86400',
        for: '15m',
        summary:
          'Source {{ $labels.source }} gave {{ $labels.instance }} no complete list for a day',
        description:
          'Its last list is {{ $value | humanizeDuration }} old: its producer may be gone.',
        // The time of promtool's tests begins at 0.
        fires: [constant('weir_source_list_timestamp_seconds', { source: 'inventory' }, -90_000)],
        quiet: [
          constant('weir_source_list_timestamp_seconds', { source: 'inventory' }, -3_600),
          constant('weir_source_list_timestamp_seconds', { source: 'file' }, -90_000),
          constant('weir_source_list_timestamp_seconds', { source: 'kubernetes-file' }, -90_000),
        ],
      },
      {
        alert: 'WeirSecretRejected',
        severity: 'ticket',
        expr: 'weir_secret_rejected == 1',
        for: '5m',
        summary: '{{ $labels.instance }} rejects the content of {{ $labels.secret }}',
        description: 'The previous content stays in force until a restart.',
        ...flag('weir_secret_rejected', { secret: 'api.token_file' }, 1),
      },
      {
        alert: 'WeirCertificateExpiresSoon',
        severity: 'ticket',
        expr: 'weir_secret_expiry_timestamp_seconds - time() < 14 * 86400',
        for: '1h',
        summary: 'The certificate {{ $labels.secret }} of {{ $labels.instance }} expires soon',
        description: 'It is valid for another {{ $value | humanizeDuration }}.',
        // The time of promtool's tests begins at 0.
        fires: [
          s('weir_secret_expiry_timestamp_seconds', { secret: 'api.tls' }, `${86_400 * 10}x120`),
        ],
        quiet: [
          s('weir_secret_expiry_timestamp_seconds', { secret: 'api.tls' }, `${86_400 * 20}x120`),
        ],
        at: '100m',
      },
      {
        alert: 'WeirCertificateExpired',
        severity: 'page',
        expr: 'weir_secret_expiry_timestamp_seconds - time() < 86400',
        for: '5m',
        summary:
          'The certificate {{ $labels.secret }} of {{ $labels.instance }} expires within a day',
        description: 'It is valid for another {{ $value | humanizeDuration }} (negative: expired).',
        fires: [constant('weir_secret_expiry_timestamp_seconds', { secret: 'api.tls' }, 3_600)],
        quiet: [constant('weir_secret_expiry_timestamp_seconds', { secret: 'api.tls' }, 864_000)],
      },
      {
        alert: 'WeirStoreDamaged',
        severity: 'page',
        expr: 'weir_store_damaged == 1',
        for: '1m',
        summary: 'The store of {{ $labels.instance }} is damaged',
        description: 'Changes are rejected, and a restart may lose objects. Traffic goes on.',
        ...flag('weir_store_damaged', {}, 1),
      },
      {
        alert: 'WeirSeedsDiffer',
        severity: 'ticket',
        expr: 'count by (job) (count by (job, fingerprint) (weir_seed_info)) > 1',
        for: '15m',
        summary: 'Appliances of job {{ $labels.job }} have {{ $value }} different seeds',
        description: 'They select different backends for the same flow.',
        fires: [
          constant('weir_seed_info', { fingerprint: 'a' }, 1),
          constant('weir_seed_info', { fingerprint: 'b', instance: 'b' }, 1),
        ],
        quiet: [
          constant('weir_seed_info', { fingerprint: 'a' }, 1),
          constant('weir_seed_info', { fingerprint: 'a', instance: 'b' }, 1),
        ],
      },
      {
        alert: 'WeirAuditLost',
        severity: 'ticket',
        expr: 'increase(weir_audit_lost_total[15m]) > 0',
        for: '0m',
        summary: 'The audit log of {{ $labels.instance }} is incomplete',
        description: '{{ $value | humanize }} entries could not be written in 15 minutes.',
        ...growth('weir_audit_lost_total', {}),
      },
      {
        alert: 'WeirHistoryLost',
        severity: 'ticket',
        expr: 'increase(weir_events_lost_total[15m]) + increase(weir_log_lost_lines_total[15m]) > 0',
        for: '0m',
        summary: 'Events or log lines of {{ $labels.instance }} are lost',
        description: '{{ $value | humanize }} of them in 15 minutes.',
        fires: [
          growing('weir_events_lost_total', {}, 0),
          growing('weir_log_lost_lines_total', {}, 6),
        ],
        quiet: [
          growing('weir_events_lost_total', {}, 0),
          growing('weir_log_lost_lines_total', {}, 0),
        ],
      },
      {
        alert: 'WeirTelemetryLost',
        severity: 'ticket',
        expr: 'increase(weir_telemetry_lost_total[15m]) > 0',
        for: '30m',
        summary: 'The collector does not take the {{ $labels.signal }} of {{ $labels.instance }}',
        description: '{{ $value | humanize }} of them were lost in 15 minutes.',
        ...growth('weir_telemetry_lost_total', { signal: 'traces' }),
      },
      {
        alert: 'WeirHealthListenerDown',
        severity: 'page',
        description: 'Probes of {{ $labels.address }} fail, so this appliance loses its traffic.',
        ...listenerDown('=~"health.*"', 'health.listen', 'api.listen'),
      },
      {
        alert: 'WeirListenerDown',
        severity: 'ticket',
        description: 'Opening {{ $labels.address }} fails, and is tried again. Traffic goes on.',
        ...listenerDown('!~"health.*"', 'api.listen', 'health.tcp'),
      },
      {
        alert: 'WeirListenerRefuses',
        severity: 'ticket',
        expr: 'sum without (reason) (rate(weir_listener_refused_total[5m])) > 1',
        for: '5m',
        summary: '{{ $labels.listener }} of {{ $labels.instance }} refuses connections',
        description: '{{ $value | humanize }} connections/s exceed its limits.',
        ...growth('weir_listener_refused_total', { listener: 'api.listen', reason: 'source' }, 600),
      },
      {
        alert: 'WeirApiAuthFailures',
        severity: 'ticket',
        expr: 'rate(weir_api_auth_failures_total[5m]) + rate(weir_api_auth_limited_total[5m]) > 0.2',
        for: '5m',
        summary: 'Clients of the API of {{ $labels.instance }} fail to authenticate',
        description: '{{ $value | humanize }} requests/s have no valid token.',
        fires: [
          growing('weir_api_auth_failures_total', {}, 60),
          growing('weir_api_auth_limited_total', {}, 60),
        ],
        quiet: [
          growing('weir_api_auth_failures_total', {}, 1),
          growing('weir_api_auth_limited_total', {}, 0),
        ],
      },
    ],
  },
  {
    name: 'weir-network',
    page: 'runbooks-network',
    alerts: [
      {
        alert: 'WeirRegistrationLost',
        severity: 'page',
        expr:
          'weir_ready == 0 and weir_able == 1 unless on (job, instance)' +
          ' weir_cloud_phase{phase=~"following|leaving|over"} == 1',
        for: '5m',
        summary: '{{ $labels.instance }} gets no traffic from its cloud',
        description:
          'It is able to serve, but not registered, or AWS does not report it as healthy. At' +
          ' Azure, it is not in all pools, is Down in one, or its tunnels differ from those of a' +
          ' pool.',
        fires: [
          constant('weir_ready', {}, 0),
          constant('weir_able', {}, 1),
          constant('weir_cloud_phase', { phase: 'outside' }, 1),
        ],
        quiet: [
          constant('weir_ready', {}, 0),
          constant('weir_able', {}, 1),
          constant('weir_cloud_phase', { phase: 'leaving' }, 1),
        ],
      },
      {
        alert: 'WeirCloudHealthDiffers',
        severity: 'ticket',
        expr: 'weir_cloud_health_differs == 1',
        for: '5m',
        summary: 'The cloud and {{ $labels.instance }} disagree on its health',
        description: 'Usually a security group, a probe port or an MTU.',
        ...flag('weir_cloud_health_differs', {}, 1),
      },
      {
        alert: 'WeirCloudTunnelsDiffer',
        severity: 'page',
        expr: 'weir_cloud_tunnels_differ == 1',
        for: '2m',
        summary:
          'Tunnels of gateway {{ $labels.gateway }} differ from its pool on {{ $labels.instance }}',
        description: 'Ports or VNIs differ: packets of the gateway are dropped.',
        ...flag('weir_cloud_tunnels_differ', { gateway: 'azure' }, 1),
      },
      {
        alert: 'WeirCloudCallsFailing',
        severity: 'ticket',
        summary: 'Most requests of {{ $labels.instance }} to the cloud fail',
        description:
          '{{ $value | humanize }} requests/s fail: registration and deregistration do not work.',
        ...callsFailing('weir_cloud_calls_total'),
      },
      {
        alert: 'WeirCloudFinding',
        severity: 'ticket',
        // A finding's series begins with its first occurrence, which `increase` does not see. Failed
        // calls, which end by themselves, have alerts of their own.
        expr:
          'increase(weir_cloud_findings_total{finding!~"call-.*"}[15m]) > 0' +
          ' or (weir_cloud_findings_total{finding!~"call-.*"}' +
          ' unless weir_cloud_findings_total offset 15m)',
        for: '0m',
        summary: 'Finding about the cloud on {{ $labels.instance }}: {{ $labels.finding }}',
        description: '`weir cloud status` shows its text and remedy. The alert ends by itself.',
        fires: [
          [s('weir_cloud_findings_total', { finding: 'group-unused' }, '_x15 1x45')],
          [s('weir_cloud_findings_total', { finding: 'no-packets' }, '1x15 2x45')],
        ],
        quiet: [growing('weir_cloud_findings_total', { finding: 'call-failed' }, 1)],
      },
      {
        alert: 'WeirBgpSessionDown',
        severity: 'page',
        expr: 'weir_bgp_session_state == 0',
        for: '2m',
        summary: 'BGP session of {{ $labels.instance }} with {{ $labels.neighbor }} is down',
        description: 'This router gets no routes from the appliance.',
        ...flag('weir_bgp_session_state', neighbor, 0),
      },
      {
        alert: 'WeirBfdSessionDown',
        severity: 'ticket',
        expr: 'weir_bgp_bfd_session_state == 0',
        for: '2m',
        summary: 'BFD session of {{ $labels.instance }} with {{ $labels.neighbor }} is down',
        description: 'The BGP session is kept down, or failures are detected late.',
        ...flag('weir_bgp_bfd_session_state', neighbor, 0),
      },
      {
        alert: 'WeirBgpSessionUnstable',
        severity: 'ticket',
        // For four or more, with the same margin as in WeirNicUnstable.
        expr: 'increase(weir_bgp_session_flaps_total[1h]) > 3.5',
        for: '0m',
        summary: 'BGP session of {{ $labels.instance }} with {{ $labels.neighbor }} is unstable',
        description: 'It ended {{ $value | humanize }} times in an hour.',
        fires: [growing('weir_bgp_session_flaps_total', neighbor, 1)],
        quiet: [s('weir_bgp_session_flaps_total', neighbor, '7x9 8x9 9x9 10x30')],
      },
      {
        alert: 'WeirBgpNoRoutes',
        severity: 'page',
        expr:
          'sum without (afi, safi) (weir_bgp_advertised_routes) == 0' +
          ' and on (job, instance) weir_able == 1' +
          ' and on (job, instance, router, neighbor) weir_bgp_session_state == 1',
        for: '5m',
        summary: '{{ $labels.instance }} advertises no route to {{ $labels.neighbor }}',
        description:
          'The session is established and the appliance is able, but it gets no traffic.',
        fires: [
          constant('weir_bgp_advertised_routes', family, 0),
          constant('weir_bgp_session_state', neighbor, 1),
          constant('weir_able', {}, 1),
        ],
        quiet: [
          constant('weir_bgp_advertised_routes', family, 2),
          constant('weir_bgp_advertised_routes', { ...family, afi: 'ipv6' }, 0),
          constant('weir_bgp_session_state', neighbor, 1),
          constant('weir_able', {}, 1),
        ],
      },
      {
        alert: 'WeirBgpReconcileFailing',
        severity: 'ticket',
        expr: 'weir_bgp_reconcile_failing == 1',
        for: '5m',
        summary: '{{ $labels.instance }} cannot apply its BGP policies completely',
        description: 'A policy, an annotation or a key is wrong.',
        ...flag('weir_bgp_reconcile_failing', {}, 1),
      },
      {
        alert: 'WeirBgpMalformedUpdates',
        severity: 'ticket',
        expr: 'sum without (treatment) (increase(weir_bgp_malformed_updates_total[15m])) > 0',
        for: '0m',
        summary: '{{ $labels.neighbor }} sends malformed UPDATEs to {{ $labels.instance }}',
        description: 'Attributes were discarded, or routes treated as withdrawn.',
        ...growth('weir_bgp_malformed_updates_total', {
          ...neighbor,
          treatment: 'attribute-discard',
        }),
      },
      {
        alert: 'WeirPrivateLinkNotAvailable',
        severity: 'page',
        expr: 'sum without (reason) (weir_private_link_not_available) > 0',
        for: '20m',
        summary: '{{ $value }} private links of {{ $labels.instance }} are not available',
        description: 'Azure needs minutes for a change; this lasts longer.',
        fires: [constant('weir_private_link_not_available', { reason: 'Forbidden' }, 1)],
        quiet: [s('weir_private_link_not_available', { reason: 'Progressing' }, '1x10 0x50')],
      },
      {
        alert: 'WeirPrivateLinkCallsFailing',
        severity: 'ticket',
        summary: 'Most requests of {{ $labels.instance }} for private links fail',
        description: '{{ $value | humanize }} requests/s to Azure fail.',
        ...callsFailing('weir_private_link_calls_total'),
      },
      {
        alert: 'WeirPrivateLinkConnectionPending',
        severity: 'ticket',
        expr: 'weir_private_link_connections{state="Pending"} > 0',
        for: '1h',
        summary: '{{ $value }} private link connections wait on {{ $labels.instance }}',
        description: 'They wait for `weir pls approve` or `weir pls reject`.',
        fires: [s('weir_private_link_connections', { state: 'Pending' }, '1x120')],
        quiet: [s('weir_private_link_connections', { state: 'Pending' }, '1x20 0x100')],
        at: '100m',
      },
    ],
  },
];

export const ALERTS = GROUPS.flatMap((group) =>
  group.alerts.map((alert) => ({ ...alert, page: group.page })),
);

/** The sum of a function over counters of a NIC. */
function sumOf(names, func, window) {
  return names.map((name) => `${func}(weir_nic_${name}_total[${window}])`).join(' + ');
}

function calls(metric, good, bad) {
  return [
    growing(metric, { operation: 'Describe', outcome: 'ok' }, good),
    growing(metric, { operation: 'Describe', outcome: 'denied' }, bad),
  ];
}
