//! The list of all events. Log line, record of the history, JSON and the reference page come from
//! it; a test compares it with every call in the sources.

use crate::kind::EventKind;
use crate::kind::Severity::{self, Debug, Error, Info, Warning};

/// Declares an event that the history records, in addition to the log.
const fn recorded(
    (name, severity, message): (&'static str, Severity, &'static str),
    fields: &'static [&'static str],
    meaning: &'static str,
    action: &'static str,
) -> EventKind {
    EventKind { name, severity, message, fields, subject: 1, is_recorded: true, meaning, action }
}

/// Declares an event of the log alone.
const fn logged(
    head: (&'static str, Severity, &'static str),
    fields: &'static [&'static str],
    meaning: &'static str,
    action: &'static str,
) -> EventKind {
    EventKind { is_recorded: false, ..recorded(head, fields, meaning, action) }
}

impl EventKind {
    /// Sets the number of fields that are the subject, if it is not the first one alone.
    const fn with_subject(self, fields: usize) -> EventKind {
        EventKind { subject: fields, ..self }
    }
}

/// Returns the declaration of the event with this name.
pub fn find(name: &str) -> Option<&'static EventKind> {
    let at = EVENTS.binary_search_by(|kind| kind.name.cmp(name)).ok()?;
    EVENTS.get(at)
}

