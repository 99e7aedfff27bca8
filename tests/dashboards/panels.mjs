// The dashboards: rows of panels with their queries.

import { dashboard, series, stat, table, withoutData } from './grafana.mjs';
import { CLASSES, matching } from './reasons.mjs';
import { BUDGET, FAST, XDP_LOSSES } from './rules.mjs';

const ALL = 'job="$job",instance=~"$instance"';
const ONE = 'job="$job",instance="$instance"';
const SERVICE = `${ALL},service=~"$service"`;
const rate = (metric, labels) => `rate(${metric}{${labels}}[$__rate_interval])`;
const increase = (metric, labels) => `increase(${metric}{${labels}}[$__rate_interval])`;
const sum = (by, expr) => (by ? `sum by (${by}) (${expr})` : `sum(${expr})`);

const ABLE = { 1: ['able', 'green'], 0: ['not able', 'red'] };
const OK = { 0: ['ok', 'green'], 1: ['fault', 'red'] };
const UP = { 1: ['up', 'green'], 0: ['down', 'red'] };
const BAD_ABOVE_ZERO = { steps: [[1, 'red']] };
const FULL = [
  [0.8, 'orange'],
  [0.95, 'red'],
];
const FULL_COLUMN = { values: FULL, base: 'green' };
const LOSS = [
  [BUDGET, 'orange'],
  [FAST, 'red'],
];
const LOSS_COLUMN = { values: LOSS, base: 'green' };
const BUSY =
  'Share of its time that an lcore spends in iterations with packets (plane dpdk), over five minutes.';

// Why the lab of the tests has no data for a panel.
const ENA = 'only NICs of AWS (ENA) have allowances';
const XDP = 'the lab runs the data plane of DPDK';
const AZURE = 'the lab is registered at AWS, and only pools of Azure have tunnels to compare';
const LIVE = 'needs a drain in progress';

const drops = (className, by) =>
  sum(by, rate('weir_drops_total', `${by ? ALL : ONE},reason=~"${matching(className)}"`));

const CLASS_MEANINGS =
  'fault: lost here. mismatch: gateway, router or backend and appliance disagree. ' +
  'peer: the sender is at fault. policy: unwanted traffic or a limit.';

/** The quantiles of a histogram, for the labels `by`. */
const quantiles = (metric, labels, by = '') => {
  const legend = by ? ` {{${by}}}` : '';
  return [0.5, 0.99].map((q) => [
    `histogram_quantile(${q}, sum by (le${by ? `, ${by}` : ''}) (rate(${metric}_bucket{${labels}}[$__rate_interval])))`,
    `p${q * 100}${legend}`,
  ]);
};

/** Panels on the requests to a cloud: how many, and how long they take. */
const requests = (title, metric, alert) => [
  series(
    title,
    'By outcome.',
    'ops',
    [[sum('outcome', rate(`${metric}s_total`, ALL)), '{{outcome}}']],
    { alert },
  ),
  series(
    'Time of requests',
    'By outcome.',
    's',
    quantiles(`${metric}_duration_seconds`, ALL, 'outcome'),
  ),
];

