/* The reference for Weir's poll loop: the minimum work of a forwarder, in C, all inline. One lcore
 * receives bursts, swaps fields, and sends: crosswise between two ports, or back through a single
 * port. The modes are testpmd's: io swaps nothing, macswap the MAC addresses, 5tswap also the IP
 * addresses and ports.
 *
 *   loop <EAL arguments> -- io|macswap|5tswap <seconds> [burst]
 *
 * Prints "Mpps <packets sent per second, in millions>" once a second.
 *
 * Every buffer is filled with a UDP/IPv4 frame at the start. net_null does not modify a buffer's
 * bytes, so 5tswap does its complete work there; testpmd's 5tswap on net_null finds zeros and swaps
 * MAC addresses only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#define MAX_BURST 64

enum mode { IO, MACSWAP, FIVETSWAP };

static volatile uint64_t packets __rte_cache_aligned;
static volatile int stop;
static uint16_t burst = 32, ports;

static const uint8_t frame[64] = {
	2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,		/* Ethernet */
	0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0,			/* IPv4, UDP inside */
	198, 18, 0, 1, 198, 18, 0, 2,
	0x27, 0x10, 0x27, 0x11, 0, 30, 0, 0,				/* UDP 10000 -> 10001 */
};

static void fill(struct rte_mempool *pool, void *opaque, void *object, unsigned int index)
{
	struct rte_mbuf *m = object;

	(void)pool, (void)opaque, (void)index;
	memcpy((char *)m->buf_addr + RTE_PKTMBUF_HEADROOM, frame, sizeof frame);
}

static inline void swap_macs(struct rte_ether_hdr *eth)
{
	struct rte_ether_addr was = eth->dst_addr;

	eth->dst_addr = eth->src_addr;
	eth->src_addr = was;
}

static inline void swap_five(struct rte_ether_hdr *eth)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(eth + 1);
	struct rte_udp_hdr *udp;
	rte_be32_t address;
	rte_be16_t port;

	swap_macs(eth);
	if (eth->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4))
		return;
	address = ip->src_addr;
	ip->src_addr = ip->dst_addr;
	ip->dst_addr = address;
	if (ip->next_proto_id != IPPROTO_UDP && ip->next_proto_id != IPPROTO_TCP)
		return;
	udp = (struct rte_udp_hdr *)((char *)ip + rte_ipv4_hdr_len(ip));
	port = udp->src_port;
	udp->src_port = udp->dst_port;
	udp->dst_port = port;
}

static __rte_always_inline uint64_t forward(uint16_t from, uint16_t to, enum mode mode)
{
	struct rte_mbuf *v[MAX_BURST];
	uint16_t n = rte_eth_rx_burst(from, 0, v, burst), sent, i;

	if (!n)
		return 0;
	if (mode != IO) {
		for (i = 0; i < n; i++) {
			struct rte_ether_hdr *eth = rte_pktmbuf_mtod(v[i], struct rte_ether_hdr *);

			if (i + 1 < n)
				rte_prefetch0(rte_pktmbuf_mtod(v[i + 1], void *));
			if (mode == FIVETSWAP)
				swap_five(eth);
			else
				swap_macs(eth);
			/* The transmit driver reads offload requests from the fields that receive filled. */
			v[i]->ol_flags &= RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL;
			v[i]->vlan_tci = 0;
			v[i]->vlan_tci_outer = 0;
			v[i]->tx_offload = 0;
		}
	}
	sent = rte_eth_tx_burst(to, 0, v, n);
	if (sent < n)
		rte_pktmbuf_free_bulk(v + sent, n - sent);
	return sent;
}

static __rte_always_inline int poll_ports(enum mode mode)
{
	const uint16_t other = ports > 1;
	uint64_t count = 0;

	while (!stop) {
		count += forward(0, other, mode);
		if (other)
			count += forward(1, 0, mode);
		packets = count;
	}
	return 0;
}

static int poll_io(void *x) { (void)x; return poll_ports(IO); }
static int poll_macswap(void *x) { (void)x; return poll_ports(MACSWAP); }
static int poll_5tswap(void *x) { (void)x; return poll_ports(FIVETSWAP); }

static int fail(const char *what)
{
	fprintf(stderr, "loop: %s\n", what);
	return 1;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv), left;
	struct rte_mempool *pool;
	lcore_function_t *poll;
	uint64_t last = 0;
	unsigned int worker;
	uint16_t port;
	int seconds;

	if (used < 0)
		return fail("DPDK did not start: it names the cause above");
	left = argc - used - 1;
	argv += used + 1;
	if (left < 2)
		return fail("usage: loop <EAL> -- io|macswap|5tswap <seconds> [burst]");
	poll = !strcmp(argv[0], "io") ? poll_io :
	       !strcmp(argv[0], "macswap") ? poll_macswap :
	       !strcmp(argv[0], "5tswap") ? poll_5tswap : NULL;
	seconds = atoi(argv[1]);
	if (left > 2)
		burst = atoi(argv[2]);
	ports = rte_eth_dev_count_avail();
	if (!poll || seconds < 1 || burst < 1 || burst > MAX_BURST || ports < 1 || ports > 2)
		return fail("invalid mode, seconds, burst (1 to 64) or number of ports (1 or 2)");

	pool = rte_pktmbuf_pool_create("pool", 8192, 250, 0, 2176, rte_socket_id());
	if (!pool)
		return fail("no memory for the pool");
	rte_mempool_obj_iter(pool, fill, NULL);
	for (port = 0; port < ports; port++) {
		struct rte_eth_conf conf = {0};

		if (rte_eth_dev_configure(port, 1, 1, &conf) ||
		    rte_eth_rx_queue_setup(port, 0, 512, 0, NULL, pool) ||
		    rte_eth_tx_queue_setup(port, 0, 512, 0, NULL) || rte_eth_dev_start(port))
			return fail("a port cannot be configured or started");
	}
	worker = rte_get_next_lcore(-1, 1, 0);
	if (worker >= RTE_MAX_LCORE || rte_eal_remote_launch(poll, NULL, worker))
		return fail("no worker lcore: pass -l 0,1");
	while (seconds-- > 0) {
		uint64_t now;

		sleep(1);
		now = packets;
		printf("Mpps %.3f\n", (now - last) / 1e6);
		fflush(stdout);
		last = now;
	}
	stop = 1;
	rte_eal_wait_lcore(worker);
	for (port = 0; port < ports; port++)
		rte_eth_dev_stop(port);
	rte_eal_cleanup();
	return 0;
}
