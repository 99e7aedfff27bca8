// The class of each drop reason: whether a packet dropped for it is a loss that the operator has to
// act on. The order is that of the reference; a test compares both lists.
//
//   fault     the packet was valid and wanted, and was lost here: it counts against the loss objective
//   mismatch  gateway, router or backend and this appliance disagree on the configuration
//   peer      the packet is malformed, late or undeliverable by its sender's fault
//   policy    the configuration asks for the drop: unwanted traffic, or a limit against floods

export const REASONS = {
  too_short: 'peer',
  headers_split: 'fault',
  bad_ip_header: 'peer',
  bad_ip_checksum: 'peer',
  bad_udp_length: 'peer',
  outer_fragment: 'mismatch',
  geneve_version: 'peer',
  geneve_option_overrun: 'peer',
  geneve_critical_option: 'mismatch',
  geneve_missing_option: 'mismatch',
  geneve_control: 'peer',
  tunnel_protocol: 'peer',
  vxlan_flags: 'peer',
  gue_header: 'peer',
  inner_malformed: 'peer',
  martian_source: 'peer',
  tunnel_source: 'mismatch',
  wrong_vni: 'mismatch',
  wrong_port: 'mismatch',
  not_our_address: 'mismatch',
  unknown_backend_tunnel: 'mismatch',
  no_service: 'policy',
  no_backend: 'fault',
  source_denied: 'policy',
  no_flow: 'peer',
  no_neighbor: 'fault',
  no_route: 'fault',
  flow_table_full: 'fault',
  flow_contended: 'fault',
  flow_ambiguous: 'fault',
  nat_ports_exhausted: 'fault',
  nat_no_address: 'fault',
  nat_protocol: 'policy',
  fragment_before_first: 'peer',
  icmp_unknown_flow: 'peer',
  congestion: 'peer',
  ttl_exceeded: 'peer',
  too_big: 'fault',
  too_big_answered: 'peer',
  no_headroom: 'fault',
  punt_limited_local: 'policy',
  punt_limited_neighbor: 'policy',
  punt_limited_icmp: 'policy',
  punt_limited_other: 'policy',
  punt_full: 'fault',
  foreign_dst_mac: 'peer',
  exception_malformed: 'fault',
  scope_table_full: 'fault',
  tx_queue_full: 'fault',
  nic_unavailable: 'fault',
  stage_missing: 'fault',
  not_translatable: 'peer',
  no_matching_service: 'policy',
  new_flow_limited: 'policy',
  undecided: 'fault',
};

export const CLASSES = ['fault', 'mismatch', 'peer', 'policy'];

/** Returns the reasons of a class as an alternation of PromQL's regular expressions. */
export function matching(className) {
  const reasons = Object.keys(REASONS).filter((reason) => REASONS[reason] === className);
  return reasons.join('|');
}