export const FLEET = {
  uid: 'weir-fleet',
  title: 'Weir: fleet',
  description: 'All appliances of a job: which serve, what is lost, what is nearly full.',
  variables: ['instances'],
  rows: [
    [
      'Now',
      [
        stat('Able', 'Appliances whose health probes succeed.', 'short', `sum(weir_able{${ALL}})`, {
          w: 3,
          base: 'red',
          steps: [[1, 'green']],
          alert: 'WeirNotAble',
        }),
        stat(
          'Not able',
          'Appliances that are reachable and whose health probes fail.',
          'short',
          `count(weir_able{${ALL}} == 0) or vector(0)`,
          { ...BAD_ABOVE_ZERO, w: 3, alert: 'WeirNotAble' },
        ),
        stat(
          'Not scraped',
          'Targets that Prometheus cannot scrape.',
          'short',
          `count(up{${ALL}} == 0) or vector(0)`,
          { ...BAD_ABOVE_ZERO, w: 3, alert: ['WeirTargetDown', 'WeirNoAppliance'] },
        ),
        stat(
          'Alerts',
          'Firing alerts, from the rules in config/prometheus.',
          'short',
          `count(ALERTS{${ALL},alertstate="firing"}) or vector(0)`,
          { w: 3, steps: [[1, 'orange']] },
        ),
        stat(
          'Received',
          'Packets received on both arms.',
          'pps',
          sum('', rate('weir_packets_total', `${ALL},direction="rx"`)),
          {
            w: 3,
            base: 'blue',
          },
        ),
        stat(
          'Lost',
          'Share of packets lost here by a fault, over five minutes (recording rule). The objective is 0.01 %.',
          'percentunit',
          `max(weir:packets_lost:ratio_rate5m{${ALL}})`,
          {
            w: 3,
            alert: 'WeirTrafficLost',
            steps: LOSS,
          },
        ),
        stat(
          'Flows',
          'Flows in the flow tables.',
          'short',
          `sum(weir_table_entries{${ALL},table="flows"})`,
          { w: 3, base: 'blue' },
        ),
        stat(
          'No backend',
          'Services of which no backend serves, on the worst appliance.',
          'short',
          `max(weir_services{${ALL},state="no_backend"})`,
          { ...BAD_ABOVE_ZERO, w: 3, alert: ['WeirBackendSetEmpty', 'WeirServiceWithoutBackend'] },
        ),
      ],
    ],
    [
      'Appliances',
      [
        table(
          'Appliances',
          'One row per appliance; the name links to its dashboard.',
          { instance: 'Appliance' },
          [
            [
              'Able',
              'short',
              `max by (instance) (weir_able{${ALL}})`,
              { values: [[1, 'green']], base: 'red' },
            ],
            [
              'Received',
              'pps',
              sum('instance', rate('weir_packets_total', `${ALL},direction="rx"`)),
            ],
            [
              'Lost',
              'percentunit',
              `max by (instance) (weir:packets_lost:ratio_rate5m{${ALL}})`,
              LOSS_COLUMN,
            ],
            [
              'Flow table',
              'percentunit',
              `max by (instance) (weir:table_entries:ratio{${ALL},table="flows"})`,
              FULL_COLUMN,
            ],
            [
              'NAT ports',
              'percentunit',
              `max by (instance) (weir:nat_ports:ratio{${ALL}})`,
              FULL_COLUMN,
            ],
            [
              'Busiest lcore',
              'percentunit',
              `max by (instance) (weir:lcore_busy:ratio_rate5m{${ALL}})`,
              FULL_COLUMN,
            ],
            ['Generation', 'short', `max by (instance) (weir_table_generation{${ALL}})`],
            [
              'Last commit',
              's',
              `time() - max by (instance) (weir_table_commit_timestamp_seconds{${ALL}} > 0)`,
            ],
          ],
          { h: 6 },
        ),
      ],
    ],
    [
      'Traffic',
      [
        series('Received packets', 'Both arms.', 'pps', [
          [sum('instance', rate('weir_packets_total', `${ALL},direction="rx"`)), '{{instance}}'],
        ]),
        series('Received bytes', 'Both arms.', 'Bps', [
          [sum('instance', rate('weir_bytes_total', `${ALL},direction="rx"`)), '{{instance}}'],
        ]),
        series('New flows', 'New flows of all services.', 'ops', [
          [sum('instance', rate('weir_service_new_flows_total', ALL)), '{{instance}}'],
        ]),
        series(
          'Lost packets',
          'Share of packets lost here by a fault, over five minutes.',
          'percentunit',
          [[`weir:packets_lost:ratio_rate5m{${ALL}}`, '{{instance}}']],
          {
            steps: LOSS,
            alert: ['WeirTrafficLost', 'WeirTrafficLostSlowly'],
          },
        ),
        series(
          'Dropped packets by class',
          CLASS_MEANINGS,
          'pps',
          CLASSES.map((className) => [
            sum('', rate('weir_drops_total', `${ALL},reason=~"${matching(className)}"`)),
            className,
          ]),
          { stack: true, alert: 'WeirTunnelMismatch' },
        ),
        series(
          'Flows moved and reset',
          'Because their backend failed or was removed.',
          'ops',
          [
            [sum('', rate('weir_flows_moved_total', ALL)), 'moved'],
            [sum('', rate('weir_flows_reset_total', ALL)), 'reset'],
          ],
          { alert: ['WeirFlowsMoved', 'WeirFlowsReset'] },
        ),
      ],
    ],
    [
      'Capacity',
      [
        series(
          'Busiest lcore',
          BUSY,
          'percentunit',
          [[`max by (instance) (weir:lcore_busy:ratio_rate5m{${ALL}})`, '{{instance}}']],
          { max: 1, steps: [[0.9, 'orange']], alert: 'WeirLcoreSaturated' },
        ),
        series(
          'Flow table',
          'Share of the flow table in use.',
          'percentunit',
          [[`weir:table_entries:ratio{${ALL},table="flows"}`, '{{instance}}']],
          { max: 1, steps: FULL, alert: ['WeirTableNearlyFull', 'WeirFlowTableFull'] },
        ),
        series(
          'NAT ports',
          'Share of NAT ports in use, of the backend with the fewest left.',
          'percentunit',
          [[`weir:nat_ports:ratio{${ALL},scope="highest_backend"}`, '{{instance}}']],
          {
            max: 1,
            steps: FULL,
            alert: ['WeirNatPortsNearlyExhausted', 'WeirNatPortsExhausted'],
          },
        ),
      ],
    ],
    [
      'Consistency',
      [
        table(
          'Versions',
          'Appliances by version; all should have the same after an upgrade.',
          { version: 'Version' },
          [['Appliances', 'short', `count by (version) (weir_build_info{${ALL}})`]],
          { w: 8, h: 5 },
        ),
        table(
          'Seeds',
          'Appliances by fingerprint of tables.seed; different seeds select different backends.',
          { fingerprint: 'Seed' },
          [['Appliances', 'short', `count by (fingerprint) (weir_seed_info{${ALL}})`]],
          { w: 8, h: 5, alert: 'WeirSeedsDiffer' },
        ),
        table(
          'Firing alerts',
          'By alert and severity.',
          { alertname: 'Alert', severity: 'Severity' },
          [
            [
              'Series',
              'short',
              `count by (alertname, severity) (ALERTS{${ALL},alertstate="firing"})`,
            ],
          ],
          { w: 8, h: 5 },
        ),
      ],
    ],
  ],
};

