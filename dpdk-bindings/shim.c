#include "wrapper.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

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

int weir_interface_mtu(unsigned int index, char name[16])
{
	struct ifreq request;
	int socket_fd, status;

	_Static_assert(IF_NAMESIZE == 16, "interface names");
	if (!if_indextoname(index, name))
		return -errno;
	socket_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (socket_fd < 0)
		return -errno;
	memset(&request, 0, sizeof request);
	memcpy(request.ifr_name, name, IF_NAMESIZE);
	status = ioctl(socket_fd, SIOCGIFMTU, &request) < 0 ? -errno : request.ifr_mtu;
	close(socket_fd);
	return status;
}