/// All events, sorted by name.
pub static EVENTS: &[EventKind] = &[
    recorded(
        ("able", Info, "able"),
        &[],
        "The appliance takes new traffic: health probes succeed.",
        "Nothing.",
    ),
    logged(
        ("accept_failed", Debug, "accept failed"),
        &["error"],
        "A connection could not be accepted.",
        "Nothing; `open_files_limited` reports a limit of open files that is too low.",
    )
    .with_subject(0),
    logged(
        ("api_handshake_failed", Debug, "TLS handshake failed"),
        &["from", "error"],
        "A client of the API ended the TLS handshake, or it failed.",
        "Nothing, unless the client is one of yours.",
    ),
    recorded(
        ("api_token_expired", Info, "API token expired"),
        &["token"],
        "A named API token reached the end of its validity.",
        "Create another token if the client still needs access.",
    ),
    recorded(
        ("api_token_outdated", Warning, "API requests rejected: token no longer accepted"),
        &["source", "failures"],
        "A client still sends a token that was replaced, was revoked or has expired.",
        "Give the client the new token.",
    ),
    recorded(
        ("api_token_overlap_ended", Info, "overlap of a replaced API token ended"),
        &[],
        "The replaced API token is no longer accepted.",
        "Nothing.",
    ),
    recorded(
        ("api_token_replaced", Info, "API token replaced"),
        &["file", "overlap_s"],
        "The API token was rotated; the previous one is accepted for `overlap_s`.",
        "Give the clients the new token.",
    ),
    recorded(
        ("api_token_wrong", Warning, "API requests rejected: wrong or missing token"),
        &["source", "failures"],
        "A client sent API requests with a wrong token or without one.",
        "Check the client at this address; after too many failures its requests are rejected for \
         some time.",
    ),
    recorded(
        ("api_tokens_replaced", Info, "API tokens replaced"),
        &["file", "count", "ended"],
        "The file of named API tokens changed; tokens that are no longer in it ended.",
        "Nothing.",
    ),
    logged(
        ("appliance_object_unwritten", Warning, "appliance object not updated"),
        &["error"],
        "The object of this appliance could not be written.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    logged(
        ("audit", Info, "audit"),
        &[
            "who",
            "role",
            "transport",
            "source",
            "call",
            "object",
            "objects",
            "outcome",
            "status",
            "reason",
            "revision",
        ],
        "A change was made or rejected; `weir audit` shows it with the values before and after.",
        "Nothing.",
    ),
    recorded(
        ("audit_unwritten", Error, "audit log not written"),
        &["error"],
        "Entries of the audit log are lost, or wait for the disk.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    recorded(
        ("aws_leader_ended", Warning, "leader ended"),
        &[],
        "The leader of mode `routes` ended: routes point at this instance until it stops or loses \
         its tags; then the peer with the next highest priority takes over.",
        "Stop the instance.",
    ),
    recorded(
        ("aws_role_changed", Info, "role in mode routes changed"),
        &["leader", "phase"],
        "The role of this instance in mode `routes` changed.",
        "Nothing.",
    ),
    logged(
        ("aws_routes_deprecated", Warning, "aws.mode = \"routes\" is deprecated"),
        &[],
        "A route table does not detect a failed appliance.",
        "Use a gateway load balancer.",
    ),
    recorded(
        ("aws_target_group_found", Info, "target group found"),
        &["group", "target"],
        "The target group of this instance was found.",
        "Nothing.",
    ),
    recorded(
        ("azure_pool_found", Info, "backend pool found"),
        &["balancer", "interface"],
        "The backend pool of this machine was found.",
        "Nothing.",
    ),
    recorded(
        ("backend_healthy", Info, "backend healthy"),
        &["backend", "service", "reason"],
        "Health checks of a backend succeed again.",
        "Nothing.",
    )
    .with_subject(2),
    recorded(
        ("backend_kept_unhealthy", Info, "backend kept unhealthy after the restart"),
        &["service", "backend"],
        "A backend that was unhealthy before the restart of slowpath stays so until it passes its \
         checks.",
        "See `weir health`.",
    )
    .with_subject(2),
    recorded(
        ("backend_unhealthy", Warning, "backend unhealthy"),
        &["backend", "service", "reason"],
        "Health checks of a backend fail; it gets no new flows.",
        "The reason is in the event; see `weir health`.",
    )
    .with_subject(2),
    recorded(
        ("backends_empty", Warning, "service has no usable backend"),
        &["service"],
        "No backend of a service is active and healthy.",
        "See `weir health` and `weir services`.",
    ),
    recorded(
        ("backends_usable", Info, "service has usable backends again"),
        &["service"],
        "A service has an active, healthy backend again.",
        "Nothing.",
    ),
    recorded(
        ("bfd_neighbor_admin_down", Info, "BFD neighbor is administratively down"),
        &["neighbor"],
        "The neighbor has set its BFD session administratively down.",
        "Nothing, unless the neighbor should have it up.",
    ),
    recorded(
        ("bfd_not_running", Warning, "BFD is not running"),
        &["error"],
        "BFD could not start; sessions depend on BGP's hold timer.",
        "See the error: usually ports 3784 and 4784 are taken.",
    )
    .with_subject(0),
    logged(
        ("bfd_packet_unsent", Warning, "BFD packet not sent"),
        &["neighbor", "error"],
        "A BFD packet could not be sent.",
        "See the error: route, address or firewall.",
    ),
    logged(
        ("bfd_packets_sent_again", Info, "BFD packets are sent again"),
        &["neighbor"],
        "BFD packets can be sent again.",
        "Nothing.",
    ),
    recorded(
        ("bfd_session_down", Info, "BFD session down"),
        &["neighbor", "reason"],
        "A BFD session was taken down without a failure.",
        "Nothing.",
    ),
    recorded(
        ("bfd_session_failed", Warning, "BFD session failed"),
        &["neighbor", "reason"],
        "A BFD session failed; BGP closes its session with the neighbor.",
        "The reason is in the event.",
    ),
    logged(
        ("bfd_session_invalid", Warning, "BFD session has invalid settings"),
        &["session", "error"],
        "The settings of a BFD session are not valid.",
        "Correct the neighbor of the BGP policy.",
    ),
    recorded(
        ("bfd_session_up", Info, "BFD session up"),
        &["neighbor"],
        "A BFD session is up.",
        "Nothing.",
    ),
    logged(
        ("bgp_accept_failed", Warning, "BGP listener cannot accept a connection"),
        &["address", "error"],
        "A BGP connection could not be accepted.",
        "See the error.",
    ),
    logged(
        ("bgp_conditions_unwritten", Debug, "conditions of BGP policies not written"),
        &["error"],
        "Conditions of BGP policies were not written.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("bgp_connection_failed", Warning, "BGP connection failed"),
        &["peer", "local_asn", "error"],
        "A neighbor could not be connected to, for a new reason.",
        "See the error.",
    ),
    logged(
        ("bgp_connection_refused", Debug, "accepted BGP connection was closed"),
        &["from", "error"],
        "A connection from an address that is not a configured neighbor was closed.",
        "Nothing, unless the address should be a neighbor: then see `weir bgp policies`.",
    ),
    recorded(
        ("bgp_key_install_failed", Warning, "BGP key not installed, peer is refused"),
        &["peer", "error"],
        "The kernel rejected the key of a neighbor; connections of the neighbor are refused.",
        "See the error.",
    ),
    recorded(
        ("bgp_keys_replaced", Info, "BGP keys replaced"),
        &["peer", "local_asn"],
        "The keys of a neighbor were rotated.",
        "The neighbor needs the same keys.",
    ),
    recorded(
        ("bgp_listener_closed", Warning, "BGP listener is not open"),
        &["error"],
        "The BGP port cannot be listened on.",
        "See the error: usually another daemon has port 179.",
    )
    .with_subject(0),
    logged(
        (
            "bgp_neighbors_excess",
            Warning,
            "too many BGP neighbors for the punt class of local ports",
        ),
        &["neighbors", "limit"],
        "Packets of the neighbors above the limit are limited by `punt.limit_per_s`.",
        "Use fewer neighbors.",
    )
    .with_subject(0),
    logged(
        ("bgp_policy_incomplete", Warning, "BGP policy not applied completely"),
        &["error"],
        "A part of a BGP policy could not be applied; it is tried again.",
        "See `weir bgp policies`.",
    )
    .with_subject(0),
    recorded(
        ("bgp_secret_unusable", Warning, "BGP key is not usable"),
        &["key", "password", "cause"],
        "A file of `bgp.secrets` cannot be used; a running session whose keys came from the same \
         files keeps them.",
        "Correct the file that `password` names; the cause is in the event.",
    ),
    recorded(
        ("bgp_session_closed", Warning, "BGP session closed"),
        &["peer", "local_asn", "reason"],
        "A BGP session ended; the neighbor removes this appliance's routes, unless both ends use \
         graceful restart.",
        "The reason is in the event; see `weir bgp peers`.",
    ),
    recorded(
        ("bgp_session_established", Info, "BGP session established"),
        &["peer", "local_asn"],
        "A BGP session is established.",
        "Nothing.",
    ),
    logged(
        ("bgp_state_changed", Debug, "BGP state changed"),
        &["peer", "local_asn", "state"],
        "A BGP session that is not established changed its state.",
        "Nothing.",
    ),
    logged(
        ("bgp_ttl_unset", Warning, "minimum TTL of a BGP listener was not set"),
        &["address", "minimum", "error"],
        "The kernel rejected a listener's minimum TTL of packets (GTSM, RFC 5082); 0 means any.",
        "See the error.",
    ),
    recorded(
        ("capture_ended", Info, "capture ended"),
        &["arms", "packets", "lost", "seconds"],
        "A capture of packets ended; `lost` frames came faster than they were written.",
        "Nothing. With losses: narrow the filter of `weir capture`, or lower --snap.",
    ),
    logged(
        ("capture_start_failed", Warning, "capture not started"),
        &["error"],
        "The data plane cannot open the file of a capture, and copies no packets for it.",
        "See the error.",
    )
    .with_subject(0),
    recorded(
        ("capture_started", Info, "capture started"),
        &["arms", "filter"],
        "A capture of packets began; the data plane works more for every packet while it is on.",
        "Nothing. The audit log names who started it.",
    ),
    logged(
        ("cloud_call_retried", Debug, "cloud call failed, retrying"),
        &["operation", "code", "pause"],
        "A call of the cloud's API failed and is tried again.",
        "Nothing.",
    ),
    recorded(
        ("cloud_failed", Error, "cloud integration failed"),
        &["cloud", "error"],
        "The registration with the cloud failed.",
        "See `weir cloud status` and `weir cloud doctor`.",
    ),
    recorded(
        ("cloud_finding", Warning, "cloud finding"),
        &["finding", "cloud", "text", "remedy"],
        "The cloud's configuration has a problem.",
        "Do what `remedy` says.",
    ),
    recorded(
        ("cloud_lifecycle_ended", Info, "cloud lifecycle ended"),
        &["cloud", "outcome"],
        "The appliance has left the cloud.",
        "Nothing.",
    ),
    recorded(
        (
            "cloud_location_from_file",
            Warning,
            "no response from the cloud: using the location in the state file",
        ),
        &["cloud", "location", "error"],
        "The cloud does not respond; the location in the state file is used.",
        "Check connectivity to the cloud's API.",
    ),
    recorded(
        ("cloud_phase_changed", Info, "cloud phase changed"),
        &["cloud", "from", "to"],
        "The registration with the cloud entered another phase.",
        "See `weir cloud status` if it does not become ready.",
    ),
    logged(
        ("cloud_state_unwritten", Warning, "cloud state file not written"),
        &["file", "error"],
        "The state file of the cloud could not be written.",
        "Check the disk.",
    ),
    recorded(
        ("commit_rejected", Error, "commit rejected, the tables are unchanged"),
        &["error"],
        "The region rejected a change.",
        "The error names the table that is full, or the setting to change.",
    )
    .with_subject(0),
    recorded(
        ("configuration_applied", Info, "configuration applied"),
        &["gateways"],
        "A changed configuration is in force.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("configuration_rejected", Error, "configuration rejected; previous one stays in force"),
        &["error"],
        "A changed configuration is not valid, or requires a restart; the previous one stays in \
         force.",
        "Type `weir config check`.",
    )
    .with_subject(0),
    logged(
        ("configuration_warning", Warning, "configuration warning"),
        &["warning"],
        "A setting is valid and probably unintended.",
        "See `weir config check`.",
    )
    .with_subject(0),
    recorded(
        ("control_loop_recovered", Info, "control loop runs again"),
        &[],
        "The control loop runs again.",
        "Nothing.",
    ),
    recorded(
        ("control_loop_stalled", Error, "control loop stalled"),
        &["reason"],
        "The control loop has not reported for `health.stall_timeout_ms`; probes fail and routes \
         are withdrawn.",
        "Look for a machine without CPU time or memory; restart slowpath if it stays.",
    )
    .with_subject(0),
    recorded(
        ("data_plane_attached", Info, "data plane attached"),
        &["epoch", "program", "starts", "unobserved"],
        "A data plane has joined the region. `starts` is the number of starts since the last one \
         seen; with `unobserved`, it started while slowpath was not running.",
        "Nothing, unless it was not restarted on purpose: then see its log.",
    )
    .with_subject(0),
    logged(
        ("data_plane_failed", Error, "data plane failed"),
        &["error"],
        "fastpath or ebpf-fallback could not start, or a part of it failed.",
        "See the error. The service manager starts it again, unless the configuration is wrong.",
    )
    .with_subject(0),
    recorded(
        ("data_plane_gone", Warning, "data plane gone"),
        &["epoch"],
        "The data plane has left the region: with DPDK nothing is forwarded; with XDP the \
         programs stay attached.",
        "See `systemctl status weir-fastpath weir-ebpf-fallback` and the log of the one that ran.",
    )
    .with_subject(0),
    logged(
        ("data_plane_note", Info, "data plane note"),
        &["note"],
        "The data plane reports a property or a choice of its start.",
        "Nothing.",
    )
    .with_subject(0),
    logged(
        ("data_plane_ready", Info, "data plane ready"),
        &["dpdk", "ports", "lcores", "start_ms", "outage_ms"],
        "fastpath forwards packets; for `outage_ms` no lcore polled.",
        "Nothing.",
    )
    .with_subject(0),
    logged(
        ("data_plane_stopped", Info, "data plane stopped"),
        &[],
        "fastpath has ended; or the loader of XDP, whose programs stay attached until \
         `ebpf-fallback --detach`.",
        "Nothing.",
    ),
    logged(
        ("data_plane_warning", Warning, "data plane warning"),
        &["warning"],
        "The data plane started, with a setting or a property of the machine that reduces its \
         performance, or because of which it does not count some losses.",
        "Do what the warning says.",
    )
    .with_subject(0),
    recorded(
        ("drain_ended", Info, "drain canceled"),
        &[],
        "The drain was ended; new traffic is accepted.",
        "Nothing.",
    ),
    recorded(
        ("drain_started", Info, "drain started"),
        &[],
        "A drain began: health probes fail, established flows are forwarded.",
        "`weir drain --undo` ends it.",
    ),
    recorded(
        ("drained_backend_removed", Info, "drained backend removed"),
        &["address", "port"],
        "A backend that no source names any more was removed, because it has no flows left or 300 \
         s have passed.",
        "Nothing.",
    )
    .with_subject(2),
    recorded(
        ("file_reader_ended", Error, "file reader thread ended"),
        &[],
        "A defect: files are no longer read.",
        "Restart slowpath, and report it with the log.",
    ),
    logged(
        (
            "file_removal_confirmed",
            Info,
            "removal by the services files confirmed; reading them again",
        ),
        &[],
        "An operator confirmed a removal by the services files, which are read again.",
        "Nothing.",
    ),
    recorded(
        ("gateway_settings_rejected", Error, "settings reported by the gateway rejected"),
        &["error"],
        "Settings that the cloud reports cannot be applied.",
        "See the error.",
    )
    .with_subject(0),
    logged(
        ("generation_switched", Debug, "switched"),
        &["lcore", "generation"],
        "An lcore uses a new generation of the tables.",
        "Nothing.",
    ),
    recorded(
        ("health_ca_unusable", Warning, "CA file of a service not usable"),
        &["file", "cause"],
        "The CA file of a service's health checks cannot be used.",
        "Correct the file.",
    ),
    logged(
        ("health_verdict_late", Debug, "health verdict for a removed backend"),
        &["error"],
        "Health checks changed the state of a backend that had been removed.",
        "Nothing.",
    )
    .with_subject(0),
    logged(
        ("held_removal_unrecorded", Error, "held removal not recorded"),
        &["error"],
        "A held removal could not be recorded in the store.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    logged(
        ("http_connection_failed", Debug, "connection ended with an error"),
        &["from", "error"],
        "An HTTP connection ended with an error.",
        "Nothing.",
    ),
    recorded(
        ("lcore_polls", Info, "lcore polls again"),
        &["lcore"],
        "An lcore polls again.",
        "Nothing.",
    ),
    recorded(
        ("lcore_stalled", Warning, "lcore does not poll"),
        &["lcore"],
        "An lcore has not polled for 700 ms; its queues are not served.",
        "Look for other processes on its CPU: `weir doctor`.",
    ),
    recorded(
        ("link_down", Warning, "link down"),
        &["arm", "port"],
        "The link of an arm is down.",
        "Check cable, switch or virtual NIC.",
    ),
    recorded(
        ("link_up", Info, "link up"),
        &["arm", "port"],
        "The link of an arm is up.",
        "Nothing.",
    ),
    recorded(
        ("listening_again", Info, "listening again"),
        &["key", "address"],
        "An address can be listened on again.",
        "Nothing.",
    )
    .with_subject(2),
    recorded(
        ("log_level_changed", Info, "log level changed"),
        &["level", "origin", "seconds"],
        "The level of the log was changed, or its time is over (`seconds` is 0 for no end).",
        "Nothing.",
    ),
    logged(
        ("log_level_rejected", Warning, "WEIR_LOG ignored"),
        &["error"],
        "The variable WEIR_LOG is not valid; `log.level` is used.",
        "Correct the variable.",
    )
    .with_subject(0),
    logged(
        ("log_lines_lost", Warning, "log lines lost"),
        &["lines"],
        "The reader of the log did not accept lines in time.",
        "Check journald, or the process that reads standard error.",
    )
    .with_subject(0),
    logged(
        ("log_lines_suppressed", Warning, "log lines suppressed"),
        &["suppressed_event", "subject", "lines"],
        "Lines of an event and subject exceeded `log.limit` within 10 s.",
        "Look at the lines before, or raise `log.limit`; lines at level debug are never limited.",
    ),
    logged(
        ("manifest_warning", Warning, "Kubernetes manifest warning"),
        &["note"],
        "A Kubernetes object has something that Weir does not use as written.",
        "See the note.",
    )
    .with_subject(0),
    logged(
        ("next_hop_unremoved", Debug, "next hop not removed yet"),
        &["next_hop", "error"],
        "A next hop is still in use.",
        "Nothing.",
    ),
    logged(
        ("next_hop_unwritten", Warning, "next hop not written"),
        &["address", "error"],
        "A next hop could not be written to the region.",
        "See the error; raise the size of the table that it names.",
    ),
    recorded(
        ("nic_degraded", Warning, "NIC degraded"),
        &["arm", "port", "state", "detail"],
        "The NIC of an arm is being reset, or was removed.",
        "The detail says why; see `weir nic counters` and the host's or cloud's events.",
    ),
    recorded(
        ("nic_incidents", Warning, "NIC incidents counted"),
        &["arm", "port", "incidents", "totals", "unobserved"],
        "The data plane counted resets, removals, returns, failures or lost links of a NIC since \
         the last observation; with `unobserved`, while slowpath was not running.",
        "As for `nic_degraded`.",
    ),
    logged(
        ("nic_note", Warning, "NIC note"),
        &["arm", "device", "note"],
        "fastpath found a faulty NIC, repaired it, or saw its link change.",
        "See `nic_degraded` and `nic_incidents`.",
    ),
    recorded(
        ("nic_running", Info, "NIC runs"),
        &["arm", "port"],
        "The NIC of an arm runs.",
        "Nothing.",
    ),
    recorded(
        ("not_able", Warning, "not able"),
        &["reasons"],
        "The appliance takes no new traffic: health probes fail.",
        "The reasons are in the event and in `weir status`.",
    )
    .with_subject(0),
    recorded(
        ("not_listening", Error, "not listening, retrying"),
        &["key", "address", "error"],
        "An address cannot be listened on; it is tried again.",
        "See the error: usually another process has the port.",
    )
    .with_subject(2),
    logged(
        ("object_accepted", Info, "object accepted"),
        &["object"],
        "An object is in force again, or for the first time.",
        "Nothing.",
    ),
    recorded(
        ("object_rejected", Error, "object rejected"),
        &["object", "error"],
        "An object conflicts with others and is not in force.",
        "The error names the conflict.",
    ),
    recorded(
        ("object_shadowed", Warning, "object shadowed by a preferred source"),
        &["object", "preferred"],
        "An object of the same name from a preferred source is used.",
        "Remove one of them, or set `[[source]]` precedence.",
    ),
    logged(
        ("objects_unsupported", Info, "objects of unsupported kind ignored"),
        &["kind"],
        "A Kubernetes file has objects that Weir does not use.",
        "Nothing.",
    ),
    recorded(
        (
            "open_files_limited",
            Warning,
            "limit of open files too low, listeners accept fewer connections",
        ),
        &["limit", "needed", "percent"],
        "The limit of open files is too low; listeners accept fewer connections.",
        "Raise `LimitNOFILE` (`ulimit -Hn`) or lower `health.probes_at_once`.",
    )
    .with_subject(0),
    recorded(
        ("page_login", Info, "logged in to the page"),
        &["token", "source"],
        "A browser opened a session of the page with this token.",
        "Nothing, unless the token should not be used there: then revoke it.",
    ),
    recorded(
        ("path_mtu_low", Warning, "path MTU is below the interface MTU"),
        &["destination", "mtu"],
        "The path to a backend or gateway has a lower MTU than the interface.",
        "Correct the MTU on the path.",
    ),
    logged(
        ("peer_groups_ignored", Debug, "too many groups, ignored"),
        &["user"],
        "A caller of the control socket is in more groups than can be read; only its user and its \
         effective group count.",
        "Give the user a role, if the role of a group is missing.",
    ),
    logged(
        (
            "private_link_conditions_unstored",
            Debug,
            "conditions of shadowed private links not stored",
        ),
        &["error"],
        "Conditions of shadowed private links were not stored.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("private_link_event", Info, "private link event"),
        &["object", "reason", "detail"],
        "A private link changed.",
        "See `weir pls`.",
    ),
    recorded(
        ("private_link_lease_failed", Warning, "private link lease not read or renewed"),
        &["error"],
        "The lease for private links could not be read or renewed.",
        "See the error.",
    )
    .with_subject(0),
    recorded(
        ("private_link_panicked", Error, "private link round panicked"),
        &["object", "error"],
        "A defect of Weir in a private link's round; other links continue.",
        "Report it with the log.",
    ),
    recorded(
        ("private_link_problem", Warning, "private link problem"),
        &["object", "reason", "detail"],
        "A private link needs attention.",
        "The reason and detail are in the event; see `weir pls`.",
    ),
    recorded(
        ("private_link_status_invalid", Error, "stored private link status invalid, starting anew"),
        &["object", "error"],
        "The stored status of a private link cannot be read.",
        "Nothing; the state is read from Azure again.",
    ),
    logged(
        ("private_link_unstored", Warning, "private link status not stored"),
        &["object", "error"],
        "The status of a private link could not be stored.",
        "Check the disk of `control.state`.",
    ),
    recorded(
        ("probe_addresses_failed", Error, "probe source addresses not updated"),
        &["error"],
        "Source addresses of probes could not be set; probes through tunnels may fail.",
        "See the error.",
    )
    .with_subject(0),
    recorded(
        ("probe_addresses_set", Info, "probe source addresses are set again"),
        &[],
        "Source addresses of probes are set again.",
        "Nothing.",
    ),
    recorded(
        ("proxy_rules_failed", Error, "routing rules for proxies not set"),
        &["error"],
        "Routing rules could not be set (`ip rule`); replies of proxies bypass the XDP programs.",
        "See the error.",
    )
    .with_subject(0),
    recorded(
        ("proxy_rules_set", Info, "routing rules for proxies are set again"),
        &[],
        "Routing rules for proxies are set again.",
        "Nothing.",
    ),
    logged(
        ("reclaim_failed", Warning, "drained backends and tunnels not removed yet"),
        &["error"],
        "Drained backends and tunnels could not be removed yet.",
        "Nothing; it is tried again.",
    )
    .with_subject(0),
    logged(
        ("region_in_small_pages", Warning, "region is in 4 kB pages"),
        &["path"],
        "The region is in 4 kB pages, which are slower than huge pages.",
        "Use them in a lab only: `weir hugepages apply`.",
    ),
    recorded(
        ("region_note", Info, "region opened"),
        &["note"],
        "The region was opened in an unusual way: created, converted or replaced.",
        "The note says what happened.",
    )
    .with_subject(0),
    logged(
        ("region_removed", Info, "region removed"),
        &["path"],
        "The region was removed with its flows, as requested.",
        "Nothing.",
    ),
    recorded(
        ("reload_requested", Info, "reading configuration and services again"),
        &[],
        "Configuration and services are read again, as requested.",
        "Nothing.",
    ),
    recorded(
        ("removal_confirmed", Warning, "removal confirmed"),
        &["source", "removed"],
        "An operator confirmed a large removal.",
        "Nothing.",
    ),
    recorded(
        ("retired_tunnel_dropped", Warning, "no capacity to keep the tunnel's former sources"),
        &["tunnel"],
        "Packets of established flows from sources that were removed from a tunnel are dropped, \
         because all tunnels of the region are in use.",
        "Write fewer tunnels, or change them in steps: the region holds 64, and retired ones stay \
         for 300 s.",
    ),
    recorded(
        ("retired_tunnel_removed", Info, "retired tunnel removed"),
        &["tunnel"],
        "A gateway tunnel that the configuration no longer has was removed after its grace period.",
        "Nothing.",
    ),
    logged(
        (
            "reverse_path_filter",
            Warning,
            "the kernel's reverse path filter drops packets to proxies",
        ),
        &["interface", "remedy"],
        "The kernel's reverse path filter drops packets to proxies.",
        "Type the command in `remedy`.",
    ),
    recorded(
        ("rollback_rejected", Error, "rollback of the services rejected"),
        &["error"],
        "A defect: the previous services could not be restored after a failed commit.",
        "Restart slowpath, and report it with the log.",
    )
    .with_subject(0),
    logged(
        ("scrape_failed", Error, "scrape of the metrics failed"),
        &["error"],
        "The metrics could not be written, and the client got an error.",
        "Scrape again; if it fails again, report it.",
    )
    .with_subject(0),
    recorded(
        ("secret_rejected", Warning, "secret file rejected, the previous secret stays"),
        &["error"],
        "The new content of a secret file is not valid; the previous secret stays in force.",
        "Correct the file that the error names.",
    )
    .with_subject(0),
    recorded(
        ("secret_warning", Warning, "secret file has a warning"),
        &["warning"],
        "A secret is in force and should be corrected: it expires soon, or other users can read or \
         write its file.",
        "Do what the warning says.",
    )
    .with_subject(0),
    recorded(
        ("service_added", Info, "service added"),
        &["service", "source"],
        "A source has added a service.",
        "Nothing.",
    ),
    recorded(
        ("service_changed", Info, "service changed"),
        &["service", "source"],
        "A source has changed a service.",
        "Nothing.",
    ),
    recorded(
        ("service_condition_false", Warning, "service condition is false"),
        &["service", "condition", "detail"],
        "A condition of a service is false.",
        "The detail is in the event and in `weir get services`.",
    )
    .with_subject(2),
    recorded(
        ("service_removed", Info, "service removed"),
        &["service", "source"],
        "A source has removed a service.",
        "Nothing, unless it was removed by mistake: `weir restore`.",
    ),
    recorded(
        ("services_applied", Info, "services applied"),
        &["generation", "objects"],
        "The content of the services files is in force.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("services_rejected", Error, "services file rejected; the previous services stay in force"),
        &["path", "error"],
        "A changed services file is not valid; the previous services stay in force.",
        "Type `weir config check`.",
    ),
    recorded(
        ("slowpath_ended_uncleanly", Warning, "previous slowpath ended without a shutdown"),
        &["last_seen"],
        "The previous slowpath was killed, or the machine lost power, after `last_seen`.",
        "If you did not kill it: see the log before this time (`journalctl -u weir-slowpath`), \
         memory and the kernel's log.",
    )
    .with_subject(0),
    recorded(
        ("slowpath_failed", Error, "slowpath failed"),
        &["error"],
        "slowpath ended because a part failed; the data plane forwards packets by its tables.",
        "See the error. The service manager starts it again.",
    )
    .with_subject(0),
    recorded(
        ("slowpath_start_failed", Error, "slowpath not started"),
        &["error"],
        "slowpath could not start; the data plane forwards packets by its tables.",
        "See the error. The service manager starts it again.",
    )
    .with_subject(0),
    recorded(
        ("slowpath_started", Info, "slowpath started"),
        &["version", "socket", "metrics"],
        "slowpath has started.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("slowpath_stopped", Info, "slowpath stopped"),
        &[],
        "slowpath ended as requested; the data plane forwards packets by its tables.",
        "Nothing.",
    ),
    recorded(
        ("source_leases_expired", Warning, "source leases expired"),
        &["changes"],
        "Sources with a lease have not renewed it; what they wrote changes as configured.",
        "Check the sources.",
    )
    .with_subject(0),
    logged(
        ("source_leases_unchecked", Error, "checking source leases failed"),
        &["error"],
        "Leases of sources could not be checked.",
        "See the error; the check is repeated.",
    )
    .with_subject(0),
    logged(
        ("source_leases_unstored", Error, "expired source leases not stored, retrying"),
        &["changes", "error"],
        "The end of leases could not be stored; it is tried again.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    recorded(
        ("source_list_held", Warning, "source list held"),
        &["source", "reason"],
        "A source's complete list would remove too much and is not applied.",
        "Confirm it with `weir source confirm`, or correct the source.",
    ),
    logged(
        ("status_unstored", Debug, "status of objects not stored"),
        &["error"],
        "The status of objects was not stored.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("store_cut_failed", Warning, "interrupted write at the end of the store's log not cut"),
        &["error"],
        "An interrupted write could not be cut from the store's log; the next change cuts it.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    recorded(
        ("store_damaged", Error, "store not used, tables unchanged"),
        &["damage"],
        "A file of the store is damaged; changes are refused, and the tables stay as they are.",
        "See `weir status` and the page on backup and restore.",
    )
    .with_subject(0),
    recorded(
        ("store_log_cut", Warning, "interrupted write cut from the store's log"),
        &["cut"],
        "An interrupted write was cut from the store's log; it had not been acknowledged.",
        "Nothing.",
    )
    .with_subject(0),
    recorded(
        ("store_snapshot_failed", Warning, "store snapshot failed, log not shortened"),
        &["error"],
        "The store's log could not be shortened.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    recorded(
        ("store_write_failed", Error, "store write failed"),
        &["error"],
        "A change could not be written to disk and was rejected.",
        "Check the disk of `control.state`.",
    )
    .with_subject(0),
    recorded(
        ("tables_not_rolled_back", Error, "tables not rolled back to the last commit"),
        &["error"],
        "A defect: the tables could not be rolled back to the last commit.",
        "Restart slowpath, and report it with the log.",
    )
    .with_subject(0),
    logged(
        ("tap_mac_changed", Warning, "another program changed the MAC address of a TAP"),
        &["tap", "found", "expected", "outcome"],
        "Another program, usually systemd-udevd, changed the MAC address of a TAP.",
        "Write `MACAddressPolicy=none` in a `.link` file for the TAP.",
    ),
    logged(
        ("task_late", Warning, "task has not ended in time"),
        &["task"],
        "A thread did not end; the process ends without it.",
        "Check the disk, if it is the store's.",
    ),
    recorded(
        ("telemetry_failed", Warning, "telemetry not delivered"),
        &["signal", "endpoint", "error"],
        "The OpenTelemetry collector did not accept traces or metrics. Nothing else is affected; \
         what is lost is counted in `weir_telemetry_lost_total`.",
        "Check the collector and `telemetry.otlp_endpoint`.",
    ),
    recorded(
        ("telemetry_recovered", Info, "telemetry is delivered again"),
        &["signal", "endpoint"],
        "The OpenTelemetry collector accepts traces or metrics again.",
        "Nothing.",
    ),
    recorded(
        ("tls_certificate_replaced", Info, "TLS certificate replaced"),
        &["file", "valid_until"],
        "The API's certificate was rotated.",
        "Nothing.",
    ),
    recorded(
        ("tunnels_changed", Info, "gateway tunnels changed"),
        &["added", "removed"],
        "Gateway tunnels were added or retired, by the configuration or by the cloud.",
        "Nothing.",
    )
    .with_subject(0),
    logged(
        ("upgrade_state_left", Warning, "state of an ended upgrade not removed"),
        &["error"],
        "The state of an ended upgrade could not be removed.",
        "Remove it.",
    )
    .with_subject(0),
    recorded(
        ("version_changed", Info, "version changed"),
        &["program", "from", "to"],
        "slowpath or the data plane runs in another version than before.",
        "Nothing.",
    ),
    logged(
        ("xdp_attached", Info, "XDP programs attached"),
        &["interface", "mode", "driver", "mtu"],
        "The XDP programs are attached to an interface.",
        "Nothing.",
    ),
    logged(
        ("xdp_detached", Info, "XDP programs detached"),
        &["interface"],
        "The XDP programs are detached from an interface.",
        "Nothing.",
    ),
];