export const APPLIANCE = {
  uid: 'weir-appliance',
  title: 'Weir: appliance',
  description: 'One appliance: whether it serves, its traffic and drops, its control plane.',
  variables: ['instance'],
  rows: [
    [
      'Now',
      [
        stat(
          'Able',
          'Whether health probes of the appliance succeed.',
          'short',
          `weir_able{${ONE}}`,
          { w: 3, texts: ABLE, alert: 'WeirNotAble' },
        ),
        stat('Polling lcores', 'Lcores that poll.', 'short', `sum(weir_lcore_polling{${ONE}})`, {
          w: 3,
          base: 'red',
          steps: [[1, 'green']],
          alert: 'WeirLcoreStopped',
        }),
        stat(
          'Behind',
          'Generations by which the slowest lcore is behind the committed tables.',
          'short',
          `max(weir_lcore_generation_lag{${ONE}})`,
          { w: 3, ...BAD_ABOVE_ZERO, alert: 'WeirTablesNotAcknowledged' },
        ),
        stat('Links', 'The worst link of both arms.', 'short', `min(weir_nic_link_up{${ONE}})`, {
          w: 3,
          texts: UP,
          alert: 'WeirNicLinkDown',
        }),
        stat(
          'Unresolved next hops',
          'Next hops of backends without a MAC address.',
          'short',
          `sum(weir_next_hops{${ONE},state="unresolved"})`,
          { w: 3, ...BAD_ABOVE_ZERO, alert: 'WeirNextHopsUnresolved' },
        ),
        stat('Store', 'The files in control.state.', 'short', `weir_store_damaged{${ONE}}`, {
          w: 3,
          texts: { 0: ['intact', 'green'], 1: ['damaged', 'red'] },
          alert: 'WeirStoreDamaged',
        }),
        stat(
          'Services file',
          'Whether the present content is in force.',
          'short',
          `weir_services_file_rejected{${ONE}}`,
          {
            w: 3,
            texts: { 0: ['in force', 'green'], 1: ['rejected', 'red'] },
            alert: 'WeirServicesFileRejected',
          },
        ),
        stat(
          'Secrets',
          'Whether any secret has a rejected content.',
          'short',
          `max(weir_secret_rejected{${ONE}}) or vector(0)`,
          { w: 3, texts: OK, alert: 'WeirSecretRejected' },
        ),
      ],
    ],
    [
      'Traffic',
      [
        series('Packets', 'Received (rx) and sent (tx) by arm.', 'pps', [
          [
            sum('arm, direction', rate('weir_packets_total', `${ONE},direction=~"rx|tx"`)),
            '{{arm}} {{direction}}',
          ],
        ]),
        series(
          'Bytes',
          'Received (rx) and sent (tx) by arm, without the frame check sequence.',
          'Bps',
          [
            [
              sum('arm, direction', rate('weir_bytes_total', `${ONE},direction=~"rx|tx"`)),
              '{{arm}} {{direction}}',
            ],
          ],
        ),
        series(
          'Verdicts',
          'What was decided on packets.',
          'pps',
          [[sum('verdict', rate('weir_verdicts_total', ONE)), '{{verdict}}']],
          { stack: true },
        ),
        series(
          'Drops by class',
          CLASS_MEANINGS,
          'pps',
          CLASSES.map((className) => [drops(className, ''), className]),
          { stack: true, alert: ['WeirTrafficLost', 'WeirTunnelMismatch'] },
        ),
        series(
          'Drops by reason',
          'The ten reasons with most drops; `weir drops` explains them.',
          'pps',
          [
            [
              `topk(10, sum by (reason) (rate(weir_drops_total{${ONE}}[$__rate_interval])) > 0)`,
              '{{reason}}',
            ],
          ],
          { alert: ['WeirDefect', 'WeirNewFlowsLimited', 'WeirTrafficLostSlowly'] },
        ),
        series(
          'Kernel',
          'Packets to and from the kernel: ARP, health probes, BGP, and what the exception ports lost.',
          'pps',
          [
            [
              sum(
                'direction',
                rate('weir_packets_total', `${ONE},direction=~"to_kernel|from_kernel"`),
              ),
              '{{direction}}',
            ],
            [sum('', rate('weir_kernel_lost_packets_total', ONE)), 'lost'],
          ],
        ),
      ],
    ],
    [
      'Flows',
      [
        series(
          'Flows',
          'Entries of the flow table.',
          'short',
          [[`weir_table_entries{${ONE},table="flows"}`, 'flows']],
          { w: 6 },
        ),
        series(
          'Tables in use',
          'Share of each table in use.',
          'percentunit',
          [[`weir:table_entries:ratio{${ONE}}`, '{{table}}']],
          { w: 6, max: 1, steps: FULL, alert: ['WeirTableNearlyFull', 'WeirFlowTableFull'] },
        ),
        series(
          'Ended or changed flows',
          'moved and reset: the backend failed or was removed. evicted: the table, a ring or NAT ports were exhausted. untracked: forwarded without an entry.',
          'ops',
          ['moved', 'reset', 'evicted', 'untracked'].map((what) => [
            rate(`weir_flows_${what}_total`, ONE),
            what,
          ]),
          { w: 6, alert: ['WeirFlowsMoved', 'WeirFlowsReset', 'WeirFlowTableFull'] },
        ),
        series(
          'NAT ports',
          'Ports in use, in total and at the backend with the fewest left.',
          'percentunit',
          [[`weir:nat_ports:ratio{${ONE}}`, '{{scope}}']],
          {
            w: 6,
            max: 1,
            steps: FULL,
            alert: ['WeirNatPortsNearlyExhausted', 'WeirNatPortsExhausted'],
          },
        ),
      ],
    ],
    [
      'Control plane',
      [
        series(
          'Changes by stage',
          '99th percentile of the duration of each stage of a change.',
          's',
          [
            [
              `histogram_quantile(0.99, sum by (le, stage) (rate(weir_change_stage_duration_seconds_bucket{${ONE}}[$__rate_interval])))`,
              '{{stage}}',
            ],
          ],
        ),
        series('Table generation', 'Committed generation; each change adds one.', 'short', [
          [`weir_table_generation{${ONE}}`, 'generation'],
        ]),
        series('Processor time', 'Cores used by the control plane and the data plane.', 'short', [
          [`rate(process_cpu_seconds_total{${ONE}}[$__rate_interval])`, 'control plane'],
          [rate('weir_data_plane_cpu_seconds_total', ONE), 'data plane'],
        ]),
        series('Memory', 'Resident memory of both processes.', 'bytes', [
          [`process_resident_memory_bytes{${ONE}}`, 'control plane'],
          [`weir_data_plane_resident_memory_bytes{${ONE}}`, 'data plane'],
        ]),
        series(
          'Connections',
          'Open connections by listener.',
          'short',
          [[`weir_listener_connections{${ONE}}`, '{{listener}}']],
          { alert: ['WeirHealthListenerDown', 'WeirListenerDown', 'WeirListenerRefuses'] },
        ),
        series(
          'Time of a scrape',
          'Duration of encoding the metrics.',
          's',
          quantiles('weir_metrics_scrape_duration_seconds', ONE),
        ),
        series(
          'Lost records',
          'Entries of the audit log, events, log lines and OpenTelemetry data that are lost, and log lines left out by their limit.',
          'ops',
          [
            [rate('weir_audit_lost_total', ONE), 'audit'],
            [rate('weir_events_lost_total', ONE), 'events'],
            [rate('weir_log_lost_lines_total', ONE), 'log lines'],
            [rate('weir_telemetry_lost_total', ONE), '{{signal}}'],
            [
              `sum(rate(weir_log_suppressed_total{${ONE}}[$__rate_interval])) or vector(0)`,
              'left out',
            ],
          ],
          { h: 6, alert: ['WeirAuditLost', 'WeirHistoryLost', 'WeirTelemetryLost'] },
        ),
        series(
          'API requests',
          'By status.',
          'ops',
          [[sum('status', rate('weir_api_request_duration_seconds_count', ONE)), '{{status}}']],
          { h: 6 },
        ),
        series(
          'Rejected tokens',
          'failed: a wrong token or none. limited: the source failed too often.',
          'ops',
          [
            [rate('weir_api_auth_failures_total', ONE), 'failed'],
            [rate('weir_api_auth_limited_total', ONE), 'limited'],
          ],
          { h: 6, alert: 'WeirApiAuthFailures' },
        ),
        table(
          'Sources',
          'Age of the last complete list of each source, and whether a removal waits for confirmation.',
          { source: 'Source' },
          [
            ['Age', 's', `time() - max by (source) (weir_source_list_timestamp_seconds{${ONE}})`],
            [
              'Held',
              'short',
              `max by (source) (weir_source_removal_on_hold{${ONE}})`,
              { values: [[1, 'orange']], base: 'green' },
            ],
          ],
          { w: 12, h: 6, alert: ['WeirSourceHeld', 'WeirSourceStale'] },
        ),
        table(
          'Certificates',
          'Time until the certificates in force end.',
          { secret: 'Secret' },
          [
            [
              'Remaining',
              's',
              `min by (secret) (weir_secret_expiry_timestamp_seconds{${ONE}}) - time()`,
              {
                values: [
                  [86_400, 'orange'],
                  [1_209_600, 'green'],
                ],
                base: 'red',
              },
            ],
          ],
          { w: 12, h: 6, alert: ['WeirCertificateExpiresSoon', 'WeirCertificateExpired'] },
        ),
      ],
    ],
  ],
};

