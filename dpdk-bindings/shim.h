/* Inline functions and macros of DPDK's headers as functions that Rust can call, and a few helpers.
 * Forwarding a packet calls none of them, unless its headers need a new segment or its port cannot
 * send chains: per-packet work is written in Rust on the mbuf's fields. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* Allocates n mbufs, all or none. Returns 0 or a negative errno. */
int weir_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);
/* Copies a chain into its first segment. Returns 0, or a negative value if the tailroom of the
 * first segment is too short. */
int weir_linearize(struct rte_mbuf *mbuf);
/* Returns the calling thread's rte_errno. */
int weir_errno(void);
/* Returns 1 if the link is up, 0 if it is down, or a negative errno if the driver fails. Stores the
 * speed in Mbit/s, or 0 if it is unknown. */
int weir_link(uint16_t port, uint32_t *speed);
/* Raises INTR_RESET if `reset` is set and INTR_RMV if `removed` is set, as the driver of the port
 * would. */
void weir_raise(uint16_t port, bool reset, bool removed);
/* Returns the number of mbufs in the pool, free or in use. */
uint32_t weir_pool_size(const struct rte_mempool *pool);
/* Returns the version string of the linked DPDK. */
const char *weir_version(void);
/* Returns the MTU of a kernel interface of this network namespace, or a negative errno. Stores the
 * name of the interface in `name`. */
int weir_interface_mtu(unsigned int index, char name[16]);
