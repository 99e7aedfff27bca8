/* Input of bindgen: the headers of the DPDK functions that Weir calls, and the shim. */
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_cycles.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_timer.h>
#include <rte_version.h>

#include "shim.h"

/* Offsets of the mbuf's fields, computed by the C compiler. DPDK moves fields in and out of
 * anonymous unions from release to release (24.11 has no markers any more), but their names in C
 * are stable. Rust uses these offsets, and never bindgen's names of the unions. */
enum weir_mbuf_layout {
	WEIR_MBUF_SIZE = sizeof(struct rte_mbuf),
	WEIR_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	WEIR_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	WEIR_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	WEIR_MBUF_PORT = offsetof(struct rte_mbuf, port),
	WEIR_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	WEIR_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	WEIR_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	WEIR_MBUF_VLAN_TCI = offsetof(struct rte_mbuf, vlan_tci),
	WEIR_MBUF_VLAN_TCI_OUTER = offsetof(struct rte_mbuf, vlan_tci_outer),
	WEIR_MBUF_HASH = offsetof(struct rte_mbuf, hash.rss),
	WEIR_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	WEIR_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	WEIR_MBUF_POOL = offsetof(struct rte_mbuf, pool),
	WEIR_MBUF_TX_OFFLOAD = offsetof(struct rte_mbuf, tx_offload),
};

/* Checks the widths with which Rust reads and writes these fields. */
#define WEIR_WIDTH(field, bytes) \
	_Static_assert(sizeof(((struct rte_mbuf *)0)->field) == (bytes), "rte_mbuf." #field)
WEIR_WIDTH(buf_addr, 8);
WEIR_WIDTH(data_off, 2);
WEIR_WIDTH(nb_segs, 2);
WEIR_WIDTH(port, 2);
WEIR_WIDTH(ol_flags, 8);
WEIR_WIDTH(pkt_len, 4);
WEIR_WIDTH(data_len, 2);
WEIR_WIDTH(vlan_tci, 2);
WEIR_WIDTH(vlan_tci_outer, 2);
WEIR_WIDTH(hash.rss, 4);
WEIR_WIDTH(buf_len, 2);
WEIR_WIDTH(next, 8);
WEIR_WIDTH(pool, 8);
WEIR_WIDTH(tx_offload, 8);

/* Flags are casts and shifts, which bindgen does not evaluate as macros. */
static const uint64_t WEIR_MBUF_KEEP_FLAGS = RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
static const uint64_t WEIR_MBUF_RX_RSS_HASH = RTE_MBUF_F_RX_RSS_HASH;
static const uint64_t WEIR_MBUF_RX_VLAN_STRIPPED = RTE_MBUF_F_RX_VLAN_STRIPPED;
static const uint64_t WEIR_RX_OFFLOAD_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t WEIR_RX_OFFLOAD_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t WEIR_TX_OFFLOAD_FAST_FREE = RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
static const uint64_t WEIR_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint32_t WEIR_DEV_INTR_RMV = RTE_ETH_DEV_INTR_RMV;
static const uint16_t WEIR_ETH_ALL = RTE_ETH_ALL;
static const uint64_t WEIR_RSS_FLOWS =
	RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP;