export const SERVICES = {
  uid: 'weir-service',
  title: 'Weir: service',
  description: 'Traffic, backends and health of services, summed over the selected appliances.',
  variables: ['instances', 'service'],
  rows: [
    [
      'Traffic',
      [
        series('Packets', 'Forwarded packets, both directions.', 'pps', [
          [sum('service', rate('weir_service_packets_total', SERVICE)), '{{service}}'],
        ]),
        series('Bytes', 'Forwarded bytes, both directions.', 'Bps', [
          [sum('service', rate('weir_service_bytes_total', SERVICE)), '{{service}}'],
        ]),
        series(
          'Dropped packets',
          'Packets dropped after they matched the service.',
          'pps',
          [[sum('service', rate('weir_service_drops_total', SERVICE)), '{{service}}']],
          { alert: 'WeirServiceDrops' },
        ),
        series('New flows', 'New flows per second.', 'ops', [
          [sum('service', rate('weir_service_new_flows_total', SERVICE)), '{{service}}'],
        ]),
        series('Flows', 'Live flows.', 'short', [
          [sum('service', `weir_service_flows{${SERVICE}}`), '{{service}}'],
        ]),
        series(
          'Share of drops',
          'Dropped packets of all packets of the service, over five minutes.',
          'percentunit',
          [[`max by (service) (weir:service_drops:ratio_rate5m{${SERVICE}})`, '{{service}}']],
          { steps: [[0.01, 'orange']], alert: 'WeirServiceDrops' },
        ),
      ],
    ],
    [
      'Services',
      [
        table(
          'Services',
          'Backends by state are those of the appliance that has the fewest healthy ones.',
          { service: 'Service' },
          [
            [
              'Healthy',
              'short',
              `min by (service) (weir_service_backends{${SERVICE},state="healthy"})`,
              { values: [[1, 'green']], base: 'red' },
            ],
            [
              'Unhealthy',
              'short',
              `max by (service) (weir_service_backends{${SERVICE},state="unhealthy"})`,
              { values: [[1, 'orange']], base: 'green' },
            ],
            [
              'Draining',
              'short',
              `max by (service) (weir_service_backends{${SERVICE},state="draining"})`,
            ],
            [
              'Maintenance',
              'short',
              `max by (service) (weir_service_backends{${SERVICE},state="maintenance"})`,
            ],
            ['Flows', 'short', sum('service', `weir_service_flows{${SERVICE}}`)],
            ['Packets', 'pps', sum('service', rate('weir_service_packets_total', SERVICE))],
          ],
          { h: 6, alert: ['WeirServiceWithoutBackend', 'WeirBackendSetEmpty'] },
        ),
      ],
    ],
    [
      'Backends of the services',
      [
        series(
          'Packets by backend',
          'Of each backend of the selected services, summed over all its services.',
          'pps',
          [
            [
              backends(
                'sum by (backend) (rate(weir_backend_packets_total{ALL}[$__rate_interval]))',
              ),
              '{{backend}}',
            ],
          ],
        ),
        series(
          'Flows by backend',
          'Live flows; a large difference with equal weights is worth a look.',
          'short',
          [[backends('sum by (backend) (weir_backend_flows{ALL})'), '{{backend}}']],
        ),
        series('New flows by backend', 'New flows per second.', 'ops', [
          [
            backends(
              'sum by (backend) (rate(weir_backend_new_flows_total{ALL}[$__rate_interval]))',
            ),
            '{{backend}}',
          ],
        ]),
        series('Drops by backend', 'Packets dropped after the backend was selected.', 'pps', [
          [
            backends('sum by (backend) (rate(weir_backend_drops_total{ALL}[$__rate_interval]))'),
            '{{backend}}',
          ],
        ]),
        series(
          'Backends',
          'Backends of the selected services by state, on one appliance: one that is able, if there is any.',
          'short',
          [
            [
              `sum by (state) (weir_service_backends{${SERVICE}} and on (instance) topk(1, weir_able{${ALL}}))`,
              '{{state}}',
            ],
          ],
          { stack: true, alert: 'WeirBackendsUnhealthy' },
        ),
        series(
          'Healthy backends',
          'The smallest number on any appliance.',
          'short',
          [[`min by (service) (weir_service_backends{${SERVICE},state="healthy"})`, '{{service}}']],
          { alert: 'WeirServiceWithoutBackend' },
        ),
      ],
    ],
    [
      'Health checks of the selected appliances',
      [
        series(
          'Probes',
          'Probes by result; not_run: the appliance could not run the probe.',
          'ops',
          [[sum('result', rate('weir_health_probes_total', ALL)), '{{result}}']],
        ),
        series(
          'Time of a probe',
          'By result.',
          's',
          quantiles('weir_health_probe_duration_seconds', ALL, 'result'),
        ),
        series(
          'Changes of verdicts',
          'Backends that became healthy or unhealthy.',
          'short',
          [[sum('verdict', increase('weir_health_verdict_changes_total', ALL)), '{{verdict}}']],
          { alert: ['WeirBackendsUnhealthy', 'WeirProbesLate'] },
        ),
      ],
    ],
  ],
};

