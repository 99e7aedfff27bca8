#include "wrapper.h"

int weir_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, unsigned int n)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, n);
}

int weir_linearize(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_linearize(mbuf);
}

int weir_errno(void)
{
	return rte_errno;
}

int weir_link_up(uint16_t port)
{
	struct rte_eth_link link;
	int status = rte_eth_link_get_nowait(port, &link);

	if (status < 0)
		return status;
	return link.link_status == RTE_ETH_LINK_UP;
}

uint32_t weir_pool_size(const struct rte_mempool *pool)
{
	return pool->size;
}

const char *weir_version(void)
{
	return rte_version();
}
