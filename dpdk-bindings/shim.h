/* The calls that exist only as inline functions or macros of DPDK's headers, as real functions.
 * None is called once a packet: per-packet work is Rust on the mbuf's fields. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rte_mbuf;
struct rte_mempool;

/* All of n mbufs, or none: 0, or a negative errno. */
int weir_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n);
/* Makes one segment of a chain; fails where the first segment has no room for the rest. */
int weir_linearize(struct rte_mbuf *mbuf);
/* The calling thread's rte_errno. */
int weir_errno(void);
/* 1: link up, 0: down, negative errno: cannot be told. */
int weir_link_up(uint16_t port);
/* Mbufs that the pool was made with. */
uint32_t weir_pool_size(const struct rte_mempool *pool);
/* The version of the headers, which is the version linked. */
const char *weir_version(void);
/* The MTU of a kernel interface of this network namespace, and its name; or a negative errno. */
int weir_interface_mtu(unsigned int index, char name[16]);