/** Restricts a query by backend to the backends of the selected services. */
function backends(expr) {
  const selected = `max by (backend) (weir_service_backend_up{${SERVICE}})`;
  return `${expr.replace('ALL', ALL)} and on (backend) ${selected}`;
}

export const DATA_PLANE = {
  uid: 'weir-data-plane',
  title: 'Weir: data plane',
  description: 'Lcores, NICs and tables of one appliance.',
  variables: ['instance'],
  rows: [
    [
      'Lcores',
      [
        series(
          'Busy',
          BUSY,
          'percentunit',
          [[`weir:lcore_busy:ratio_rate5m{${ONE}}`, 'lcore {{lcore}}']],
          { max: 1, steps: [[0.9, 'orange']], alert: 'WeirLcoreSaturated' },
        ),
        series(
          'Time by state',
          'Time of the poll loop with packets (busy) and without (idle), in seconds per second.',
          'short',
          [[rate('weir_lcore_time_seconds_total', ONE), 'lcore {{lcore}} {{state}}']],
        ),
        series(
          'Received by lcore',
          'Packets that each lcore took from the NICs; RSS should spread them evenly.',
          'pps',
          [[rate('weir_lcore_received_packets_total', ONE), '{{arm}} lcore {{lcore}}']],
        ),
        series(
          'Packets per burst',
          'Full bursts mean that packets wait in the queue of the NIC.',
          'short',
          quantiles('weir_lcore_burst_packets', ONE, 'lcore'),
        ),
        series(
          'Time of an iteration',
          'Sampled iterations with packets: the time that a packet spends in Weir after its queue.',
          's',
          quantiles('weir_lcore_iteration_duration_seconds', ONE, 'lcore'),
        ),
        series(
          'Generations behind',
          'Generations by which an lcore is behind the committed tables.',
          'short',
          [[`weir_lcore_generation_lag{${ONE}}`, 'lcore {{lcore}}']],
          { alert: ['WeirTablesNotAcknowledged', 'WeirLcoreStopped'] },
        ),
      ],
    ],
    [
      'NICs',
      [
        series('Received by NIC', 'Frames that the driver delivered.', 'pps', [
          [rate('weir_nic_received_packets_total', ONE), '{{arm}}'],
        ]),
        series('Sent by NIC', 'Frames that the driver accepted and sent.', 'pps', [
          [rate('weir_nic_sent_packets_total', ONE), '{{arm}}'],
        ]),
        series(
          'Share of the link',
          'Received and sent bytes, of the speed that the driver reports.',
          'percentunit',
          [
            [
              `rate(weir_nic_received_bytes_total{${ONE}}[$__rate_interval]) / (weir_nic_speed_bytes{${ONE}} > 0)`,
              '{{arm}} received',
            ],
            [
              `rate(weir_nic_sent_bytes_total{${ONE}}[$__rate_interval]) / (weir_nic_speed_bytes{${ONE}} > 0)`,
              '{{arm}} sent',
            ],
          ],
        ),
        series(
          'Lost before Weir',
          'missed: receive queues were full. errors: damaged frames. no buffer: raise fastpath.buffers.',
          'ops',
          [
            [rate('weir_nic_missed_packets_total', ONE), '{{arm}} missed'],
            [rate('weir_nic_receive_errors_total', ONE), '{{arm}} errors'],
            [rate('weir_nic_no_buffer_events_total', ONE), '{{arm}} no buffer'],
          ],
          { alert: ['WeirNicMissedPackets', 'WeirNicErrors'] },
        ),
        series(
          'Lost after Weir',
          'Frames that the driver accepted and could not send, and full transmit queues.',
          'pps',
          [
            [rate('weir_nic_send_errors_total', ONE), '{{arm}} errors'],
            [rate('weir_drops_total', `${ONE},reason="tx_queue_full"`), '{{arm}} queue full'],
          ],
          { alert: 'WeirNicErrors' },
        ),
        series(
          'Incidents',
          'Resets, removals, returns, stalls and losses of the link.',
          'short',
          ['resets', 'removals', 'returns', 'send_stalls', 'link_losses'].map((name) => [
            sum('', increase(`weir_nic_${name}_total`, ONE)),
            name.replace('_', ' '),
          ]),
          { alert: ['WeirNicUnstable', 'WeirNicNotRunning'] },
        ),
        series(
          'Received by queue',
          'Packets by receive queue, where the driver counts them.',
          'pps',
          [[rate('weir_nic_queue_received_packets_total', ONE), '{{arm}} queue {{queue}}']],
        ),
        series(
          'Allowances of AWS',
          'Packets that AWS queued or dropped because the instance exceeded an allowance.',
          'pps',
          [[sum('allowance', rate('weir_nic_allowance_exceeded_total', ONE)), '{{allowance}}']],
          { without: ENA, alert: 'WeirAllowanceExceeded' },
        ),
        series(
          'Lost behind XDP',
          'Packets that the kernel or the driver did not send after Weir had forwarded them.',
          'pps',
          XDP_LOSSES.map((name) => [
            rate(`weir_nic_xdp_${name}_total`, ONE),
            `{{arm}} ${name.replaceAll('_', ' ')}`,
          ]),
          { without: XDP, alert: 'WeirXdpPacketsLost' },
        ),
      ],
    ],
    [
      'Tables',
      [
        series(
          'Entries',
          'Entries of each table, without the slots of the backend selection.',
          'short',
          [[`weir_table_entries{${ONE},table!="slots"}`, '{{table}}']],
        ),
        series(
          'Not tracked',
          'Flows, fragments, affinities and answers without an entry of their own.',
          'ops',
          ['flows', 'fragments', 'affinities', 'answers'].map((what) => [
            rate(`weir_${what}_untracked_total`, ONE),
            what,
          ]),
          { alert: 'WeirFlowTableFull' },
        ),
        series(
          'Gateway legs',
          'Changes of the gateway node, ports or options of established flows; shared: one for both directions, because no option slab was free.',
          'ops',
          [
            [rate('weir_gateway_leg_changes_total', ONE), 'changed'],
            [rate('weir_gateway_legs_shared_total', ONE), 'shared'],
          ],
        ),
        series('Switches of tables', 'Switches of an lcore to a new generation.', 'ops', [
          [rate('weir_table_switches_total', ONE), 'switches'],
        ]),
        series(
          'ICMP errors',
          'Not sent because of a limit, and received ones that changed nothing.',
          'ops',
          [
            [rate('weir_icmp_errors_limited_total', ONE), 'not sent'],
            [rate('weir_icmp_errors_rejected_total', ONE), 'rejected'],
          ],
        ),
        series(
          'Lost events',
          'Events of lcores for the control plane that were lost because their ring was full.',
          'ops',
          [[rate('weir_ring_events_lost_total', ONE), 'events']],
        ),
      ],
    ],
  ],
};

export const CLOUD = {
  uid: 'weir-cloud',
  title: 'Weir: cloud and BGP',
  description: 'Registration at AWS or Azure, and BGP sessions, of the selected appliances.',
  variables: ['instances'],
  rows: [
    [
      'Registration',
      [
        stat(
          'Ready',
          'Appliances that are able and that the cloud may send traffic to.',
          'short',
          `sum(weir_ready{${ALL}})`,
          { base: 'red', steps: [[1, 'green']], alert: 'WeirRegistrationLost' },
        ),
        stat(
          'Health differs',
          'Appliances whose health the cloud has reported differently for a minute.',
          'short',
          `sum(weir_cloud_health_differs{${ALL}})`,
          { ...BAD_ABOVE_ZERO, alert: 'WeirCloudHealthDiffers' },
        ),
        stat(
          'Tunnels differ',
          'Gateways of Azure whose pool has other ports or VNIs.',
          'short',
          `sum(weir_cloud_tunnels_differ{${ALL}})`,
          { ...BAD_ABOVE_ZERO, alert: 'WeirCloudTunnelsDiffer', without: AZURE },
        ),
        stat(
          'Draining flows',
          'Flows that drains wait for.',
          'short',
          `sum(weir_cloud_drain_flows{${ALL}})`,
          { base: 'blue' },
        ),
        table(
          'Phases',
          'Phase of each registration.',
          { instance: 'Appliance', phase: 'Phase' },
          [['Since start', 'short', `max by (instance, phase) (weir_cloud_phase{${ALL}} == 1)`]],
          { w: 8, h: 4, alert: 'WeirRegistrationLost', hidden: ['Value'] },
        ),
        series(
          'Phases over time',
          'Appliances by phase of their registration.',
          'short',
          [[`sum by (phase) (weir_cloud_phase{${ALL}}) > 0`, '{{phase}}']],
          { stack: true },
        ),
        series(
          'Targets',
          'Targets of the group or members of the pool: the largest number that an appliance sees.',
          'short',
          [[`max by (state) (weir_cloud_targets{${ALL}}) > 0`, '{{state}}']],
          { stack: true },
        ),
        ...requests('Requests to the cloud', 'weir_cloud_call', 'WeirCloudCallsFailing'),
        series(
          'Findings',
          '`weir cloud status` shows text and remedy of each.',
          'short',
          [[`sum by (finding) (weir_cloud_findings_total{${ALL}})`, '{{finding}}']],
          { alert: 'WeirCloudFinding' },
        ),
        series(
          'Remaining time of a drain',
          'The longest.',
          's',
          [[`max by (instance) (weir_cloud_drain_remaining_seconds{${ALL}}) > 0`, '{{instance}}']],
          { without: LIVE },
        ),
      ],
    ],
    [
      'BGP',
      [
        table(
          'Sessions',
          'State of BGP and BFD by appliance and neighbor: 1 is up.',
          { instance: 'Appliance', neighbor: 'Neighbor' },
          [
            [
              'Session',
              'short',
              `max by (instance, neighbor) (weir_bgp_session_state{${ALL}})`,
              { values: [[1, 'green']], base: 'red' },
            ],
            [
              'BFD',
              'short',
              `max by (instance, neighbor) (weir_bgp_bfd_session_state{${ALL}})`,
              { values: [[1, 'green']], base: 'red' },
            ],
            [
              'Advertised routes',
              'short',
              `sum by (instance, neighbor) (weir_bgp_advertised_routes{${ALL}})`,
            ],
            [
              'Received routes',
              'short',
              `sum by (instance, neighbor) (weir_bgp_received_routes{${ALL}})`,
            ],
            [
              'Flaps',
              'short',
              `sum by (instance, neighbor) (weir_bgp_session_flaps_total{${ALL}})`,
            ],
          ],
          { h: 6, alert: ['WeirBgpSessionDown', 'WeirBfdSessionDown'] },
        ),
        series(
          'Sessions',
          '1 while the session is established.',
          'short',
          [[`weir_bgp_session_state{${ALL}}`, '{{instance}} {{neighbor}}']],
          { max: 1, alert: 'WeirBgpSessionDown' },
        ),
        series(
          'Advertised routes',
          'By neighbor and address family.',
          'short',
          [[`weir_bgp_advertised_routes{${ALL}}`, '{{neighbor}} {{afi}}']],
          { alert: 'WeirBgpNoRoutes' },
        ),
        series(
          'Received messages',
          'By type.',
          'ops',
          [[sum('type', rate('weir_bgp_received_messages_total', ALL)), '{{type}}']],
          { alert: 'WeirBgpMalformedUpdates' },
        ),
        series(
          'Flaps',
          'Established sessions that ended.',
          'short',
          [[sum('neighbor', increase('weir_bgp_session_flaps_total', ALL)), '{{neighbor}}']],
          { alert: 'WeirBgpSessionUnstable' },
        ),
        series(
          'Reconciliations',
          'Duration of reconciliations.',
          's',
          quantiles('weir_bgp_reconcile_run_duration_seconds', ALL),
        ),
        series(
          'Failing policies',
          '1 while the policies cannot be applied completely.',
          'short',
          [[`weir_bgp_reconcile_failing{${ALL}}`, '{{instance}}']],
          { max: 1, alert: 'WeirBgpReconcileFailing' },
        ),
      ],
    ],
  ],
};

export const PRIVATE_LINK = {
  uid: 'weir-private-link',
  title: 'Weir: Private Link',
  description: 'Azure private links, as their owner sees them.',
  variables: ['instances'],
  rows: [
    [
      'Now',
      [
        stat(
          'Links',
          'Private links, including those being deleted.',
          'short',
          `max(weir_private_link_objects{${ALL}})`,
          { base: 'blue' },
        ),
        stat(
          'Available',
          'Links whose resources are all ready.',
          'short',
          `max(weir_private_link_available{${ALL}})`,
          { base: 'red', steps: [[1, 'green']], alert: 'WeirPrivateLinkNotAvailable' },
        ),
        stat(
          'Not available',
          'Links with resources that are not ready.',
          'short',
          `sum(weir_private_link_not_available{${ALL}}) or vector(0)`,
          { ...BAD_ABOVE_ZERO, alert: 'WeirPrivateLinkNotAvailable' },
        ),
        stat(
          'Pending connections',
          'Connections that wait for approval.',
          'short',
          `max(weir_private_link_connections{${ALL},state="Pending"})`,
          { steps: [[1, 'orange']], alert: 'WeirPrivateLinkConnectionPending' },
        ),
        stat(
          'Operations',
          'Long operations in progress at Azure.',
          'short',
          `sum(weir_private_link_operations{${ALL}})`,
          { base: 'blue' },
        ),
        stat(
          'Paused',
          'Links whose reconciliation is paused.',
          'short',
          `max(weir_private_link_paused{${ALL}})`,
          { steps: [[1, 'orange']] },
        ),
      ],
    ],
    [
      'Over time',
      [
        series(
          'Links',
          'Private links by condition.',
          'short',
          ['available', 'paused', 'deleting', 'observed'].map((what) => [
            `max(weir_private_link_${what}{${ALL}})`,
            what,
          ]),
        ),
        series(
          'Not available by reason',
          '`weir pls show` names the resource and the error.',
          'short',
          [[sum('reason', `weir_private_link_not_available{${ALL}}`), '{{reason}}']],
          {
            alert: 'WeirPrivateLinkNotAvailable',
            without: 'all private links of a healthy lab are available',
          },
        ),
        series(
          'Connections',
          'Connections of endpoints by state.',
          'short',
          [[`max by (state) (weir_private_link_connections{${ALL}})`, '{{state}}']],
          { stack: true, alert: 'WeirPrivateLinkConnectionPending' },
        ),
        ...requests('Requests to Azure', 'weir_private_link_call', 'WeirPrivateLinkCallsFailing'),
        series('Requests by operation', 'All outcomes.', 'ops', [
          [sum('operation', rate('weir_private_link_calls_total', ALL)), '{{operation}}'],
        ]),
      ],
    ],
  ],
};

/** The dashboards by file name. */
export const SPECS = {
  'fleet.json': FLEET,
  'appliance.json': APPLIANCE,
  'service.json': SERVICES,
  'data-plane.json': DATA_PLANE,
  'cloud-bgp.json': CLOUD,
  'private-link.json': PRIVATE_LINK,
};

export const DASHBOARDS = Object.fromEntries(
  Object.entries(SPECS).map(([file, spec]) => [file, dashboard(spec)]),
);

/** Panels for which the lab has no data, by dashboard: titles with the reason. */
export const WITHOUT_DATA = Object.fromEntries(
  Object.entries(SPECS).map(([file, spec]) => [file, withoutData(spec)]),
);
